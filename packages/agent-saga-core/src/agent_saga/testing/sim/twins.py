"""Seeded bugs, at least one for each invariant: an engine, log or recoverer that breaks it, which the suite must catch.

A twin is made by patching this process, so that everything else is the real thing. It names the invariant that has to
notice it and where to look; `survivors` runs them all.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import GateRefused, LogFailed
from agent_saga.machine import fold, plan, report, row, states
from agent_saga.machine.states import SagaState, StepState
from agent_saga.machine.view import SagaView
from agent_saga.model import records as r
from agent_saga.model.effects import Allow, Refuse
from agent_saga.runtime import (
    admission,
    compensate,
    ending,
    gate,
    late,
    live,
    opening,
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
from agent_saga.testing.sim.crashes import explore
from agent_saga.testing.sim.disk import Disk, SimLog
from agent_saga.testing.sim.patching import put, put_item, without
from agent_saga.testing.sim.schedules import FAMILIES, Player
from agent_saga.testing.sim.script import parse
from agent_saga.testing.sim.tools import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from agent_saga.testing.sim.crashes import Found

_S, _T = SagaState, StepState


@dataclass(frozen=True, slots=True)
class Twin:
    """One seeded bug.

    Attributes:
        invariant: what has to notice it.
        bug: what is wrong, in one line.
        plant: puts it in place for the length of a block.
        where: a scenario, or `schedule:`, the name of a family and how its decisions begin.
        depth: deaths, one after the other.
    """

    invariant: str
    bug: str
    plant: Callable[[], contextlib.AbstractContextManager[Any]]
    where: str
    depth: int = 1


# -- the bugs -----------------------------------------------------------------------------------------------------


def _not_durable(kind: type) -> contextlib.AbstractContextManager[None]:
    emit = LiveSaga.emit_locked

    def mutant(self: LiveSaga, make: Any, *args: Any, durable: bool = False, **fields: Any) -> Any:
        made = getattr(make, "func", make)  # Intents are made by a class with some fields filled in.
        return emit(self, make, *args, durable=durable and made is not kind, **fields)

    return put(LiveSaga, emit_locked=mutant)


def _log_calls_all_durable_late() -> contextlib.AbstractContextManager[None]:
    commit = Disk.commit
    return put(Disk, commit=lambda self, image, **_: commit(self, image, durable=False))


def _failed_counts_as_compensated() -> contextlib.AbstractContextManager[None]:
    return put_item(states.STEP_TRANSITIONS, (_T.COMPENSATING, "failed"), _T.COMPENSATED)


def _failed_is_in_no_bucket() -> contextlib.AbstractContextManager[None]:
    bucket_of = report.bucket_of

    def mutant(view: Any, one: Any) -> str | None:
        return None if one.state is _T.COMPENSATION_FAILED else bucket_of(view, one)

    return put(report, bucket_of=mutant)


def _success_is_not_believed() -> contextlib.AbstractContextManager[None]:
    return put_item(states.STEP_TRANSITIONS, (_T.COMPENSATING, "compensated"), _T.COMPENSATION_FAILED)


def _always_again() -> contextlib.AbstractContextManager[None]:
    return put(plan, _recheck=lambda _step, **_: plan.Action.COMPENSATE)


def _two_steps_one_key() -> contextlib.AbstractContextManager[None]:
    return put(step, step_id=lambda saga_id, _no: f"{saga_id}:1")


def _key_of_the_process() -> contextlib.AbstractContextManager[None]:
    def mutant(saga_id: str, no: int, generation: int) -> str:
        return f"{saga_id}:{no}:c{generation}:p{stage().clock.stream}"

    return put(compensate, compensation_key=mutant)


def _same_generation() -> contextlib.AbstractContextManager[None]:
    late_outcome = fold._HANDLERS[r.LateOutcome]  # noqa: SLF001 - the bug is planted there.

    def mutant(view: Any, record: Any, values: Any) -> None:
        late_outcome(view, record, values)
        view.steps[record.step].generation = 1

    return put_item(fold._HANDLERS, r.LateOutcome, mutant)  # noqa: SLF001


def _everybody_is_dead() -> contextlib.AbstractContextManager[None]:
    def mutant(self: SimLog, owner: str) -> Any:
        return disk._Proof(self.disk, owner)  # noqa: SLF001

    return put(SimLog, prove_dead=mutant)


def _no_fencing() -> contextlib.AbstractContextManager[None]:
    return put(disk, judge=lambda _item, _lookup: None)


def _row_forgets_work() -> contextlib.AbstractContextManager[None]:
    row_of = row.row_of
    return put(live, row_of=lambda view: replace(row_of(view), human=0))


def _claims_and_leaves() -> contextlib.AbstractContextManager[None]:
    def mutant(*_args: Any, **_options: Any) -> Generator[Any, Any, None]:
        yield from ()

    return put(recover, _finish=mutant)


def _no_backoff() -> contextlib.AbstractContextManager[None]:
    verdict_on = recover.verdict_on

    def mutant(store: Any, one: Any, *, force: bool, now_ns: int) -> Any:
        why = verdict_on(store, one, force=force, now_ns=now_ns)
        return "recover" if why == "later" else why

    return put(recover, verdict_on=mutant)


def _forwards() -> contextlib.AbstractContextManager[None]:
    order = plan.rollback_order
    return put(rollback, rollback_order=lambda view, scope=0: order(view, scope)[::-1])


def _doubt_is_absence() -> contextlib.AbstractContextManager[None]:
    started = fold._HANDLERS[r.RollbackStarted]  # noqa: SLF001

    def mutant(view: Any, record: Any, values: Any) -> None:
        started(view, record, values)
        for one in view.steps.values():
            one.state = _T.ABSENT if one.state is _T.IN_DOUBT else one.state

    return put_item(fold._HANDLERS, r.RollbackStarted, mutant)  # noqa: SLF001


def _nothing_travels() -> contextlib.AbstractContextManager[None]:
    return put(settle, _unsettled_s=lambda _step: 0.0)


def _late_answers_are_dropped() -> contextlib.AbstractContextManager[None]:
    return put(late, arrive=lambda saga, flight, _values, _fields: saga.live.land(flight))


def _committed_is_left() -> contextlib.AbstractContextManager[None]:
    return put(plan, _is_left=lambda _view, one, **_: one.state is _T.STANDING)


def _refusal_is_advice() -> contextlib.AbstractContextManager[None]:
    refuse = vars(gate)["refuse"]

    def mutant(*args: Any, **options: Any) -> Generator[Any, Any, None]:
        with contextlib.suppress(GateRefused):
            yield from refuse(*args, **options)

    return put(gate, refuse=mutant)


def _failure_is_forgotten() -> contextlib.AbstractContextManager[None]:
    wait = Writer.wait

    def mutant(self: Writer, ticket: Any) -> Any:
        try:
            return wait(self, ticket)
        except LogFailed:
            self.failed = None
            return Committed(0, b"")

    return put(Writer, wait=mutant)


def _every_call_is_new() -> contextlib.AbstractContextManager[None]:
    def mutant(*_args: Any) -> Generator[Any, Any, Any]:
        yield from ()
        return admission.Admitted()

    return put(admission, admit=mutant)


@contextlib.contextmanager
def _payloads_are_trusted() -> Iterator[None]:
    def mutant(_record: Any, payload: bytes | None) -> dict[str, str]:
        stored = {} if payload is None else r._decode_payload(payload)  # noqa: SLF001
        return {name: text for name, (_, text) in stored.items()}

    with put(reader, open_payload=mutant), put(invariants, DAMAGE_EVERY=1):
        yield


def _reader_asks() -> contextlib.AbstractContextManager[None]:
    check_row = reader.check_row

    def mutant(view: Any, head: bytes, stored: Any) -> None:
        check_row(view, head, stored)
        for one in view.steps.values():
            function_for("sim.probe")(key=one.key, kwargs={"item": one.tool.removeprefix("tool.")})

    return put(reader, check_row=mutant)


def _sealed_too_soon() -> contextlib.AbstractContextManager[None]:
    return put(row, leftovers=lambda _view: [])


def _no_end() -> contextlib.AbstractContextManager[None]:
    return without(states.SAGA_TRANSITIONS, (_S.ROLLING_BACK, "saga_ended"))


def _confirmed_unseen() -> contextlib.AbstractContextManager[None]:
    outcome = fold._HANDLERS[r.CompensationOutcome]  # noqa: SLF001

    def mutant(view: Any, record: Any, values: Any) -> None:
        outcome(view, record, values)
        view.steps[record.step].verified = True

    return put_item(fold._HANDLERS, r.CompensationOutcome, mutant)  # noqa: SLF001


def _inner_takes_all() -> contextlib.AbstractContextManager[None]:
    order = plan.rollback_order
    return put(rollback, rollback_order=lambda view, _scope=0: order(view, 0))


def _takes_suspended() -> contextlib.AbstractContextManager[None]:
    verdict_on = recover.verdict_on

    def mutant(*args: Any, **options: Any) -> Any:
        why = verdict_on(*args, **options)
        return "recover" if why == "suspended" else why

    return put(recover, verdict_on=mutant)


def _refused_is_written() -> contextlib.AbstractContextManager[None]:
    in_chain = late._in_chain  # noqa: SLF001

    def mutant(*args: Any) -> bool:
        in_chain(*args)
        return True

    return put(late, _in_chain=mutant)


def _death_counts_for_nothing() -> contextlib.AbstractContextManager[None]:
    claimed = fold._HANDLERS[r.Claimed]  # noqa: SLF001

    def mutant(view: Any, record: Any, values: Any) -> None:
        claimed(view, record, values)
        for one in view.steps.values():
            one.lost_at = 0

    return put_item(fold._HANDLERS, r.Claimed, mutant)  # noqa: SLF001


def _walks_to_the_end() -> contextlib.AbstractContextManager[None]:
    order = plan.rollback_order

    def mutant(live_saga: Any, scope: int, budget: Any) -> Generator[Any, Any, None]:
        seen = -1
        while seen != live_saga.landings:
            seen = live_saga.landings
            for one in order(live_saga.view, scope):
                yield from settle.resolve(live_saga, one, budget)
        yield from live_saga.committed(rollback._end(live_saga, scope))  # noqa: SLF001

    return put(rollback, unwind=mutant)


def _forgets_the_first() -> contextlib.AbstractContextManager[None]:
    order = plan.rollback_order
    return put(rollback, rollback_order=lambda view, scope=0: order(view, scope)[:-1])


def _nothing_is_read_back() -> contextlib.AbstractContextManager[None]:
    def mutant(*_args: Any) -> Generator[Any, Any, dict[str, Any]]:
        yield from ()
        return {}

    return put(compensate, _read_back=mutant)


def _calls_are_over() -> contextlib.AbstractContextManager[None]:
    def mutant(live_saga: Any, one: Any, budget: Any) -> Generator[Any, Any, None]:
        if one.state is _T.IN_DOUBT and one.bindable_from_intent:
            yield from compensate.compensate(live_saga, one, budget)

    return put(rollback, resolve=mutant)


def _questions_are_dropped() -> contextlib.AbstractContextManager[None]:
    ask = vars(gate)["_ask_policies"]

    def mutant(*args: Any) -> Generator[Any, Any, Any]:
        asked = yield from ask(*args)
        asked.questions = []
        return asked

    return put(gate, _ask_policies=mutant)


def _failures_allow() -> contextlib.AbstractContextManager[None]:
    decide = vars(gate)["decide"]

    def mutant(policy: Any, *args: Any) -> Generator[Any, Any, Any]:
        decision = yield from decide(policy, *args)
        failed = isinstance(decision, Refuse) and decision.reason.startswith("the policy failed")
        return Allow() if failed else decision

    return put(gate, decide=mutant)


@contextlib.contextmanager
def _resources_are_shared() -> Iterator[None]:
    with put(rules, _held=lambda *_: None), put(resources, _holder=lambda *_: None):
        yield


def _each_claim_begins_the_wait() -> contextlib.AbstractContextManager[None]:
    claimed = fold._HANDLERS[r.Claimed]  # noqa: SLF001

    def mutant(view: Any, record: Any, values: Any) -> None:
        claimed(view, record, values)
        for one in view.steps.values():
            one.lost_at = record.at

    return put_item(fold._HANDLERS, r.Claimed, mutant)  # noqa: SLF001


def _late_is_only_written() -> contextlib.AbstractContextManager[None]:
    def mutant(again: Any, _step: Any) -> Generator[Any, Any, None]:
        yield from ()
        ending.release(again, "simulated")

    return put(late, _settle_late=mutant)


def _any_success_resolves() -> contextlib.AbstractContextManager[None]:
    def mutant(later: Any, failed: Any) -> bool:
        return later.tool == failed.tool and later.state is _T.STANDING

    return put(plan, _resolves=mutant)


def _nothing_stands(live_saga: Any) -> Generator[Any, Any, None]:
    yield from ()
    live_saga.view.on_divergence = "keep"


_BACK: Final = "keyed:ok:ok,keyed:ok:ok,keyed:fail:ok/commit/plain"

TWINS: Final = (
    Twin("INV-01", "the intent is committed, not durable", lambda: _not_durable(r.Intent), _BACK),
    Twin("INV-01", "the log calls a commit durable before it is", _log_calls_all_durable_late, _BACK),
    Twin("INV-02", "an attempt is committed, not durable", lambda: _not_durable(r.CompensationIntent), _BACK),
    Twin(
        "INV-03",
        "a failed compensation counts as done",
        _failed_counts_as_compensated,
        "keyed:ok:fail,final:ok:ok/raise/plain",
    ),
    Twin("INV-04", "a failed compensation is in no bucket", _failed_is_in_no_bucket, "keyed:ok:fail/raise/plain"),
    Twin("INV-05", "the success of a compensation is not believed", _success_is_not_believed, _BACK),
    Twin(
        "INV-03",
        "an orphan counts as kept",
        lambda: put(report, _standing=lambda *_: "kept"),
        "final:ok:ok/raise/plain",
    ),
    Twin("INV-04", "a compensation counts as read back", _confirmed_unseen, "keyed:ok:ok/raise/plain"),
    Twin(
        "INV-17",
        "a saga commits with a step in doubt",
        lambda: put(ending, _is_unsettled=lambda *_: False),
        "keyed:ok:ok,keyed:doubt+:ok/commit/catch",
    ),
    Twin(
        "INV-17",
        "a nested rollback takes the steps around it",
        _inner_takes_all,
        "keyed:ok:ok,keyed:ok:ok,keyed:fail:ok/commit/nested",
    ),
    Twin(
        "INV-26",
        "a swallowed failure counts for nothing",
        lambda: put(ending, unresolved=lambda *_: []),
        "keyed:ok:ok,keyed:fail:ok/commit/adapter",
    ),
    Twin(
        "INV-15",
        "a death does not begin the wait for a request anew",
        _death_counts_for_nothing,
        "travel:travel:ok/raise/plain",
    ),
    Twin(
        "INV-14",
        "a late landing waits for the end of the walk",
        _walks_to_the_end,
        "keyed:ok:ok,keyed:ok:ok,keyed:ok:ok,keyed:late+:ok/ask/plain/late=4",
    ),
    Twin("INV-12", "the rollback forgets the first step", _forgets_the_first, "keyed:ok:ok,keyed:ok:ok/raise/plain"),
    Twin("INV-04", "a compensation is not read back", _nothing_is_read_back, "look:ok:ok/raise/plain"),
    Twin("INV-29", "a call that still runs is compensated", _calls_are_over, "absent:late+:ok/commit/plain/late=99"),
    Twin(
        "INV-16", "a late answer that was refused counts as written", _refused_is_written, "schedule:paused-owner-late"
    ),
    Twin("INV-27", "recovery takes what is suspended", _takes_suspended, "keyed:ok:ok/suspend/plain"),
    Twin(
        "INV-28",
        "a resumed program is given nothing",
        _every_call_is_new,
        "keyed:ok:ok,keyed:ok:ok/commit/resume",
    ),
    Twin("INV-03", "a later landing gets the used key", _same_generation, "schedule:paused-owner-absent@0.1.2.1"),
    Twin("INV-06", "an attempt in doubt is repeated whatever it is", _always_again, "plain:ok:doubt+/raise/plain"),
    Twin("INV-07", "two steps share one key", _two_steps_one_key, "keyed:ok:ok,keyed:ok:ok/commit/plain"),
    Twin("INV-08", "each process makes keys of its own", _key_of_the_process, _BACK, 2),
    Twin("INV-09", "recovery takes everybody for dead", _everybody_is_dead, "schedule:killed-owner-1@0"),
    Twin("INV-10", "the log does not look at epochs", _no_fencing, "schedule:paused-owner-1@3.1.1.0"),
    Twin("INV-11", "the row forgets that a human is needed", _row_forgets_work, "final:ok:ok/raise/plain"),
    Twin("INV-12", "recovery claims a saga and leaves it", _claims_and_leaves, _BACK),
    Twin("INV-13", "recovery ignores the backoff", _no_backoff, "keyed:ok:fail/raise/plain"),
    Twin("INV-14", "effects are compensated in the order of their intents", _forwards, _BACK),
    Twin("INV-15", "a step in doubt counts as absent", _doubt_is_absence, "keyed:doubt-:ok/commit/plain"),
    Twin("INV-15", "a request that travels counts as absent", _nothing_travels, "travel:travel:ok/commit/plain"),
    Twin("INV-16", "a late answer is dropped", _late_answers_are_dropped, "keyed:late+:ok/commit/plain/late=2"),
    Twin("INV-17", "effects of a committed saga count as left", _committed_is_left, "keyed:ok:ok/commit/plain"),
    Twin("INV-18", "the end is reported before it is durable", lambda: _not_durable(r.SagaEnded), _BACK),
    Twin(
        "INV-19", "a refusal is recorded and the call runs", _refusal_is_advice, "keyed:ok:ok,keyed:ok:ok/commit/refuse"
    ),
    Twin(
        "INV-20",
        "the engine goes on after a failed commit",
        _failure_is_forgotten,
        "keyed:ok:ok,keyed:ok:ok/raise/plain/fault=3:kept",
    ),
    Twin("INV-21", "a repeat of a call in doubt is a new call", _every_call_is_new, "probe:doubt+:ok/commit/retry"),
    Twin("INV-22", "the reader does not check payloads", _payloads_are_trusted, _BACK, 2),
    Twin("INV-23", "the reader asks a probe", _reader_asks, "keyed:ok:ok/commit/plain"),
    Twin("INV-24", "a saga is sealed with work left", _sealed_too_soon, "keyed:doubt+:ok/commit/plain"),
    Twin("INV-25", "a rollback may not end", _no_end, _BACK),
    Twin(
        "INV-30",
        "a rollback that nobody asked for is not told",
        lambda: put(ending, _tell=lambda *_, **__: None),
        "keyed:ok:ok,keyed:doubt+:ok/commit/catch",
    ),
    Twin(
        "INV-31",
        "the log does not add up what a budget has spent",
        lambda: put(rules, _exceeded=lambda *_: None),
        "keyed:ok:ok,keyed:ok:ok,keyed:ok:ok/commit/short",
    ),
    Twin("INV-32", "a question of a policy is dropped", _questions_are_dropped, "keyed:ok:ok/commit/asked"),
    Twin("INV-33", "a resource is shared", _resources_are_shared, "schedule:resource-in-two"),
    Twin(
        "INV-34",
        "recovery goes on with what is quarantined",
        lambda: put(recover, quarantined=lambda *_: None),
        "keyed:ok:ok,keyed:ok:ok/raise/frozen",
    ),
    Twin(
        "INV-35",
        "a human's word changes nothing",
        lambda: put_item(fold._HANDLERS, r.Settled, lambda *_: None),  # noqa: SLF001
        "final:ok:ok/raise/plain",
    ),
    Twin(
        "INV-12",
        "a recovery that is interrupted keeps its saga",
        lambda: put(recover, release=lambda *_: None),
        "schedule:recovery-interrupted",
    ),
    Twin(
        "INV-12",
        "each claim begins the wait for a request anew",
        _each_claim_begins_the_wait,
        "keyed:ok:ok,far:travel:ok/commit/plain",
    ),
    Twin(
        "INV-27",
        "recovery rolls back what waits for its resume",
        lambda: put(recover, _overdue=lambda *_: True),
        "keyed:ok:ok,keyed:ok:ok/commit/resume",
    ),
    Twin(
        "INV-28",
        "a resumed program may leave out what stands",
        lambda: put(opening, _finish_scopes=_nothing_stands),
        "keyed:ok:ok,keyed:ok:ok/commit/resume+less",
    ),
    Twin(
        "INV-04",
        "a rollback leaves out the scopes in its scope",
        lambda: put(SagaView, is_within=lambda _self, inner, outer: inner == outer),
        "keyed:ok:ok,keyed:ok:ok,keyed:ok:ok,keyed:fail:ok/commit/deep",
    ),
    Twin(
        "INV-16",
        "what landed after the end is written and left",
        _late_is_only_written,
        "keyed:ok:ok,keyed:late+:ok/commit/plain/late=99",
    ),
    Twin(
        "INV-15",
        "the last attempt that failed speaks for those before it",
        lambda: put(fold, _state_said=lambda _step, said: said),
        "keyed:ok:ok,keytool:again-:ok/commit/retry",
    ),
    Twin(
        "INV-26",
        "a success before a failure resolves it",
        _any_success_resolves,
        "keyed:ok:ok,keyed:okfail:ok/commit/adapter",
    ),
    Twin(
        "INV-06",
        "what a look did not confirm is repeated whatever it is",
        lambda: put(compensate, _may_run_again=lambda _recipe: True),
        "look:ok:hidden/raise/plain",
    ),
    Twin(
        "INV-19",
        "a policy that fails allows",
        _failures_allow,
        "keyed:ok:ok,keyed:ok:ok/commit/broken",
    ),
)


def hunt(twin: Twin, *, planted: bool = True) -> list[Found]:
    """Return what the suite finds where a twin is to be caught.

    Args:
        twin: the seeded bug.
        planted: False looks at the same place without the bug.
    """
    with twin.plant() if planted else contextlib.nullcontext():
        if twin.where.startswith("schedule:"):
            family, _, begin = twin.where.removeprefix("schedule:").partition("@")
            return Player(FAMILIES[family]).every(tuple(int(choice) for choice in begin.split(".") if choice)).found
        return explore(parse(twin.where), depth=twin.depth).found


def survivors() -> list[tuple[Twin, list[Found]]]:
    """Return the twins that the invariant which has to notice them did not notice, and what was found instead."""
    hunted = [(twin, hunt(twin)) for twin in TWINS]
    return [(twin, found) for twin, found in hunted if twin.invariant not in {one.invariant for one in found}]
