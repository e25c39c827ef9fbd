"""Answers that arrive after their saga gave the call up: recorded, and compensated where the saga went on without."""

from __future__ import annotations

import asyncio
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import LogFailed, OwnerReplaced, SagaError
from agent_saga.machine.states import SagaState
from agent_saga.model import records as r
from agent_saga.model.ids import make_saga_id
from agent_saga.runtime.clock import clock
from agent_saga.runtime.compensate import Budget
from agent_saga.runtime.ending import release
from agent_saga.runtime.live import Amendment, LiveSaga
from agent_saga.runtime.ops import Sleep, adrive, drive, running_loop, start_on_own_loop
from agent_saga.runtime.rollback import finish_leftovers
from agent_saga.runtime.settle import resolve
from agent_saga.store.reader import load

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from concurrent.futures import Future

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.live import Flight
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.writer import Writer
    from agent_saga.store.port import LogStore

LATE_BUDGET_S: Final = 60.0
CLAIM_TRIES: Final = 20
PATIENT_TRIES: Final = 10
"""After so many tries an answer is recorded beside an amendment that is still at work."""
LOOP_POLL_S: Final = 0.2
BUSY_S: Final = 0.05
"""The first wait for a saga that another process works on; each later one is longer by as much."""
_tasks: set[asyncio.Task[None] | Future[None]] = set()


@dataclass(slots=True)
class _Answer:
    """A late answer on its way into the log.

    Attributes:
        told: the saga in whose chain it is recorded, or is about to be; who goes on with it records it no second time.
    """

    live: LiveSaga
    step: int
    values: dict[str, str]
    fields: dict[str, Any]
    told: str = ""


def arrive(saga: Saga, flight: Flight, values: dict[str, str], fields: dict[str, Any]) -> None:
    """Record a late outcome, in the saga while this process owns it, else by claiming or amending it.

    Nothing is raised: the caller of the tool is gone, or gets the tool's own answer.
    """
    live = saga.live
    fields = {name: value for name, value in fields.items() if name != "assumed"}
    try:
        if _in_chain(live, flight, values, fields):
            return
        live.land(flight)
        answer = _Answer(live, flight.step, values, fields)
        loop = running_loop()
        if loop is None:
            drive(_after_end(answer))
        elif loop is saga.loop:
            coroutine = adrive(_after_end(answer))
            task = loop.create_task(coroutine)
            _tasks.add(task)
            task.add_done_callback(_finished)
            _outlive(loop, task, coroutine, lambda: _after_end(answer))
        else:  # A loop made for this call (`asyncio.run` in a thread) ends with it, and cancels what else it runs.
            start_on_own_loop(adrive(_after_end(answer))).add_done_callback(_finished)
    except (SagaError, OSError) as error:
        _warn(live, flight.step, error)


def _in_chain(live: LiveSaga, flight: Flight, values: dict[str, str], fields: dict[str, Any]) -> bool:
    """Append to the saga's own chain while this process may; True when that is done."""
    with live.lock:
        released = live.view.state in {SagaState.SUSPENDED, SagaState.ABANDONED}
        if live.replaced or (live.closed and not released):
            return False
        attempt = live.view.steps[flight.step].attempt
        ticket = live.emit(r.LateOutcome, values, step=flight.step, attempt=attempt, **fields)
        live.landings += fields["state"] != "failed"  # One in doubt can be settled only now, when it runs no more.
        live.revived.append(flight.step)
        live.land(flight)
    try:
        live.commit_now(ticket)
    except OwnerReplaced:  # What landed is known here only: the new owner is told by a claim or an amendment.
        return False
    except LogFailed as error:
        _warn(live, flight.step, error)
    return True


def _outlive(
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Task[None],
    coroutine: Coroutine[Any, Any, None],
    again: Callable[[], Generator[Op, Any, None]],
) -> None:
    """Go on in a thread of ours when the loop ends before its task does: a closing loop may not even begin one."""
    ended = threading.Event()
    task.add_done_callback(lambda _task: ended.set())

    def watch() -> None:
        while not ended.wait(LOOP_POLL_S) and not loop.is_closed():
            pass
        if not task.done() or task.cancelled():
            _tasks.discard(task)
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - it is not lost: see below.
            try:
                coroutine.close()  # It gives back what it had claimed.
                drive(again())
            except (SagaError, OSError) as error:
                _warn_text(f"a late outcome could not be settled: {error}")

    threading.Thread(target=watch, name="agent-saga-late", daemon=True).start()


