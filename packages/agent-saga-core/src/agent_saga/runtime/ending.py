"""Every way out of a scope: commit, rollback, suspension; and what the caller is told."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from agent_saga.errors import (
    LogFailed,
    OwnerReplaced,
    RollbackIncomplete,
    SagaClosed,
    SagaDiverged,
    SagaRolledBack,
    SagaSuspended,
)
from agent_saga.machine.plan import unresolved
from agent_saga.machine.report import Outcome, report_of, step_reason
from agent_saga.machine.states import SagaState, StepState
from agent_saga.model import records as r
from agent_saga.runtime.clock import clock
from agent_saga.runtime.compensate import Budget
from agent_saga.runtime.halts import quarantined
from agent_saga.runtime.rollback import drain, roll_back, withdraw_approvals
from agent_saga.runtime.settle import resolve, settle

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga


def end(saga: Saga, error: BaseException | None) -> Generator[Op, Any, None]:
    """End a scope; `saga.report` says what is true afterwards.

    Args:
        saga: the saga or nested scope.
        error: what left the scope, or None.

    Raises:
        SagaRolledBack: the scope ended normally, and had to be rolled back all the same.
        RollbackIncomplete: the rollback left something.
        SagaSuspended: the saga is quarantined.
        LogFailed, OwnerReplaced: the end could not be recorded; another process finishes the saga.
    """
    live = saga.live
    try:
        _check_alive(live)
        if saga.scope and live.is_ending_around(saga.scope):
            _leave_to_outer(saga, error)
        elif live.committed_key:
            saga.report = report_of(live.view, scope=saga.scope, outcome="committed")
        elif error is not None and _only_pauses(live, error):
            yield from _suspend(saga, cause_of(error))
        elif (frozen := quarantined(live.writer.store, live.view.id)) is not None:
            yield from _suspend(saga, f"quarantined: {frozen}")
            _tell_frozen(saga, frozen, error)
        elif error is not None:
            yield from _roll_back(saga, cause_of(error), error)
        elif saga.rollback_reason is not None:
            yield from _roll_back(saga, saga.rollback_reason, None, asked=True)
        else:
            yield from _commit(saga)
    except (LogFailed, OwnerReplaced, SagaClosed) as failure:
        if error is None or failure is error:
            raise
        if not isinstance(error, Exception) or isinstance(error, BaseExceptionGroup):
            _add_note(error, f"agent-saga: {failure}")  # Cancellation and Ctrl-C always leave as themselves.
            release_if_open(saga, "its scope could not be ended")
            return
        failure.__cause__ = failure.__cause__ or error
        raise
    finally:
        live.open_scopes.discard(saga.scope)


def _only_pauses(live: LiveSaga, error: BaseException) -> bool:
    """Tell whether what leaves a scope is nothing but a suspension, or a framework's pause that came through a step."""
    if isinstance(error, BaseExceptionGroup):
        return all(_only_pauses(live, member) for member in error.exceptions)
    return isinstance(error, SagaSuspended) or any(error is pause for pause in live.pauses)


def _tell_frozen(saga: Saga, reason: str, error: BaseException | None) -> None:
    """Say that the saga has neither committed nor rolled back: whoever reads on must not think that it has ended."""
    told = (
        f"saga {saga.id!r} is quarantined ({reason}): it was neither committed nor rolled back, and stays as it is "
        f"until `agent-saga lift saga:{saga.id}`"
    )
    if error is not None:
        _add_note(error, f"agent-saga: {told}")
    elif saga.scope == 0:
        raise SagaSuspended(told, saga_id=saga.id)


def _leave_to_outer(saga: Saga, error: BaseException | None) -> None:
    """A nested scope ends during or after the end of a scope around it, which has dealt, or deals, with its steps."""
    live = saga.live
    if live.view.ended:
        outcome: Outcome = "rolled_back" if live.view.is_rolling(saga.scope) else "committed"
        saga.report = report_of(live.view, scope=saga.scope, outcome=outcome, notes=live.notes)
    told = f"saga {saga.id!r}: this scope ended later than one around it, which is {live.view.state.value}"
    if error is None:
        raise SagaClosed(f"{told}; that one decides about its steps")
    _add_note(error, f"agent-saga: {told}")


