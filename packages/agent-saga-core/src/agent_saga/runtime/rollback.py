"""Rolling back a scope, and finishing what is left of an ended saga: the same code live and in recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.machine.plan import Action, leftovers, next_action, rollback_order
from agent_saga.machine.states import StepState
from agent_saga.model import records as r
from agent_saga.runtime.clock import clock
from agent_saga.runtime.halts import is_frozen
from agent_saga.runtime.ops import Invoke, Join
from agent_saga.runtime.settle import resolve

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.runtime.compensate import Budget
    from agent_saga.runtime.live import Flight, LiveSaga
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.writer import Ticket


def roll_back(live: LiveSaga, scope: int, cause: str, budget: Budget, *, drain_s: float) -> Generator[Op, Any, None]:
    """Compensate what stands in a scope, in reverse order of intent, and record its end.

    Args:
        live: the saga.
        scope: 0 for the whole saga.
        cause: why, in one line.
        budget: no compensation begins after it is used up; what is left then is finished by recovery.
        drain_s: how long calls that still run are waited for.

    Raises:
        LogFailed, OwnerReplaced: the rollback could not be recorded any further.
    """
    live.closing.add(scope)
    if scope == 0:
        withdraw_approvals(live)
    live.emit(r.RollbackStarted, scope=scope, cause=cause)
    yield from drain(live, scope, min(drain_s, max(budget.left_s, 0.0)))
    yield from unwind(live, scope, budget)


def withdraw_approvals(live: LiveSaga) -> None:
    """Withdraw the requests for approval that nobody needs any more: their saga ends."""
    gate = live.view.gate
    for known in [] if gate is None else list(gate.approvals.values()):
        if known.state in {"pending", "approved"}:
            live.emit(r.ApprovalDecided, hold=True, approval=known.id, decision="withdrawn", by="saga")


def drain(live: LiveSaga, scope: int, drain_s: float) -> Generator[Op, Any, None]:
    """Wait for the calls of a scope that still run; close its streams; give the rest up."""
    until = clock().monotonic() + drain_s
    for flight in live.running(scope):
        if flight.close is not None:
            yield from _close(flight, drain_s)
        yield Join(flight.done, max(until - clock().monotonic(), 0.0))
    with live.lock:
        for flight in live.running(scope):
            if not flight.done.done():
                flight.given_up = True


def _close(flight: Flight, drain_s: float) -> Generator[Op, Any, None]:
    """Close a stream. When that fails (it runs in another thread), the call stays in doubt until it returns."""
    try:
        yield Invoke(flight.close or bool, {}, limit_s=drain_s)
    except Exception:  # noqa: BLE001 - recorded as the step's outcome by the stream itself, or it stays in doubt.
        return


def unwind(live: LiveSaga, scope: int, budget: Budget) -> Generator[Op, Any, None]:
    """Settle and compensate the steps of a scope until nothing more can be done now, and record its end.

    A late outcome may turn a step that was passed over into a standing one: then the walk begins again at once, so that
    it is compensated before the steps before it. The last look and the end share the lock, so no landing falls between.
    A quarantine stops the walk at the next step: the saga is released as it is (`live.frozen` says why).
    """
    ticket = None
    while ticket is None:
        seen, live.frozen = live.landings, None
        for step in rollback_order(live.view, scope):
            if next_action(step) is not Action.NONE and is_frozen(live):
                yield from _freeze(live, scope)
                return
            yield from resolve(live, step, budget)
            if live.landings != seen or live.frozen is not None:
                break
        with live.lock:
            if live.frozen is None and (live.landings == seen or budget.left_s <= 0):
                ticket = _end(live, scope)
    yield from live.committed(ticket)


def _freeze(live: LiveSaga, scope: int) -> Generator[Op, Any, None]:
    """Stop where the walk is: recovery, which leaves a quarantined saga alone, goes on once that is lifted."""
    for step in live.view.within(scope):
        if next_action(step) is not Action.NONE:
            live.notes[step.no] = f"not compensated yet: quarantined ({live.frozen})"
    if scope:
        return  # The saga around it is still open; its end suspends it, and what finishes it later begins here again.
    yield from released(live, f"quarantined: {live.frozen}")


def released(live: LiveSaga, reason: str) -> Generator[Op, Any, None]:
    """Give the saga up with work left."""
    with live.lock:
        ticket = live.emit(r.Released, durable=True, reason=reason)
        live.closed = True
    yield from live.committed(ticket)


def _end(live: LiveSaga, scope: int) -> Ticket | None:
    if scope:
        return live.emit(r.ScopeEnded, scope=scope, outcome="rolled_back")
    live.closed = True
    fields: dict[str, Any] = {"outcome": "rolled_back", "clean": _is_clean(live), "cause": live.view.cause}
    return live.emit(r.SagaEnded, durable=live.end_waits, **fields)


def finish_leftovers(live: LiveSaga, budget: Budget) -> Generator[Op, Any, None]:
    """Go on with an ended saga that this process has claimed: its work items, then its end again."""
    yield from unwind_leftovers(live, budget)
    if live.frozen is not None:
        yield from released(live, f"quarantined: {live.frozen}")
        return
    with live.lock:
        outcome = live.view.state.value
        clean = outcome == "rolled_back" and _is_clean(live)
        ticket = live.emit(r.SagaEnded, durable=live.end_waits, outcome=outcome, clean=clean, cause=live.view.cause)
        live.closed = True
    yield from live.committed(ticket)


def _is_clean(live: LiveSaga) -> bool:
    gone = {StepState.ABSENT, StepState.COMPENSATED}
    return all(step.read_only or step.state in gone for step in live.view.steps.values())


def unwind_leftovers(live: LiveSaga, budget: Budget) -> Generator[Op, Any, None]:
    """Resolve the work items of an ended saga, newest intent first."""
    for step in reversed(leftovers(live.view)):
        if next_action(step) is not Action.NONE and is_frozen(live):
            return
        yield from resolve(live, step, budget)
