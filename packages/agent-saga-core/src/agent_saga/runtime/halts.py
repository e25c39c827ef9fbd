"""Kill switch, drain and quarantine: read from outside the agent at each intent; what cannot be read means halted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.errors import GateRefused, SagaSuspended, StoreError
from agent_saga.model import records as r
from agent_saga.runtime.clock import clock
from agent_saga.runtime.refusal import recordable

if TYPE_CHECKING:
    from agent_saga.machine.gate import Fact
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.saga import Saga
    from agent_saga.store.port import LogStore


def matches(scope: str, *, saga_id: str, tags: tuple[str, ...], tool: str | None = None) -> bool:
    """Tell whether a halt's scope covers a call of a saga.

    Args:
        scope: `*`, `tool:name`, `tool:prefix.*`, `saga:id` or `tag:name`.
        saga_id: the saga.
        tags: its tags.
        tool: the tool, or None where only the saga counts.
    """
    if scope == "*":
        return True
    kind, _, name = scope.partition(":")
    if kind == "saga":
        return name == saga_id
    if kind == "tag":
        return name in tags
    if kind != "tool" or tool is None:
        return False
    return tool.startswith(name[:-1]) if name.endswith("*") else tool == name


def active(store: LogStore, kinds: tuple[str, ...]) -> list[Fact]:
    """Return the halts of some kinds that are in force.

    Raises:
        StoreError: they cannot be read.
    """
    facts = store.halts()
    if not facts:
        return []
    now_ns = clock().time_ns()
    return [fact for fact in facts if fact.kind in kinds and (fact.at == 0 or fact.at > now_ns)]


def check(saga: Saga, tool: str) -> None:
    """Stop before an effect that is halted: the saga is suspended, and can be resumed when the halt is lifted.

    Args:
        saga: the saga of the call.
        tool: its tool.

    Raises:
        SagaSuspended: halted, or whether it is cannot be read; nothing happened.
    """
    live = saga.live
    reason = covering(live.writer.store, saga_id=live.view.id, tags=saga.tags, tool=tool)
    if reason is None:
        live.paused.pop("halt", None)
        return
    with live.lock:
        live.check_accepts(saga.scope, tool)
        live.emit(r.Decided, tool=tool, decision="halt", policy="halt", reason=recordable(reason), hold=True)
        live.paused["halt"] = reason
    raise SagaSuspended(
        f"{tool!r} did not run: saga {live.id!r} is halted ({reason}). It is suspended when its scope ends, and "
        "can be resumed by its key after `agent-saga lift`",
        saga_id=live.id,
    )


def covering(store: LogStore, *, saga_id: str, tags: tuple[str, ...], tool: str) -> str | None:
    """Return why a call is halted, or None; what cannot be read is."""
    try:
        found = active(store, ("halt", "quarantine"))
    except (StoreError, OSError) as error:
        return f"whether it is halted cannot be read ({error})"
    for fact in found:
        if matches(fact.name, saga_id=saga_id, tags=tags, tool=tool):
            return f"{fact.kind} {fact.name}: {fact.value or 'no reason given'}"
    return None


def quarantined(store: LogStore, saga_id: str) -> str | None:
    """Return why a saga is frozen, or None."""
    for fact in active(store, ("quarantine",)):
        if matches(fact.name, saga_id=saga_id, tags=()):
            return fact.value or "no reason given"
    return None


def is_frozen(live: LiveSaga) -> bool:
    """Look, at the boundary of a compensation, whether the saga was quarantined meanwhile; notes why in the saga.

    What cannot be read counts as frozen: recovery goes on when it can be read again.
    """
    try:
        live.frozen = quarantined(live.writer.store, live.view.id)
    except (StoreError, OSError) as error:
        live.frozen = f"whether it is quarantined cannot be read ({error})"
    return live.frozen is not None


def check_drain(store: LogStore, name: str, tags: tuple[str, ...]) -> None:
    """Refuse a new saga while the log is drained.

    Raises:
        GateRefused: it is; nothing was started.
    """
    for fact in active(store, ("drain",)):
        if matches(fact.name, saga_id="", tags=tags):
            raise GateRefused(f"saga {name!r} was not opened: drain {fact.name}: {fact.value or 'no reason given'}")
