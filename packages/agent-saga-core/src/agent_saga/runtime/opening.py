"""How a saga begins: new, resumed, replayed after its commit, or as a new incarnation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_saga.errors import (
    AlreadyCommitted,
    GateRefused,
    InvariantViolation,
    OwnerReplaced,
    RecordsPruned,
    SagaBusy,
    UsageError,
)
from agent_saga.machine.states import SagaState, StepState
from agent_saga.model import records as r
from agent_saga.model.ids import make_saga_id
from agent_saga.model.values import is_name
from agent_saga.runtime.clock import clock
from agent_saga.runtime.compensate import Budget
from agent_saga.runtime.ending import release
from agent_saga.runtime.halts import check_drain, quarantined
from agent_saga.runtime.live import LiveSaga
from agent_saga.runtime.ops import Sleep
from agent_saga.runtime.recover import recover_one
from agent_saga.runtime.rollback import unwind
from agent_saga.store.port import Committed, Stale, Taken
from agent_saga.store.reader import load
from agent_saga.store.sealing import check_may_open, check_readable

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Limits
    from agent_saga.runtime.writer import Writer
    from agent_saga.store.port import StoredRow

BUSY_POLL_S: Final = 0.05
SCOPE_BUDGET_S: Final = 60.0
SECONDS_MAX: Final = 100 * 365 * 86_400.0
_CHOICES: Final = {
    "on_crash": ("roll_back", "resume"),
    "on_divergence": ("roll_back", "keep"),
    "on_busy": ("fail", "wait"),
}
_LOOK_AGAIN: Final = "look again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a transaction asks for. See `AgentKit.transaction`."""

    name: str
    limits: Limits
    key: str | None = None
    resume_id: str | None = None
    on_crash: Literal["roll_back", "resume"] = "roll_back"
    on_divergence: Literal["roll_back", "keep"] = "roll_back"
    deadline_s: float | None = None
    tags: tuple[str, ...] = ()


def check_opening(name: object, key: object, tags: tuple[object, ...], **choices: str) -> None:
    """Check what a transaction is called and what it chooses.

    Raises:
        UsageError: it cannot be recorded, or is no choice.
    """
    for what, text in (("name", name), ("key", key), *(("tag", tag) for tag in tags)):
        if not (is_name(text) or (what == "key" and text is None)):
            raise UsageError(f"the {what} of a saga must be a text that can be stored, not {text!r:.80}")
    for option, choice in choices.items():
        if choice not in _CHOICES[option]:
            raise UsageError(f"{option}={choice!r} is none of {', '.join(map(repr, _CHOICES[option]))}")


def check_times(**times: float | None) -> None:
    """Check the times of a transaction.

    Raises:
        UsageError: one is negative, no number, or endless.
    """
    for option, seconds in times.items():
        if seconds is None and option == "deadline_s":
            continue
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= SECONDS_MAX:
            raise UsageError(f"{option}={seconds!r} must be a number of seconds from 0 to {SECONDS_MAX:.0f}")


def open_saga(writer: Writer, opening: Opening) -> Generator[Op, Any, LiveSaga]:
    """Open a saga, or take up the one that has its key.

    Raises:
        SagaBusy: another live owner holds the key.
        GateRefused: the log is drained of new sagas, or the saga is quarantined; nothing was started.
        LogFailed: the log could not be written.
    """
    if opening.resume_id is not None:
        return (yield from _resume_by_id(writer, opening.resume_id))
    if opening.key is None:
        check_drain(writer.store, opening.name, opening.tags)
        check_may_open(writer.store)
        return LiveSaga.opening(writer, _record(opening, incarnation=1))
    until = clock().monotonic() + opening.limits.busy_wait_s
    while True:
        live = yield from _take_up(writer, opening)
        if isinstance(live, LiveSaga):
            return live
        if live == _LOOK_AGAIN:
            continue
        if opening.limits.on_busy == "fail" or clock().monotonic() >= until:
            raise SagaBusy(f"the key {opening.key!r} is held by {live}; nothing was started here")
        yield Sleep(BUSY_POLL_S)