def _finished(task: asyncio.Task[None] | Future[None]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _warn_text(f"a late outcome could not be settled: {error}")


def _warn(live: LiveSaga, step: int, error: BaseException) -> None:
    _warn_text(
        f"saga {live.view.id!r}, step {step}: the answer of a call that was given up arrived, and could not be "
        f"recorded ({error}); the step stays in doubt: agent-saga sagas --needs-human"
    )


def _warn_text(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _after_end(answer: _Answer) -> Generator[Op, Any, None]:
    """The saga has ended, or its new owner is at it: claim it again when it is free, or amend it when it is sealed.

    The answer is recorded once. Who claims that saga, or that amendment, goes on with it; an amendment whose target
    was amended by others meanwhile looks again. Driven once more after it was interrupted, it goes on where it was.
    """
    live, no = answer.live, answer.step
    for tried in range(CLAIM_TRIES):
        again = _taken_up(answer, patient=tried < PATIENT_TRIES)
        if again is None and answer.told:
            return
        if again is None:
            yield Sleep(BUSY_S * (tried + 1))
            continue
        again.binders.update(live.binders)
        again.bound_objects.update(live.bound_objects)
        step, unknown = again.view.steps[no], False
        try:
            if not answer.told:
                attempt = step.attempt
                ticket = again.emit(
                    r.LateOutcome, answer.values, durable=True, step=no, attempt=attempt, **answer.fields
                )
                answer.told, unknown = again.id, True  # Whoever stops waiting for the commit does not take it back.
                yield from again.committed(ticket)
                unknown = False
            yield from _settle_late(again, step)
        except OwnerReplaced:  # A recoverer was faster; look again.
            if answer.told == live.id and not unknown:
                return
            answer.told = "" if unknown else answer.told
            yield Sleep(BUSY_S * (tried + 1))
            continue
        except BaseException:  # This process lives on: without a word nobody else could finish the saga.
            release(again, "the settlement of a late answer was interrupted")
            raise
        return
    if not answer.told:
        _warn_text(
            f"saga {live.view.id!r}, step {no}: its answer ({answer.fields['state']}) came when another process owned "
            "the saga, and could not be recorded: look at it when that process is done, agent-saga show"
        )


def _taken_up(answer: _Answer, *, patient: bool) -> LiveSaga | None:
    """Return what goes on with an answer now; None when another process is at it, or nothing is left to do."""
    live = answer.live
    if not answer.told:
        return _reopened(live, patient=patient)
    if answer.told != live.id:
        return gone_on_with(live.writer, live.view.id, answer.told)
    row = live.writer.store.row(live.id)
    return None if row is None or row.leaf is not None else _reopened(live, patient=patient)


def _settle_late(again: LiveSaga, step: StepView) -> Generator[Op, Any, None]:
    budget = Budget.of(LATE_BUDGET_S)
    if isinstance(again, Amendment):
        yield from resolve(again, step, budget)
        yield from again.committed(again.emit(r.SagaEnded, durable=True, outcome="committed"))
    else:
        yield from finish_leftovers(again, budget)


def _reopened(live: LiveSaga, *, patient: bool) -> LiveSaga | None:
    """Return what may record the answer now, or None while another process is at the saga.

    Args:
        live: the saga as it was when the call was given up.
        patient: wait for other amendments to end: one that is overtaken by ours may have to repeat a compensation.
    """
    store = live.writer.store
    loaded = load(store, live.view.id)
    if loaded is None or (not loaded.view.ended):
        return None
    if loaded.row.leaf is not None:
        if patient and is_being_amended(store, live.view.id):
            return None
        return amendment(live.writer, loaded.view, loaded.row.count, loaded.row.amendments, name="late_outcome")
    if loaded.view.owner is not None:
        return None
    again = LiveSaga(live.writer, loaded.view, count=loaded.row.count, epoch=loaded.view.epoch + 1)
    again.emit(r.Claimed, hold=True, owner=store.owner(), epoch=again.epoch, purpose="late")
    return again


def gone_on_with(writer: Writer, saga_id: str, amendment_id: str) -> Amendment | None:
    """Claim an amendment of this process anew, on what is true of the amended saga now: others amended it meanwhile.

    None when it never reached the log, when another process owns it, or when it has ended. One that was given up, when
    its work was interrupted, is claimed like one that is still owned here.
    """
    store = writer.store
    own, target = load(store, amendment_id), load(store, saga_id)
    if own is None or target is None or own.view.ended or own.view.owner not in {None, store.owner()}:
        return None
    again = amendment(writer, target.view, target.row.count, target.row.amendments, name=own.view.name)
    again.adopt(own.view, own.row.count)
    again.emit(r.Claimed, hold=True, owner=store.owner(), epoch=again.epoch, purpose="late")
    return again


def is_being_amended(store: LogStore, saga_id: str) -> bool:
    """Tell whether a living process is at an amendment of a sealed saga: until that ends, it owns what is left."""
    owners = {row.row.owner for other in store.amendments(saga_id) if (row := store.row(other)) is not None}
    for owner in owners - {None}:
        dead = store.prove_dead(owner or "")
        if dead is None:
            return True
        dead.close()
    return False


def amendment(
    live_writer: Any, target: Any, count: int, amendments: int, *, name: str, by: str | None = None
) -> Amendment:
    """Return a new saga that amends `target`; its first record waits for the next one."""
    now = clock().time_ns()
    opened = r.SagaOpened(
        v=r.FORMAT,
        saga=make_saga_id(now, clock().entropy(10)),
        n=0,
        pos=0,
        at=now,
        name=name,
        owner=live_writer.store.owner(),
        epoch=1,
        amends=target.id,
        by=by,
    )
    return Amendment(live_writer, target, opened, target_count=count, amendments=amendments)
