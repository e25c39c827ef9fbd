"""Approvals through the framework's own pause: interruptions, and the words that a RunState brings back."""

from __future__ import annotations

import copy
import inspect
import json
import weakref
from typing import TYPE_CHECKING, Any, Final

from agent_saga import current_saga, spi
from agent_saga.errors import UsageError
from agent_saga_openai_agents import _runs
from agent_saga_openai_agents._info import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents import FunctionTool, RunContextWrapper

    from agent_saga import Saga, SagaSuspended

_waiting: Final[weakref.WeakKeyDictionary[Saga, set[str]]] = weakref.WeakKeyDictionary()
"""The ids of calls for which runs wait."""
_OURS: Final = "__agent_saga_asks__"


def ask_first(tool: FunctionTool, arguments: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Let the gate, beside the tool's own policy, decide whether the run pauses before a call.

    Args:
        tool: a guarded tool; it is changed.
        arguments: makes the arguments of a step of what the model gave.
    """
    theirs = tool.needs_approval
    if hasattr(theirs, _OURS) or not (isinstance(theirs, bool) or callable(theirs)):
        return  # The framework says what is wrong with something else, and runs nothing.

    async def needs_approval(context: RunContextWrapper[Any], given: dict[str, Any], call_id: str) -> bool:
        asked = theirs if isinstance(theirs, bool) else await _ask(theirs, tool, context, given, call_id)
        saga = current_saga()
        if saga is None:
            return asked
        if not asked and spi.may_suspend(tool.name):
            asked = await _must_wait(tool.name, arguments, context, given, call_id)
        if asked:
            _note(saga, call_id)
        return asked

    setattr(needs_approval, _OURS, True)
    tool.needs_approval = needs_approval


def pausing(tool: FunctionTool) -> FunctionTool:
    """Return a tool that is no step as one whose approvals are known to pause the saga with the run."""
    if tool.needs_approval is False or hasattr(tool.needs_approval, _OURS):
        return tool
    tool = copy.copy(tool)
    ask_first(tool, dict)
    return tool


async def _ask(theirs: Any, tool: FunctionTool, context: Any, given: dict[str, Any], call_id: str) -> bool:
    """Ask the tool's own policy, unless the framework would not, because it cannot show it what would run."""
    prepare = getattr(tool.on_invoke_tool, "prepare_arguments", None)  # Since 0.21.
    prepared = None if prepare is None else prepare(json.dumps(given), tool.name)
    if prepared is not None and not prepared.unchanged:
        return True
    answer = theirs(context, given, call_id)
    return bool(await answer if inspect.isawaitable(answer) else answer)


async def _must_wait(name: str, arguments: Any, context: Any, given: dict[str, Any], call_id: str) -> bool:
    try:
        named = arguments(given)
    except Exception:  # noqa: BLE001 - the framework is going to say so when the call is made.
        return False
    scope = _runs.scope_of(context, name, call_id)
    return await spi.alook_ahead(name, named, adapter=NAME, call_id=call_id, scope=scope) is not None


def _note(saga: Saga, call_id: str) -> None:
    _waiting.setdefault(saga, set()).add(call_id)
    spi.note_pause(call_id, f"call {call_id} waits for an approval")


def turn_begins(saga: Saga, completed: set[str], unfinished: set[str]) -> None:
    """Note what a resumed run still waits for, until it is completed: approved and made, or rejected."""
    for call_id in unfinished:
        _note(saga, call_id)
    for call_id in _waiting.get(saga, set()) & completed:
        _waiting[saga].discard(call_id)
        spi.note_pause(call_id, None)


def pass_on(wait: SagaSuspended, context: Any, name: str, call_id: str | None) -> bool:
    """Record a person's word on a call, given through the framework, as the word on the gate's request.

    Returns:
        Whether the call can be tried again.
    """
    if not wait.approval or not _runs.is_approved(context, name, call_id):
        return False
    try:
        spi.decide_approval(wait.approval, approved=True, by=NAME)
    except UsageError:
        return True  # Somebody was faster, or it takes a signature: asked again, the gate says what is true.
    return True
