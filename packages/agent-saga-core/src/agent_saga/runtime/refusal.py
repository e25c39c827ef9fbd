"""Refusing a call before its effect: recorded, then raised, with a reason that a model can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import GateRefused
from agent_saga.model import records as r

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga

REASON_LENGTH_MAX: Final = 2000


def refuse(saga: Saga, tool: str, policy: str, reason: str, *, decision: str = "refuse") -> Generator[Op, Any, None]:
    """Record a refusal and raise it. It is committed without waiting for the device: nothing happened.

    Args:
        saga: the saga of the call.
        tool: the tool that does not run.
        policy: who refuses.
        reason: may quote arguments; what is no text, or too long, is made fit for a record.
        decision: what was decided: `refuse`, `rejected`, `expired` or `withdrawn`.

    Raises:
        GateRefused: always, unless the saga takes no records any more.
        SagaClosed: it ended meanwhile.
    """
    live, told = saga.live, recordable(reason)
    with live.lock:
        live.check_accepts(saga.scope, tool)
        ticket = live.emit(r.Decided, tool=tool, decision=decision, policy=policy, reason=told)
    yield from live.committed(ticket)
    raise refusal(saga, tool, told)


def refusal(saga: Saga, tool: str, reason: str) -> GateRefused:
    """Return the error that says that a call was refused."""
    return GateRefused(f"{tool!r} was refused in saga {saga.id!r}, before any effect: {reason}")


def recordable(text: object) -> str:
    """Return a text as records can hold it: without lone surrogates, and not too long."""
    whole = str(text).encode("utf-8", "backslashreplace").decode()
    return whole if len(whole) <= REASON_LENGTH_MAX else whole[: REASON_LENGTH_MAX - 3] + "..."