def _resume_by_id(writer: Writer, saga_id: str) -> Generator[Op, Any, LiveSaga]:
    row = writer.store.row(saga_id)
    if row is None:
        raise UsageError(f"there is no saga {saga_id!r} in {writer.store.location}")
    if row.row.state not in {SagaState.OPEN, SagaState.SUSPENDED, SagaState.ABANDONED}:
        raise UsageError(f"saga {saga_id!r} is {row.row.state} and cannot be resumed")
    _check_not_frozen(writer, row)
    dead = None if row.row.owner is None else writer.store.prove_dead(row.row.owner)
    if row.row.owner is not None and dead is None:
        raise SagaBusy(f"saga {saga_id!r} has a live owner; nothing was started here")
    try:
        live = yield from resume_saga(writer, saga_id)
    finally:
        if dead is not None:
            dead.close()
    if isinstance(live, str):
        raise SagaBusy(f"{live} cannot be resumed here; nothing was started")
    return live


def _check_not_frozen(writer: Writer, row: StoredRow) -> None:
    """A quarantine freezes a saga as it is: nobody resumes it, rolls it back or begins another one in its place."""
    reason = quarantined(writer.store, row.saga_id)
    if reason is not None:
        raise GateRefused(
            f"saga {row.saga_id!r} is quarantined ({reason}) and stays as it is; nothing was started. "
            f"Open it again after `agent-saga lift saga:{row.saga_id}`"
        )


def _record(opening: Opening, *, incarnation: int) -> r.SagaOpened:
    now = clock().time_ns()
    return r.SagaOpened(
        v=r.FORMAT,
        saga=make_saga_id(now, clock().entropy(10)),
        n=0,
        pos=0,
        at=now,
        name=opening.name,
        owner="",
        epoch=1,
        key=opening.key,
        incarnation=incarnation,
        on_crash=opening.on_crash,
        on_divergence=opening.on_divergence,
        deadline_at=None if opening.deadline_s is None else now + int(opening.deadline_s * 1e9),
        suspend_ttl_s=opening.limits.suspend_ttl_s,
        rollback_timeout_s=opening.limits.rollback_timeout_s,
        tags=list(opening.tags),
    )


def _take_up(writer: Writer, opening: Opening) -> Generator[Op, Any, LiveSaga | str]:
    """Return the saga to work in, or who holds the key."""
    row = writer.store.row_of_key(opening.key or "")
    if row is None:
        return (yield from _open_new(writer, opening, incarnation=1))
    if row.row.state == SagaState.COMMITTED and row.row.owner is None:
        return _replaying(writer, row)
    if row.leaf is None:
        _check_not_frozen(writer, row)
    if row.row.owner is not None:
        return (yield from _take_over_from_owner(writer, row))
    if row.row.state == SagaState.ROLLED_BACK:
        return (yield from _open_new(writer, opening, incarnation=row.row.incarnation + 1))
    if _goes_on(row):
        return (yield from resume_saga(writer, row.saga_id))
    return (yield from _finish(writer, row))


def _open_new(writer: Writer, opening: Opening, *, incarnation: int) -> Generator[Op, Any, LiveSaga | str]:
    check_drain(writer.store, opening.name, opening.tags)
    check_may_open(writer.store)
    record = _record(opening, incarnation=incarnation)
    live = LiveSaga.opening(writer, record)
    ticket = live.write_opening()
    try:
        verdict = yield live.wait_for(ticket)
    except BaseException:  # The caller was cancelled, and nobody gets the saga that now holds the key.
        release(live, "its opening was interrupted")
        raise
    match verdict:
        case Committed():
            return live
        case Taken(saga_id):
            return f"saga {saga_id!r}, which was opened meanwhile"
        case Stale(reason):
            return reason
        case _:
            raise InvariantViolation(f"the store answered {verdict!r}")


