"""Resources between sagas: taken with the intent, in sorted order, and held until the saga is sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import GateRefused
from agent_saga.model import records as r
from agent_saga.model.requirements import Free
from agent_saga.runtime.clock import clock
from agent_saga.runtime.ops import Sleep

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall

POLL_S: Final = 0.05


def wanted(saga: Saga, call: ToolCall) -> Generator[Op, Any, tuple[str, ...]]:
    """Return the resources of a call, when no other saga holds one; waits for them if the saga waits.

    Raises:
        GateRefused: another saga holds one, or a name cannot be made from the arguments; nothing happened.
    """
    declaration = call.declaration
    if not declaration.resources:
        return ()
    try:
        names = tuple(sorted({template.format_map(call.kwargs) for template in declaration.resources}))
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        yield from _refuse(saga.live, declaration.name, f"a resource cannot be named: {type(error).__name__}: {error}")
        raise
    until = clock().monotonic() + saga.limits.busy_wait_s
    while (holder := _holder(saga.live, names)) is not None:
        if saga.limits.on_busy == "fail" or clock().monotonic() >= until:
            name, saga_id = holder
            yield from _refuse(
                saga.live, declaration.name, f"resource {name!r} is held by saga {saga_id!r} until that is sealed"
            )
        yield Sleep(POLL_S)
    return names


def _holder(live: LiveSaga, names: tuple[str, ...]) -> tuple[str, str] | None:
    for name in names:
        for fact in live.writer.store.facts("resource", name):
            if fact.saga_id != live.view.id:
                return name, fact.saga_id
    return None


def requirement(live: LiveSaga, names: tuple[str, ...]) -> list[Free]:
    """Return what the log must check for the resources that the saga does not hold yet."""
    held = live.view.gate.resources if live.view.gate is not None else {}
    missing = tuple(name for name in names if name not in held)
    return [Free(names=missing)] if missing else []


def _refuse(live: LiveSaga, tool: str, reason: str) -> Generator[Op, Any, None]:
    ticket = live.emit(r.Decided, tool=tool, decision="refuse", policy="resources", reason=reason)
    yield from live.committed(ticket)
    raise GateRefused(f"{tool!r} was refused in saga {live.id!r}, before any effect: {reason}")