def _add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception that is not ours: it may refuse attributes, and must leave all the same."""
    with contextlib.suppress(Exception):
        error.add_note(note)


def cause_of(error: BaseException) -> str:
    """Return an exception as the cause of a rollback, in one line."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the exception's own __str__ fails; its type is still known.
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _check_alive(live: LiveSaga) -> None:
    if live.writer.failed is not None:
        raise LogFailed(f"saga {live.id!r} could not be ended: {live.writer.failed}") from live.writer.failed
    if live.replaced:
        raise OwnerReplaced(f"saga {live.id!r} is owned by another process now, which finishes it")
    if live.view.state is SagaState.ABANDONED:
        raise SagaClosed(
            f"saga {live.id!r} was abandoned ({live.view.cause}); recovery rolls it back: "
            f"agent-saga recover --saga {live.id}"
        )


# -- commit -------------------------------------------------------------------------------------------------------


def _commit(saga: Saga) -> Generator[Op, Any, None]:
    live, scope = saga.live, saga.scope
    budget = Budget.of(saga.limits.rollback_timeout_s)
    with live.lock:
        live.closing.add(scope)
        live.ending.add(scope)
        undecided = live.open_inside(scope)
    if undecided:
        names = ", ".join(repr(live.view.scopes[no].name) for no in undecided)
        yield from _roll_back(saga, f"a scope inside it is still open, or was lost: {names}", None)
        return
    yield from drain(live, scope, saga.limits.drain_s)
    for step in live.view.within(scope):
        if live.view.rolled_back(step):  # What the rollback of a nested scope left, or what landed after it.
            yield from resolve(live, step, budget)
        elif step.state is StepState.IN_DOUBT:
            yield from settle(live, step, budget)
    if live.frozen is not None and (frozen := quarantined(live.writer.store, live.view.id)) is not None:
        yield from _suspend(saga, f"quarantined: {frozen}")  # While a step in doubt was settled.
        _tell_frozen(saga, frozen, None)
        return
    if live.paused:
        yield from _suspend(saga, "; ".join(live.paused.values()))
        return
    reason, kind = _why_not(saga)
    if reason is not None:
        yield from _roll_back(saga, reason, None, kind=kind)
        return
    yield from _committed(saga)


def _committed(saga: Saga) -> Generator[Op, Any, None]:
    live, scope = saga.live, saga.scope
    if scope:
        if live.view.scopes[scope].outcome is None:
            live.emit(r.ScopeEnded, scope=scope, outcome="committed", hold=True)
        saga.report = report_of(live.view, scope=scope, outcome="committed")
        return
    effects = any(not step.read_only for step in live.view.steps.values())
    with live.lock:
        withdraw_approvals(live)
        ticket = live.emit(r.SagaEnded, durable=effects or live.in_log, outcome="committed")
        live.closed = True
    yield from live.committed(ticket)
    saga.report = report_of(live.view)


def _why_not(saga: Saga) -> tuple[str | None, type[SagaRolledBack]]:
    """Return why a scope that ended normally may not commit, in words for people, or None."""
    live, scope = saga.live, saga.scope
    if live.doomed is not None:
        return live.doomed, SagaRolledBack
    failed = unresolved(live.view, scope)
    if failed:
        return _swallowed(failed), SagaRolledBack
    doubtful = [step for step in live.view.within(scope) if _is_unsettled(live, step)]
    if doubtful:
        named = ", ".join(
            f"{step.tool} (step {step.no}: {live.notes.get(step.no) or step_reason(step)})" for step in doubtful
        )
        return f"in doubt and not to be settled: {named}", SagaRolledBack
    left = [live.view.steps[no] for no in sorted(live.unclaimed) if live.view.steps[no].state is StepState.STANDING]
    if scope == 0 and left and live.view.on_divergence != "keep":
        named = ", ".join(f"{step.tool} (step {step.no})" for step in left)
        return f"the resumed run ended without claiming what stands: {named}", SagaDiverged
    return None, SagaRolledBack


def _is_unsettled(live: LiveSaga, step: StepView) -> bool:
    """Tell whether a step is in doubt, or was to be settled by its compensation and that did not work.

    What a nested scope's own rollback left was told to its caller, who went on.
    """
    if step.state in {StepState.IN_DOUBT, StepState.COMPENSATING}:
        return True
    settling = {StepState.COMPENSATION_FAILED, StepState.CONFLICTED}
    return step.state in settling and not live.view.rolled_back(step)


