"""The bugs that are planted, each as a context in which it is there: see `twins`."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_saga.errors import GateRefused, LogFailed
from agent_saga.machine import fold, plan, report, row, states
from agent_saga.machine.states import SagaState, StepState
from agent_saga.model import records as r
from agent_saga.model.effects import Allow, Refuse
from agent_saga.runtime import (
    admission,
    compensate,
    ending,
    gate,
    late,
    live,
    recover,
    resources,
    rollback,
    settle,
    step,
)
from agent_saga.runtime.live import LiveSaga
from agent_saga.runtime.registry import function_for
from agent_saga.runtime.writer import Writer
from agent_saga.store import reader, rules
from agent_saga.store.port import Committed
from agent_saga.testing.sim import disk, invariants
from agent_saga.testing.sim.disk import Disk, SimLog
from agent_saga.testing.sim.patching import put, put_item, without
from agent_saga.testing.sim.tools import stage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


_S, _T = SagaState, StepState


def not_durable(kind: type) -> contextlib.AbstractContextManager[None]:
    emit = LiveSaga.emit_locked

    def mutant(self: LiveSaga, make: Any, *args: Any, durable: bool = False, **fields: Any) -> Any:
        made = getattr(make, "func", make)  # Intents are made by a class with some fields filled in.
        return emit(self, make, *args, durable=durable and made is not kind, **fields)

    return put(LiveSaga, emit_locked=mutant)


def log_calls_all_durable_late() -> contextlib.AbstractContextManager[None]:
    commit = Disk.commit
    return put(Disk, commit=lambda self, image, **_: commit(self, image, durable=False))


def failed_counts_as_compensated() -> contextlib.AbstractContextManager[None]:
    return put_item(states.STEP_TRANSITIONS, (_T.COMPENSATING, "compensation_failed"), _T.COMPENSATED)


def failed_is_in_no_bucket() -> contextlib.AbstractContextManager[None]:
    bucket_of = report.bucket_of

    def mutant(view: Any, one: Any) -> str | None:
        return None if one.state is _T.COMPENSATION_FAILED else bucket_of(view, one)

    return put(report, bucket_of=mutant)


def success_is_not_believed() -> contextlib.AbstractContextManager[None]:
    return put_item(states.STEP_TRANSITIONS, (_T.COMPENSATING, "compensation_compensated"), _T.COMPENSATION_FAILED)


def always_again() -> contextlib.AbstractContextManager[None]:
    return put(plan, _recheck=lambda _step, **_: plan.Action.COMPENSATE)


def two_steps_one_key() -> contextlib.AbstractContextManager[None]:
    return put(step, step_id=lambda saga_id, _no: f"{saga_id}:1")


def key_of_the_process() -> contextlib.AbstractContextManager[None]:
    def mutant(saga_id: str, no: int, generation: int) -> str:
        return f"{saga_id}:{no}:c{generation}:p{stage().clock.stream}"

    return put(compensate, compensation_key=mutant)


def same_generation() -> contextlib.AbstractContextManager[None]:
    late_outcome = fold._HANDLERS[r.LateOutcome]  # noqa: SLF001 - the bug is planted there.

    def mutant(view: Any, record: Any, values: Any) -> None:
        late_outcome(view, record, values)
        view.steps[record.step].generation = 1

    return put_item(fold._HANDLERS, r.LateOutcome, mutant)  # noqa: SLF001


def everybody_is_dead() -> contextlib.AbstractContextManager[None]:
    def mutant(self: SimLog, owner: str) -> Any:
        return disk._Proof(self.disk, owner)  # noqa: SLF001

    return put(SimLog, prove_dead=mutant)


def no_fencing() -> contextlib.AbstractContextManager[None]:
    return put(disk, judge=lambda _item, _lookup: None)


def row_forgets_work() -> contextlib.AbstractContextManager[None]:
    row_of = row.row_of
    return put(live, row_of=lambda view: replace(row_of(view), human=0))


def claims_and_leaves() -> contextlib.AbstractContextManager[None]:
    def mutant(*_args: Any, **_options: Any) -> Generator[Any, Any, None]:
        yield from ()

    return put(recover, _finish=mutant)


def no_backoff() -> contextlib.AbstractContextManager[None]:
    verdict_on = recover.verdict_on

    def mutant(store: Any, one: Any, *, force: bool, now_ns: int) -> Any:
        why = verdict_on(store, one, force=force, now_ns=now_ns)
        return "recover" if why == "later" else why

    return put(recover, verdict_on=mutant)


def forwards() -> contextlib.AbstractContextManager[None]:
    order = plan.rollback_order
    return put(rollback, rollback_order=lambda view, scope=0: order(view, scope)[::-1])


def doubt_is_absence() -> contextlib.AbstractContextManager[None]:
    started = fold._HANDLERS[r.RollbackStarted]  # noqa: SLF001

    def mutant(view: Any, record: Any, values: Any) -> None:
        started(view, record, values)
        for one in view.steps.values():
            one.state = _T.ABSENT if one.state is _T.IN_DOUBT else one.state

    return put_item(fold._HANDLERS, r.RollbackStarted, mutant)  # noqa: SLF001


def nothing_travels() -> contextlib.AbstractContextManager[None]:
    return put(settle, _unsettled_s=lambda _step: 0.0)


def late_answers_are_dropped() -> contextlib.AbstractContextManager[None]:
    return put(late, arrive=lambda saga, flight, _values, _fields: saga.live.land(flight))


def committed_is_left() -> contextlib.AbstractContextManager[None]:
    return put(plan, _is_left=lambda _view, one, **_: one.state is _T.STANDING)


def refusal_is_advice() -> contextlib.AbstractContextManager[None]:
    refuse = vars(gate)["refuse"]

    def mutant(*args: Any, **options: Any) -> Generator[Any, Any, None]:
        with contextlib.suppress(GateRefused):
            yield from refuse(*args, **options)

    return put(gate, refuse=mutant)


def failure_is_forgotten() -> contextlib.AbstractContextManager[None]:
    wait = Writer.wait

    def mutant(self: Writer, ticket: Any) -> Any:
        try:
            return wait(self, ticket)
        except LogFailed:
            self.failed = None
            return Committed(0, b"")

    return put(Writer, wait=mutant)


def every_call_is_new() -> contextlib.AbstractContextManager[None]:
    def mutant(*_args: Any) -> Generator[Any, Any, Any]:
        yield from ()
        return admission.Admitted()

    return put(admission, admit=mutant)


@contextlib.contextmanager
def payloads_are_trusted() -> Iterator[None]:
    def trusted(_record: Any, payload: bytes | None, *_: Any) -> dict[str, str]:
        stored = {} if payload is None else r._decode_payload(payload)  # noqa: SLF001
        return {name: text for name, (_, text) in stored.items()}

    def all_trusted(records: Any, payloads: list[bytes | None]) -> list[dict[str, str]]:
        return [trusted(*each) for each in zip(records, payloads, strict=True)]

    names = {"open_payload": trusted, "open_payloads": all_trusted}
    with contextlib.ExitStack() as planted:
        for module in [known for name, known in sys.modules.items() if name.startswith("agent_saga.store.")]:
            for name in names.keys() & vars(module).keys():
                planted.enter_context(put(module, **{name: names[name]}))
        planted.enter_context(put(invariants, DAMAGE_EVERY=1))
        yield


def reader_asks() -> contextlib.AbstractContextManager[None]:
    check_row = reader.check_row

    def mutant(view: Any, head: bytes, stored: Any) -> None:
        check_row(view, head, stored)
        for one in view.steps.values():
            function_for("sim.probe")(key=one.key, kwargs={"item": one.tool.removeprefix("tool.")})

    return put(reader, check_row=mutant)


def sealed_too_soon() -> contextlib.AbstractContextManager[None]:
    return put(row, leftovers=lambda _view: [])


def no_end() -> contextlib.AbstractContextManager[None]:
    return without(states.SAGA_TRANSITIONS, (_S.ROLLING_BACK, "saga_ended"))


def confirmed_unseen() -> contextlib.AbstractContextManager[None]:
    outcome = fold._HANDLERS[r.CompensationOutcome]  # noqa: SLF001

    def mutant(view: Any, record: Any, values: Any) -> None:
        outcome(view, record, values)
        view.steps[record.step].verified = True

    return put_item(fold._HANDLERS, r.CompensationOutcome, mutant)  # noqa: SLF001


def inner_takes_all() -> contextlib.AbstractContextManager[None]:
    order = plan.rollback_order
    return put(rollback, rollback_order=lambda view, _scope=0: order(view, 0))


def takes_suspended() -> contextlib.AbstractContextManager[None]:
    verdict_on = recover.verdict_on

    def mutant(*args: Any, **options: Any) -> Any:
        why = verdict_on(*args, **options)
        return "recover" if why == "suspended" else why

    return put(recover, verdict_on=mutant)


def refused_is_written() -> contextlib.AbstractContextManager[None]:
    in_chain = late._in_chain  # noqa: SLF001

    def mutant(*args: Any) -> bool:
        in_chain(*args)
        return True

    return put(late, _in_chain=mutant)


def death_counts_for_nothing() -> contextlib.AbstractContextManager[None]:
    claimed = fold._HANDLERS[r.Claimed]  # noqa: SLF001

    def mutant(view: Any, record: Any, values: Any) -> None:
        claimed(view, record, values)
        for one in view.steps.values():
            one.lost_at = 0

    return put_item(fold._HANDLERS, r.Claimed, mutant)  # noqa: SLF001


def walks_to_the_end() -> contextlib.AbstractContextManager[None]:
    order = plan.rollback_order

    def mutant(live_saga: Any, scope: int, budget: Any) -> Generator[Any, Any, None]:
        seen = -1
        while seen != live_saga.landings:
            seen = live_saga.landings
            for one in order(live_saga.view, scope):
                yield from settle.resolve(live_saga, one, budget)
        yield from live_saga.committed(rollback._end(live_saga, scope))  # noqa: SLF001

    return put(rollback, unwind=mutant)


def forgets_the_first() -> contextlib.AbstractContextManager[None]:
    order = plan.rollback_order
    return put(rollback, rollback_order=lambda view, scope=0: order(view, scope)[:-1])


def nothing_is_read_back() -> contextlib.AbstractContextManager[None]:
    def mutant(*_args: Any) -> Generator[Any, Any, dict[str, Any]]:
        yield from ()
        return {}

    return put(compensate, _read_back=mutant)


def calls_are_over() -> contextlib.AbstractContextManager[None]:
    def mutant(live_saga: Any, one: Any, budget: Any) -> Generator[Any, Any, None]:
        if one.state is _T.IN_DOUBT and one.bindable_from_intent:
            yield from compensate.compensate(live_saga, one, budget)

    return put(rollback, resolve=mutant)


def questions_are_dropped() -> contextlib.AbstractContextManager[None]:
    ask = vars(gate)["_ask_policies"]

    def mutant(*args: Any) -> Generator[Any, Any, Any]:
        asked = yield from ask(*args)
        asked.questions = []
        return asked

    return put(gate, _ask_policies=mutant)


def failures_allow() -> contextlib.AbstractContextManager[None]:
    decide = vars(gate)["decide"]

    def mutant(policy: Any, *args: Any) -> Generator[Any, Any, Any]:
        decision = yield from decide(policy, *args)
        failed = isinstance(decision, Refuse) and decision.reason.startswith("the policy failed")
        return Allow() if failed else decision

    return put(gate, decide=mutant)


def closing_is_not_closed() -> contextlib.AbstractContextManager[None]:
    check = LiveSaga.check_accepts

    def mutant(self: LiveSaga, scope: int, tool: str) -> None:
        closing, self.closing = self.closing, set()
        try:
            check(self, scope, tool)
        finally:
            self.closing = closing

    return put(LiveSaga, check_accepts=mutant)


@contextlib.contextmanager
def resources_are_shared() -> Iterator[None]:
    with put(rules, _held=lambda *_: None), put(resources, _holder=lambda *_: None):
        yield


def each_claim_begins_the_wait() -> contextlib.AbstractContextManager[None]:
    claimed = fold._HANDLERS[r.Claimed]  # noqa: SLF001

    def mutant(view: Any, record: Any, values: Any) -> None:
        claimed(view, record, values)
        for one in view.steps.values():
            one.lost_at = record.at

    return put_item(fold._HANDLERS, r.Claimed, mutant)  # noqa: SLF001


def late_is_only_written() -> contextlib.AbstractContextManager[None]:
    def mutant(again: Any, _step: Any) -> Generator[Any, Any, None]:
        yield from ()
        ending.release(again, "simulated")

    return put(late, _settle_late=mutant)


def any_success_resolves() -> contextlib.AbstractContextManager[None]:
    def mutant(later: Any, failed: Any) -> bool:
        return later.tool == failed.tool and later.state is _T.STANDING

    return put(plan, _resolves=mutant)


def nothing_stands(live_saga: Any) -> Generator[Any, Any, None]:
    yield from ()
    live_saga.view.on_divergence = "keep"
