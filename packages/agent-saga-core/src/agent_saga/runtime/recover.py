"""Recovery: finish what dead, lost and overdue owners left, from the log alone, with the same fold and plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_saga.errors import CorruptLog, KeyUnavailable, OwnerReplaced
from agent_saga.machine.plan import leftovers, needs_human
from agent_saga.machine.report import report_of
from agent_saga.machine.states import SagaState, StepState
from agent_saga.model import records as r
from agent_saga.runtime.clock import clock
from agent_saga.runtime.compensate import Budget
from agent_saga.runtime.ending import release
from agent_saga.runtime.halts import quarantined
from agent_saga.runtime.late import amendment, gone_on_with, is_being_amended
from agent_saga.runtime.live import LiveSaga
from agent_saga.runtime.rollback import finish_leftovers, roll_back, unwind, unwind_leftovers
from agent_saga.runtime.settle import why_stuck
from agent_saga.store.port import Query
from agent_saga.store.reader import load
from agent_saga.store.sealing import check_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.model.report import RollbackReport
    from agent_saga.runtime.live import Amendment
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.writer import Ticket, Writer
    from agent_saga.store.port import LogStore, StoredRow
    from agent_saga.store.reader import Loaded

RECOVERY_BUDGET_S: Final = 300.0
TOLD_TOGETHER: Final = 16
"""So many sagas share the wait for the device at their end."""
Why = Literal["live", "quarantined", "suspended", "resumable", "later", "recover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A work item after recovery.

    Attributes:
        human: no retry can settle it.
        reason: why it is left.
    """

    saga_id: str
    step: int
    tool: str
    state: str
    human: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What recovery did with one saga.

    Attributes:
        action: `recovered`, or why it was left alone: `live`, `quarantined`, `suspended`, `resumable`, `later`,
            `raced`, `stuck` (what is left needs a human, or a handler that is not loaded here), `damaged`, `locked` (it
            is encrypted under a key that is not here).
        report: what is true of it now; None when that was not looked at.
        left: what is still to be settled.
        damage: of a `damaged` saga: the record and the reason. Nothing of it was done past the damage.
        locked: of a `locked` saga: which key it needs. Nothing of it was done.
    """

    saga_id: str
    name: str
    action: str
    report: RollbackReport | None = None
    left: tuple[Left, ...] = ()
    damage: CorruptLog | None = None
    locked: KeyUnavailable | None = None


def verdict_on(store: LogStore, row: StoredRow, *, force: bool, now_ns: int) -> Why:
    """Tell what a sweep does with an unsealed saga.

    Args:
        store: the log; asked for a proof of death.
        row: the saga's row.
        force: it was named: backoff and the time to live of a suspension are ignored.
        now_ns: the time.
    """
    owner = row.row.owner
    if owner is not None:
        dead = store.prove_dead(owner)
        if dead is None:
            return "live"
        dead.close()
    if quarantined(store, row.saga_id) is not None:
        return "quarantined"
    if force:
        return "recover"
    if row.row.due_at is not None and row.row.due_at > now_ns:
        return "suspended" if row.row.state == SagaState.SUSPENDED else "later"
    if (
        owner is not None
        and row.row.state == SagaState.OPEN
        and row.row.on_crash == "resume"
        and not _overdue(store, row, now_ns)
    ):
        return "resumable"
    return "recover"


def _overdue(store: LogStore, row: StoredRow, now_ns: int) -> bool:
    """A dead saga that waits for a resume is left alone until its `suspend_ttl_s` is over."""
    loaded = load(store, row.saga_id)
    if loaded is None or loaded.view.suspend_ttl_s is None:
        return True
    return now_ns - loaded.view.changed_at > loaded.view.suspend_ttl_s * 1e9


def sweep(
    writer: Writer, *, saga_id: str | None = None, progress: Callable[[Recovered], None] | None = None
) -> Generator[Op, Any, list[Recovered]]:
    """Recover every saga that needs it, oldest first; costs what is open, not what is stored.

    A damaged saga is reported as that and left as it is; its damage says nothing about the others, whose chains are
    their own, so they are recovered all the same.

    Args:
        writer: the log.
        saga_id: only this one, whatever its backoff or suspension.
        progress: called with each saga that is done, some at a time.

    Durability:
        All that is returned, or given to `progress`, is durable. The ends of some sagas share one wait for the device.

    Raises:
        LookupError: there is no saga `saga_id`.
        CorruptLog: the log is damaged, and not in one saga.
        LogFailed: the log could not be written.
    """
    done: list[Recovered] = []
    told = 0
    writer.enter(done)
    try:
        for row in list(candidates(writer.store, saga_id)):
            try:
                done.append((yield from _look_after(writer, row, named=saga_id is not None)))
            except OwnerReplaced:
                done.append(Recovered(saga_id=row.saga_id, name=row.row.name, action="raced"))
            except KeyUnavailable as error:
                done.append(Recovered(saga_id=row.saga_id, name=row.row.name, action="locked", locked=error))
            except CorruptLog as error:
                if error.saga_id is None:
                    raise
                done.append(Recovered(saga_id=row.saga_id, name=row.row.name, action="damaged", damage=error))
            if len(done) - told == TOLD_TOGETHER:
                told = _tell(writer, done, told, progress)
        _tell(writer, done, told, progress)
    finally:
        writer.leave(done)
    return done


def _tell(writer: Writer, done: list[Recovered], told: int, progress: Callable[[Recovered], None] | None) -> int:
    """Make durable what was done, then say so; returns how many have been told."""
    writer.sync()
    if progress is not None:
        for one in done[told:]:
            progress(one)
    return len(done)


def _look_after(writer: Writer, row: StoredRow, *, named: bool) -> Generator[Op, Any, Recovered]:
    why = verdict_on(writer.store, row, force=named, now_ns=clock().time_ns())
    if why != "recover":
        return _left_alone(writer.store, row, why)
    return (yield from recover_one(writer, row.saga_id, named=named, end_waits=False))


def candidates(store: LogStore, saga_id: str | None) -> Iterator[StoredRow]:
    """Yield the rows that a sweep looks at: unsealed sagas, oldest first, or the one that is named.

    Raises:
        LookupError: there is no saga `saga_id`.
    """
    if saga_id is not None:
        row = store.row(saga_id)
        if row is None:
            raise LookupError(f"there is no saga {saga_id!r} in {store.location}")
        if row.leaf is None or row.row.work:
            yield row
        return
    after = None
    while page := store.rows(Query(unsealed=True, amendments=True, after=after)):
        yield from page
        after = page[-1].saga_id


def _left_alone(store: LogStore, row: StoredRow, why: str) -> Recovered:
    loaded = load(store, row.saga_id) if why == "later" else None
    return Recovered(
        saga_id=row.saga_id,
        name=row.row.name,
        action=why,
        report=report_of(loaded.view) if loaded else None,
        left=_work_left(loaded.view, {}) if loaded else (),
    )


def recover_one(
    writer: Writer, saga_id: str, *, named: bool = True, end_waits: bool = True
) -> Generator[Op, Any, Recovered]:
    """Claim one saga and finish it as far as that can be done now.

    The proof of its owner's death is held until the claim is committed; several recoverers may try, one claims. It need
    not wait for the device: no compensation starts before its own attempt is durable, and with it all before it.
    An ended saga about which nothing can be done here and now is not claimed: sweeps leave no trace in the log then.

    Args:
        writer: the log.
        saga_id: the saga.
        named: somebody asked for this saga; see `why_stuck`.
        end_waits: its end is durable on return; else the caller sees to that before it tells anybody.

    Raises:
        OwnerReplaced: another process was faster.
        KeyUnavailable: it is encrypted, and its key is not here: what is in doubt in it is not guessed.
    """
    store = writer.store
    check_readable(store, saga_id, what="it was not recovered")
    loaded = load(store, saga_id)
    if loaded is None:
        raise LookupError(f"there is no saga {saga_id!r} in {store.location}")
    if loaded.view.ended and loaded.view.owner is None:
        reasons = {step.no: why_stuck(step, named=named) for step in leftovers(loaded.view)}
        if None not in reasons.values():
            notes = {no: why for no, why in reasons.items() if why}
            return _recovered(loaded.view, notes, action="stuck" if reasons else "raced")
    if loaded.row.leaf is not None:
        return (yield from _recover_sealed(writer, loaded))
    dead = store.prove_dead(loaded.view.owner) if loaded.view.owner is not None else None
    if loaded.view.owner is not None and dead is None:
        raise OwnerReplaced(f"saga {saga_id!r}: its owner lives")
    try:
        if loaded.view.amends is not None:
            return (yield from _recover_amendment(writer, loaded))
        live = LiveSaga(writer, loaded.view, count=loaded.row.count, epoch=loaded.view.epoch + 1)
        live.end_waits = end_waits
        ticket = live.emit(r.Claimed, owner=store.owner(), epoch=live.epoch)
        yield from _or_released(live, live.committed(ticket))
    finally:
        if dead is not None:
            dead.close()
    yield from _or_released(live, _finish(live))
    return _recovered(live.view, live.notes, action="recovered" if live.frozen is None else "quarantined")


def _or_released(live: LiveSaga, engine: Generator[Op, Any, None]) -> Generator[Op, Any, None]:
    """Run a part of a recovery, from its claim on; when it is interrupted, give the saga up.

    This process lives on, and may have claimed the saga: without a word nobody else could finish it.
    """
    try:
        yield from engine
    except BaseException:
        release(live, "its recovery was interrupted")
        raise


def _finish(live: LiveSaga) -> Generator[Op, Any, None]:
    """Do what the saga's state asks for: the same code as the live path."""
    budget = Budget.of(max(live.view.rollback_timeout_s or 0.0, RECOVERY_BUDGET_S))
    if live.view.ended:
        yield from finish_leftovers(live, budget)
    elif live.view.state is SagaState.ROLLING_BACK:
        live.closing.add(0)
        yield from unwind(live, 0, budget)
    else:
        yield from roll_back(live, 0, live.view.cause or "its owner died", budget, drain_s=0.0)