def _replaying(writer: Writer, row: StoredRow) -> LiveSaga | str:
    check_readable(writer.store, row.saga_id, what="its results cannot be replayed, and nothing was started")
    try:
        loaded = load(writer.store, row.saga_id)
    except RecordsPruned as error:
        raise AlreadyCommitted(
            f"saga {row.saga_id!r} with the key {row.row.key!r} has committed, and its records were pruned: its "
            "results cannot be replayed. Nothing was started here; take another key for new work"
        ) from error
    if loaded is None:
        return f"saga {row.saga_id!r}, which is not in the log"
    live = LiveSaga(writer, loaded.view, count=loaded.row.count, epoch=loaded.view.epoch)
    live.committed_key = True
    live.view.state = SagaState.OPEN  # Only here: calls are answered from the log, and nothing is appended.
    live.unclaimed = {s.no for s in live.view.steps.values() if not s.read_only and s.state is StepState.STANDING}
    return live


def _take_over_from_owner(writer: Writer, row: StoredRow) -> Generator[Op, Any, LiveSaga | str]:
    """The saga with this key has an owner: take it over if that one is dead, holding the proof while it is claimed."""
    dead = writer.store.prove_dead(row.row.owner or "")
    if dead is None:
        return f"saga {row.saga_id!r} of owner {row.row.owner!r}, which is alive"
    try:
        if _goes_on(row):
            return (yield from resume_saga(writer, row.saga_id))
    finally:
        dead.close()
    return (yield from _finish(writer, row))  # It asks for the proof itself, and only one at a time is given.


def _goes_on(row: StoredRow) -> bool:
    """Whether a saga without a living owner is resumed; else its rollback, or what is left of it, is finished."""
    lost = row.row.state in {SagaState.OPEN, SagaState.ABANDONED}
    return row.row.state == SagaState.SUSPENDED or (lost and row.row.on_crash == "resume")


def _finish(writer: Writer, row: StoredRow) -> Generator[Op, Any, str]:
    try:
        yield from recover_one(writer, row.saga_id)
    except OwnerReplaced:
        return f"saga {row.saga_id!r}, which another process recovers"
    return _LOOK_AGAIN


def resume_saga(writer: Writer, saga_id: str) -> Generator[Op, Any, LiveSaga | str]:
    """Claim a saga that has no living owner, in order to go on with it."""
    check_readable(writer.store, saga_id, what="it was not resumed")
    loaded = load(writer.store, saga_id)
    if loaded is None:
        return f"saga {saga_id!r}, which is not in the log"
    live = LiveSaga(writer, loaded.view, count=loaded.row.count, epoch=loaded.view.epoch + 1)
    live.resumed = True
    ticket = live.emit(r.Claimed, durable=True, owner=writer.store.owner(), epoch=live.epoch, purpose="resume")
    try:
        yield from live.committed(ticket)
        yield from _finish_scopes(live)
    except OwnerReplaced:
        return f"saga {saga_id!r}, which another process took up"
    except BaseException:
        release(live, "its resume was interrupted")
        raise
    standing = {StepState.STANDING, StepState.IN_DOUBT}
    steps = [step for step in live.view.steps.values() if not live.view.rolled_back(step)]
    live.unclaimed = {step.no for step in steps if not step.read_only and step.state in standing}
    return live


def _finish_scopes(live: LiveSaga) -> Generator[Op, Any, None]:
    """Finish rollbacks of nested scopes that the owner's death cut short, innermost first."""
    for no in sorted(live.view.rolling, reverse=True):
        if no and live.view.scopes[no].outcome != "rolled_back":
            yield from unwind(live, no, Budget.of(live.view.rollback_timeout_s or SCOPE_BUDGET_S))
