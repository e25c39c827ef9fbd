"""Resources between sagas: taken with the intent, in sorted order, and held until the saga is sealed.

A saga that waits may already hold others. It waits only for names that sort after all that it holds, so sagas that wait
for one another in a circle cannot be: whoever asks out of order is refused at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import GateRefused
from agent_saga.runtime import halts
from agent_saga.runtime.clock import clock
from agent_saga.runtime.ops import Sleep
from agent_saga.runtime.refusal import recordable, refuse

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall

POLL_S: Final = 0.05


class ResourceTaken(GateRefused):
    """Another saga took a resource between the look at it and the intent; a saga that waits looks again."""


def wanted(saga: Saga, call: ToolCall, more: Iterable[str] = ()) -> Generator[Op, Any, tuple[str, ...]]:
    """Return the resources of a call, when no other saga holds one; waits for them if the saga waits.

    Args:
        saga: the saga of the call.
        call: the call.
        more: what policies demand beyond the declaration.

    Raises:
        GateRefused: another saga holds one, or a name cannot be made from the arguments; nothing happened.
        SagaSuspended: the saga was halted while it waited.
    """
    names = tuple(sorted({*more, *(yield from _named(saga, call))}))
    while names and (holder := _holder(saga.live, names)) is not None:
        no_wait = why_not_wait(saga, call, names)
        if no_wait is not None:
            name, saga_id = holder
            held = f"resource {name!r} is held by saga {saga_id!r} until that is sealed"
            yield from refuse(saga, call.declaration.name, "resources", f"{held}{no_wait}")
        yield Sleep(POLL_S)
        saga.live.check_accepts(saga.scope, call.declaration.name)
        halts.check(saga, call.declaration.name)
    return names


def _named(saga: Saga, call: ToolCall) -> Generator[Op, Any, set[str]]:
    declaration = call.declaration
    try:
        names = {template.format_map(call.kwargs) for template in declaration.resources}
        odd = [name for name in names if recordable(name) != name]
    except Exception as error:  # The arguments' own methods may fail; then nothing is known to be free.
        why = f"a resource cannot be named: {type(error).__name__}: {error}"
        yield from refuse(saga, declaration.name, "resources", why)
        raise
    if odd:
        yield from refuse(saga, declaration.name, "resources", f"{odd[0][:80]!r} cannot be the name of a resource")
    return names


def why_not_wait(saga: Saga, call: ToolCall, names: tuple[str, ...]) -> str | None:
    """Return why a call may not wait for a resource (any longer), or None when it may."""
    if saga.limits.on_busy == "fail":
        return ""
    gate = saga.live.view.gate
    held = {} if gate is None else gate.resources
    behind = max(held, default="")
    if any(name < behind for name in names if name not in held):
        return f"; to wait for it could last for ever, because this saga holds {behind!r}, which is taken after it"
    now = clock().monotonic()
    if call.waits_until is None:
        call.waits_until = now + saga.limits.busy_wait_s
    return None if now < call.waits_until else f"; waited {saga.limits.busy_wait_s:g} s"


def _holder(live: LiveSaga, names: tuple[str, ...]) -> tuple[str, str] | None:
    for name in names:
        for fact in live.writer.store.facts("resource", name):
            if fact.saga_id != live.view.id:
                return name, fact.saga_id
    return None
