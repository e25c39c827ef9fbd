"""What the framework says about a run: where its call ids are unique, and which results it already has."""

from __future__ import annotations

import uuid
import weakref
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agents import RunContextWrapper
from agents.tracing import get_current_span, get_current_trace

from agent_saga import current_saga, spi
from agent_saga_openai_agents._info import NAME

if TYPE_CHECKING:
    from agent_saga import Saga


@dataclass(slots=True)
class _Run:
    """A run.

    Attributes:
        scope: where its call ids are unique.
        sagas: those that know what it brought along.
    """

    scope: str = field(default_factory=lambda: f"run:{uuid.uuid4().hex}")
    sagas: weakref.WeakSet[Saga] = field(default_factory=weakref.WeakSet)
    input_claimed: bool = False


_runs: Final[weakref.WeakKeyDictionary[RunContextWrapper[Any], _Run]] = weakref.WeakKeyDictionary()
_run: ContextVar[_Run | None] = ContextVar("agent_saga_openai_agents_run", default=None)
"""The run for the calls of a turn, whose own contexts do not tell; the framework makes tasks of some turns."""


def turn_begins(saga: Saga, context: RunContextWrapper[Any]) -> tuple[set[str], set[str]]:
    """Note the run whose turn begins in this task; claims what a resumed one has the results of.

    Returns:
        The ids of its calls that are completed, and of those that a state has brought along unfinished.
    """
    run = _runs.setdefault(context, _Run())
    _run.set(run)
    # Nothing public tells what a RunState has done; the tests see to it that this does.
    records = getattr(context, "_tool_invocations", {})
    completed = {call_id for call_id, record in records.items() if record.completed}
    if saga in run.sagas:
        return completed, set()
    run.sagas.add(saga)
    spi.claim(completed, adapter=NAME, scope="")
    return completed, records.keys() - completed


def input_is_known(context: RunContextWrapper[Any]) -> None:
    """Claim the steps whose results a run was begun with, by a session or by hand."""
    run = _runs.get(context)
    if run is None or run.input_claimed or current_saga() is None:
        return
    run.input_claimed = True
    items = [item for item in context.turn_input if isinstance(item, dict)]
    ids = [str(item.get("call_id")) for item in items if item.get("type") == "function_call_output"]
    spi.claim(ids, adapter=NAME, scope="")


def mark_trace(saga: Saga) -> None:
    """Put the saga's id on the trace of the run."""
    trace = get_current_trace()
    if trace is not None and hasattr(trace, "metadata"):
        trace.metadata = {**(trace.metadata or {}), "saga_id": saga.id}


def is_approved(context: Any, tool: str, call_id: str | None) -> bool | None:
    """Tell what a person said about a call through the framework; None: nothing."""
    if call_id is None or not isinstance(context, RunContextWrapper):
        return None
    word = context.is_tool_approved(tool, call_id)
    qualified = getattr(context, "qualified_tool_name", tool) if word is None else tool
    return context.is_tool_approved(qualified, call_id) if qualified != tool else word


def scope_of(context: Any, tool: str, call_id: str | None) -> str | None:
    """Return where a call's id is unique: in its run, of which a saved state can be resumed any number of times.

    No state says which run it is of; but only a call that was approved can be made again by one, by the same agent.
    """
    if is_approved(context, tool, call_id):
        agent = getattr(context, "agent", None)
        return "approved" if agent is None else f"approved:{agent.name}"
    run = _run.get()
    return None if run is None else run.scope


def mark_refused(reason: str) -> None:
    """Put a refusal on the call's trace, as the framework does with other errors."""
    span = get_current_span()
    if span is not None:
        span.set_error({"message": "Refused by agent-saga", "data": {"reason": reason}})