def _recover_amendment(writer: Writer, loaded: Loaded) -> Generator[Op, Any, Recovered]:
    """An amendment whose owner died: go on with what it states about its target, and end it."""
    target = load(writer.store, loaded.view.amends or "")
    if target is None:
        raise CorruptLog(f"it amends {loaded.view.amends!r}, which is not in the log", saga_id=loaded.view.id)
    live = amendment(writer, target.view, target.row.count, target.row.amendments, name=loaded.view.name)
    live.adopt(loaded.view, loaded.row.count)
    ticket = live.emit(r.Claimed, durable=True, owner=writer.store.owner(), epoch=live.epoch)
    live = yield from _amended(live, ticket)
    return _recovered(live.view, live.notes)


def _amended(live: Amendment, claim: Ticket | None = None) -> Generator[Op, Any, Amendment]:
    """Bring an amendment to its end, also when others amend its target meanwhile; nobody else could while we live."""
    while True:
        try:
            yield from _or_released(live, _finish_amendment(live, claim))
            return live
        except OwnerReplaced:
            again = gone_on_with(live.writer, live.view.id, live.id)
            if again is None:
                raise
            live, claim = again, None


def _finish_amendment(live: LiveSaga, claim: Ticket | None = None) -> Generator[Op, Any, None]:
    yield from live.committed(claim)
    yield from unwind_leftovers(live, Budget.of(RECOVERY_BUDGET_S))
    yield from live.committed(live.emit(r.SagaEnded, durable=True, outcome="committed"))


