"""Where a tool call stands: its id, the work that CrewAI may repeat, and how often it has been begun.

No hook or body of CrewAI is told any of this. The scopes of its events say it: a task (or an agent that is kicked off
alone) is the unit of work that is repeated when a guardrail rejects or a model fails, and each execution of an agent
in it has an id of its own.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from crewai.events import event_context
from crewai.utilities.string_utils import sanitize_tool_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crewai.hooks import ToolCallHookContext

    from agent_saga import Saga

_UNITS: Final = frozenset({"task_started", "lite_agent_execution_started"})
_BEGUN: Final = frozenset(
    {
        ("task_started", "agent_execution_started"),
        ("lite_agent_execution_started", "flow_started"),
        ("tool_usage_started", "agent_execution_started"),  # Delegation.
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What `spi.guard` is told about a call.

    Attributes:
        call_id: unique in the scope.
        scope: the unit of work, and the agent.
        attempt: how often an agent has been set to the unit before.
    """

    call_id: str | None = None
    scope: str | None = None
    attempt: int = 0


_NOWHERE: Final = Place()


@dataclass(slots=True)
class Spot:
    """One call that CrewAI makes, from its hook before to its hook after.

    Attributes:
        tool: whose body it will run.
        place: taken by the first run of that body.
        raised: what the body raised. CrewAI runs the body of a ReAct call up to six times; it gets the same error.
        refused: why the body will not run.
    """

    tool: Any = None
    place: Place | None = None
    raised: Exception | None = None
    refused: str | None = None


current: Final[ContextVar[Spot | None]] = ContextVar("agent_saga_crewai_spot", default=None)


@contextmanager
def enter(tool: Any) -> Iterator[Place]:
    """Give the place of a run of a tool's body. A call that CrewAI does not make (from Python) has none."""
    spot = current.get()
    if spot is None or spot.tool is not tool:
        yield _NOWHERE
        return
    if spot.raised is not None:
        raise spot.raised
    place, spot.place = spot.place or _NOWHERE, None
    try:
        yield place
    except Exception as error:
        spot.raised = error
        raise


@dataclass(slots=True)
class _Seen:
    """What a saga has seen of CrewAI's work: executions by what they are part of, and ids by scope."""

    executions: dict[str, list[str]] = field(default_factory=dict)
    ids: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    told: set[tuple[str, int, str]] = field(default_factory=set)


_seen: Final[WeakKeyDictionary[Saga, _Seen]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


def place_of(call: ToolCallHookContext, saga: Saga) -> Place:
    """Return the place of a call that is about to be made."""
    stack = event_context._event_id_stack.get()  # noqa: SLF001 - CrewAI has a setter for it, and no getter.
    with _lock:
        seen = _seen.setdefault(saga, _Seen())
        unit = next((event for event, kind in stack if kind in _UNITS), None)
        scope = None if unit is None else f"{unit}|{getattr(call.agent, 'key', '')}"
        attempt = sum(_restarts(seen, *pair) for pair in pairwise(stack))
        return Place(call_id=_call_id(seen, call, scope, stack), scope=scope, attempt=attempt)


def _restarts(seen: _Seen, parent: tuple[str, str], child: tuple[str, str]) -> int:
    if (parent[1], child[1]) not in _BEGUN:
        return 0
    begun = seen.executions.setdefault(parent[0], [])
    if child[0] not in begun:
        begun.append(child[0])
    return begun.index(child[0])


def _call_id(
    seen: _Seen, call: ToolCallHookContext, scope: str | None, stack: tuple[tuple[str, str], ...]
) -> str | None:
    """Return the model's id of the call, else that of CrewAI's event for it.

    Some providers begin to count anew in each answer, or have no ids. An id that comes again in its scope is another
    call: CrewAI never makes one call twice.
    """
    event, kind = stack[-1] if stack else ("", "")
    run = next((known for known, kind in reversed(stack) if kind == "flow_started"), "")
    known = _model_id(seen, call, run) or (event if kind == "tool_usage_started" else None)
    if known is None:
        return None
    seen.ids[scope, known] += 1
    count = seen.ids[scope, known]
    return known if count == 1 else f"{known}#{count}"


def _model_id(seen: _Seen, call: ToolCallHookContext, run: str) -> str | None:
    """Find the call in the model's last answer; equal calls side by side are told apart by their order."""
    messages = getattr(getattr(getattr(call.agent, "agent_executor", None), "state", None), "messages", None) or ()
    for number, message in reversed(list(enumerate(messages))):
        if message.get("tool_calls"):
            for one in message["tool_calls"]:
                known = (run, number, str(one["id"]))
                if known not in seen.told and _is_call(one["function"], call):
                    seen.told.add(known)
                    return known[2]
            return None
    return None


def _is_call(function: Any, call: ToolCallHookContext) -> bool:
    if sanitize_tool_name(function["name"]) != call.tool_name:
        return False
    try:
        return bool((json.loads(function["arguments"]) or {}) == call.tool_input)
    except ValueError:
        return False