def _swallowed(failed: list[StepView]) -> str:
    named = ", ".join(f"{step.tool} (step {step.no}: {step.error_type or 'failed'})" for step in failed)
    return (
        f"failed, and its error was swallowed: {named}. Let the model repeat the call with the same arguments, declare "
        "resolves='same_tool', or call saga.waive(step)"
    )


# -- rollback -----------------------------------------------------------------------------------------------------


def _roll_back(
    saga: Saga,
    cause: str,
    error: BaseException | None,
    *,
    asked: bool = False,
    kind: type[SagaRolledBack] = SagaRolledBack,
) -> Generator[Op, Any, None]:
    live, scope = saga.live, saga.scope
    budget = Budget.of(saga.limits.rollback_timeout_s)
    live.ending.add(scope)
    yield from roll_back(live, scope, cause, budget, drain_s=saga.limits.drain_s)
    outcome: Outcome = "rolled_back" if live.frozen is None else "suspended"
    saga.report = report_of(live.view, scope=scope, outcome=outcome, cause=cause, notes=live.notes)
    _tell(saga, cause, error, asked=asked, kind=kind)


def _tell(saga: Saga, cause: str, error: BaseException | None, *, asked: bool, kind: type[SagaRolledBack]) -> None:
    """Say how the rollback ended: a note on what leaves the scope, or an error of ours."""
    report = saga.report
    if report is None:
        return
    outcome = "rolled back, clean" if report.clean else f"rolled back, partial: {len(report.left)} left"
    if saga.live.frozen is not None:
        outcome = f"quarantined in the middle of its rollback: {len(report.left)} left until it is lifted"
    note = f"agent-saga: saga {saga.id} {outcome}"
    if error is not None:
        _add_note(error, note if report.clean else f"{note}\n{report.format_text()}")
        if report.clean or not isinstance(error, Exception) or isinstance(error, BaseExceptionGroup):
            return
        raise RollbackIncomplete(_incomplete(saga, cause), report) from error
    if not report.clean and report.left:
        raise RollbackIncomplete(_incomplete(saga, cause), report)
    if not asked:
        raise kind(f"saga {saga.id!r} was rolled back, clean: {cause}", report)


def _incomplete(saga: Saga, cause: str) -> str:
    text = saga.report.format_text() if saga.report is not None else ""
    if saga.live.frozen is not None:
        return (
            f"saga {saga.id!r} was quarantined ({saga.live.frozen}) while it rolled back; cause: {cause}\n{text}\n"
            f"nothing more is compensated until: agent-saga lift saga:{saga.id} --by NAME, then agent-saga recover"
        )
    return (
        f"saga {saga.id!r} was rolled back only in part; cause: {cause}\n{text}\n"
        "next: agent-saga recover (tries again), or agent-saga settle (a human's word)"
    )


# -- suspension and release ---------------------------------------------------------------------------------------


def _suspend(saga: Saga, reason: str) -> Generator[Op, Any, None]:
    live = saga.live
    if saga.scope:
        return  # The scope stays open within its saga, which is suspended as a whole.
    yield from drain(live, 0, saga.limits.drain_s)
    with live.lock:
        expires_at = clock().time_ns() + int(saga.limits.suspend_ttl_s * 1e9)
        ticket = live.emit(r.Suspended, durable=True, reason=reason, expires_at=expires_at)
        live.closed = True
    yield from live.committed(ticket)
    saga.report = report_of(live.view)


def release_if_open(saga: Saga, reason: str) -> None:
    """Give the saga up when its scope failed to end it; a nested scope leaves that to the outer one."""
    if saga.scope == 0:
        release(saga.live, reason)


def release(live: LiveSaga, reason: str) -> None:
    """Give a saga up for recovery, on a way out where nothing may be awaited. Nothing is raised."""
    with live.lock:
        unwritable = live.replaced or live.writer.failed is not None
        if live.closed or live.committed_key or unwritable or not live.in_log:
            live.closed = True
            return
        if live.flights:
            # Whoever recovers must not meet a call that still runs here: no new step now, released when the last lands.
            live.doomed = live.doomed or reason
            live.when_idle = lambda: release(live, reason)
            return
        kind = r.Abandoned if live.view.state is SagaState.OPEN else r.Released
        ticket = live.emit(kind, reason=reason)
        live.closed = True
    try:
        live.commit_now(ticket)
    except (LogFailed, OwnerReplaced):
        return