def _recover_sealed(writer: Writer, loaded: Loaded) -> Generator[Op, Any, Recovered]:
    """A sealed saga about which something became known later: its chain is closed, so an amendment goes on with it."""
    if is_being_amended(writer.store, loaded.view.id):
        return Recovered(saga_id=loaded.view.id, name=loaded.view.name, action="live")
    live = amendment(writer, loaded.view, loaded.row.count, loaded.row.amendments, name="recover")
    live = yield from _amended(live)
    return _recovered(live.view, live.notes)


def _recovered(view: SagaView, notes: dict[int, str], *, action: str = "recovered") -> Recovered:
    return Recovered(
        saga_id=view.id,
        name=view.name,
        action=action,
        report=report_of(view, notes=notes),
        left=_work_left(view, notes),
    )


def _work_left(view: SagaView, notes: dict[int, str]) -> tuple[Left, ...]:
    return tuple(_left(view.id, step, notes) for step in leftovers(view))


def _left(saga_id: str, step: StepView, notes: dict[int, str]) -> Left:
    return Left(
        saga_id=saga_id,
        step=step.no,
        tool=step.tool,
        state="orphaned" if step.state is StepState.STANDING and step.compensation is None else step.state.value,
        human=needs_human(step),
        reason=notes.get(step.no) or step.reason or step.error_type or "",
    )
