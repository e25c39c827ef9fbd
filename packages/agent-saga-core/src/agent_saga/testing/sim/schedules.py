"""Families of schedules: which tasks run side by side, and what may happen between their operations."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import OwnerReplaced, UsageError
from agent_saga.runtime import operators
from agent_saga.runtime.clock import use_clock
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.step import perform
from agent_saga.testing.sim import policies
from agent_saga.testing.sim.crashes import Found, restart
from agent_saga.testing.sim.invariants import Violation
from agent_saga.testing.sim.scheduler import Move, Run, Wait, every_run, jump, kill, random_run, replaying
from agent_saga.testing.sim.script import (
    Scenario,
    call_of,
    enter,
    inner,
    items_of,
    leave,
    leave_inner,
    make,
    parse,
    program,
)
from agent_saga.testing.sim.stage import Process, Stage, installed
from agent_saga.testing.sim.tools import Tools

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga

_tools: Final = Tools()
LAST: Final = 9
"""Ordinal of the process that recovers when everything has ended."""
DEPTH: Final = 8


@dataclass(frozen=True, slots=True)
class Family:
    """One family.

    Attributes:
        name: for people and tokens.
        scenarios: one for each saga, as tokens.
        setup: adds processes, tasks and moves to a run.
        depth: decisions; the rest of the run takes the first option each time.
        lease: owners that do not run are taken for dead after a while, as between machines.
        stays: its processes live on while the last one recovers, so that what they gave up must be free.
    """

    name: str
    scenarios: tuple[str, ...]
    setup: Callable[[Run, Stage, tuple[Scenario, ...]], None]
    depth: int = 1 << 30
    lease: bool = False
    stays: bool = False


@dataclass(slots=True)
class Scheduled:
    """What was covered.

    Attributes:
        runs: schedules, each another list of decisions.
        operations: operations of the engine that were done, over all of them.
        states: distinct states of log and world that were passed.
    """

    family: str
    runs: int = 0
    operations: int = 0
    states: set[int] = field(default_factory=set)
    found: list[Found] = field(default_factory=list)


LETTERS: Final = "ABC"


def _sagas(run: Run, stage: Stage, scenarios: tuple[Scenario, ...], ordinals: tuple[int, ...]) -> None:
    processes: dict[int, Process] = {}
    for letter, scenario, ordinal in zip(LETTERS, scenarios, ordinals, strict=False):
        process = processes.get(ordinal) or Process(stage, ordinal)
        processes[ordinal] = process
        run.add(process, f"saga {letter}", program(process, scenario, letter))


def _in_one_process(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    """Sagas that share a purse, which is as large as all of them need."""
    stage.purse = sum(len(scenario.steps) for scenario in scenarios)
    _sagas(run, stage, scenarios, (1, 1, 1))


def _in_two_processes(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    if scenarios[0].has("budget") and stage.purse is None:
        stage.purse = sum(len(scenario.steps) for scenario in scenarios)
    _sagas(run, stage, scenarios, (1, 2, 2))


def _in_two_processes_short(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    stage.purse = sum(len(scenario.steps) for scenario in scenarios) - 1
    _in_two_processes(run, stage, scenarios)


def _same_key(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    for ordinal, scenario in enumerate(scenarios, start=1):
        process = Process(stage, ordinal)
        run.add(process, f"process {ordinal}", program(process, scenario, "A"))


def _with_a_kill(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    _in_two_processes(run, stage, scenarios)
    first = run.tasks[0].process
    run.moves.append(Move(stage, f"{first.token} is killed", lambda: kill(run, first)))
    recoverer = Process(stage, 3)
    run.add(recoverer, "recoverer", sweep(recoverer.writer))


def _siblings(run: Run, stage: Stage, scenarios: tuple[Scenario, ...], *, cancel: bool) -> None:
    process = Process(stage, 1)
    run.add(process, "scope", _parallel(run, process, scenarios[0], cancel=cancel))


def _parallel(run: Run, process: Process, scenario: Scenario, *, cancel: bool) -> Generator[Op, Any, Saga]:
    """A scope that runs its steps side by side and leaves with the first error, as task groups and thread pools do."""
    saga = yield from enter(process, "A")
    branches = [
        run.add(process, f"branch {item}", perform(saga, call_of(process, item))) for item in items_of(scenario, "A")
    ]
    error = yield Wait(branches)
    if cancel and error is not None:
        for branch in branches:
            branch.cancel()
        yield _Ended(branches)
    yield from leave(process, saga, error)
    return saga


class _Ended(Wait):
    """Wait until all tasks have ended."""

    __slots__ = ()

    @property
    def ready(self) -> bool:
        """See Wait.ready."""
        return all(task.done for task in self.tasks)


def _threads(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    _siblings(run, stage, scenarios, cancel=False)


def _task_group(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    _siblings(run, stage, scenarios, cancel=True)


def _left_running(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    """A scope that ends normally while its calls still run."""
    process = Process(stage, 1)

    def scope() -> Generator[Op, Any, None]:
        saga = yield from enter(process, "A")
        for item in items_of(scenarios[0], "A"):
            run.add(process, f"branch {item}", make(process, saga, item))
        yield Wait([])
        yield from leave(process, saga, None)

    run.add(process, "scope", scope())


def _in_a_scope(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    """Branches run in a nested scope, which is left with the first error while others go on; the saga goes on too."""
    process = Process(stage, 1)

    def one_by_one(scope: Saga, items: list[str]) -> Generator[Op, Any, None]:
        for item in items:
            yield from make(process, scope, item)

    def outer() -> Generator[Op, Any, None]:
        saga = yield from enter(process, "A")
        scope = inner(process, saga, 0)
        first, *others = items_of(scenarios[0], "A")
        branches = [run.add(process, "branch 1", make(process, scope, first))]
        branches.append(run.add(process, "branch 2", one_by_one(scope, others)))
        error = yield Wait(branches)
        yield from leave_inner(process, scope, error)
        yield _Ended(branches)
        yield from leave(process, saga, None)

    run.add(process, "scope", outer())


def _retrying(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    """Branches that repeat what failed while the scope already rolls back."""
    process = Process(stage, 1)

    def branch(saga: Saga, item: str) -> Generator[Op, Any, None]:
        try:
            yield from make(process, saga, item)
        except TimeoutError:
            yield from make(process, saga, item)

    def scope() -> Generator[Op, Any, None]:
        saga = yield from enter(process, "A")
        branches = [run.add(process, f"branch {item}", branch(saga, item)) for item in items_of(scenarios[0], "A")]
        yield from leave(process, saga, (yield Wait(branches)))

    run.add(process, "scope", scope())


def _stopped(run: Run, stage: Stage, scenarios: tuple[Scenario, ...], *, how: str, times: int) -> None:
    """One saga that is stopped from outside, at each operation; a shielded end cannot be cancelled."""
    process = Process(stage, 1)
    task = run.add(process, "saga A", program(process, scenarios[0], "A"))
    interrupt = how == "interrupted"
    act = task.interrupt if interrupt else task.cancel
    may = (lambda: not task.done) if interrupt else (lambda: not (task.done or process.ending))
    run.moves.append(Move(stage, f"saga A is {how}", act, times=times, when=may))


def _cancelled(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    _stopped(run, stage, scenarios, how="cancelled", times=2)


def _interrupted(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    _stopped(run, stage, scenarios, how="interrupted", times=2)


def _recovery_interrupted(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    """Recovery of a dead owner's saga is stopped with Ctrl-C, and its process lives on."""
    owner = Process(stage, 1)
    task = run.add(owner, "owner", program(owner, scenarios[0], "A"))
    for _ in range(5):
        task.step()
    kill(run, owner)
    recoverer = Process(stage, 2)
    sweeping = run.add(recoverer, "recoverer", _sweeping(recoverer))
    run.moves.append(
        Move(stage, "recovery is interrupted", sweeping.interrupt, times=2, when=lambda: not sweeping.done)
    )


def _approved(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    """A call that waits for words, which two others give in any order; its process may be killed."""
    process, operator = Process(stage, 1), Process(stage, 2)
    stage.asks = True
    process.environment.approver = "log"
    asks = (policies.Asks(suspend=False, expires_s=0.5),)
    run.add(process, "saga A", program(process, scenarios[0], "A", more=asks))
    for word in ("approved", "rejected"):
        said = partial(_say, stage, operator, word)
        run.moves.append(Move(stage, f"somebody says {word}", said, when=lambda: _pending(stage)))
    run.moves.append(Move(stage, "the process is killed", lambda: kill(run, process)))


def _pending(stage: Stage) -> object:
    return any(fact.kind == "approval" for fact in stage.disk.image.facts)


def _say(stage: Stage, operator: Process, word: str) -> None:
    before, stage.process = stage.process, operator
    stage.clock.stream = operator.ordinal
    for known in operators.pending(operator.writer):
        with contextlib.suppress(UsageError):
            operators.decide_approval(operator.writer, known.id, word, by=word)
    stage.process = before


def _frozen(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    """An operator quarantines a saga between any two operations of its owner, and lifts that later."""
    process, operator = Process(stage, 1), Process(stage, 2)
    run.add(process, "saga A", program(process, scenarios[0], "A"))
    stopped: list[str] = []

    def ids() -> list[str]:
        return [saga_id for saga_id, chain in stage.disk.image.chains.items() if chain.row.name == "A"]

    def freeze() -> None:
        stopped.extend(ids())
        for saga_id in stopped:
            operators.act(operator.writer, "quarantine", f"saga:{saga_id}", by="ann")

    def lift() -> None:
        for saga_id in stopped:
            operators.lift(operator.writer, f"saga:{saga_id}", by="ann")

    run.moves.append(Move(stage, "it is quarantined", freeze, when=ids))
    run.moves.append(Move(stage, "that is lifted", lift, when=lambda: stopped))
    stage.afterwards = lift


def _recoverers(run: Run, stage: Stage, scenario: Scenario, *, after: int) -> Process:
    """An owner that has done some operations, and two recoverers that begin now."""
    owner = Process(stage, 1)
    task = run.add(owner, "owner", program(owner, scenario, "A"))
    for _ in range(after):
        task.step()
    for ordinal in (2, 3):
        process = Process(stage, ordinal)
        run.add(process, f"recoverer {ordinal}", _sweeping(process))
    return owner


def _sweeping(process: Process) -> Generator[Op, Any, None]:
    yield Wait([])
    try:
        yield from sweep(process.writer)
    except OwnerReplaced as error:  # Another recoverer was faster: no reason to leave the other sagas.
        raise process.stage.judge.broken("INV-25", f"a sweep raised {error!r}") from error


def _killed_owner(after: int) -> Callable[[Run, Stage, tuple[Scenario, ...]], None]:
    def setup(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
        owner = _recoverers(run, stage, scenarios[0], after=after)
        run.moves.append(Move(stage, "the owner is killed", lambda: kill(run, owner)))
        second = run.tasks[1].process
        run.moves.append(Move(stage, "recoverer 2 is killed", lambda: kill(run, second)))

    return setup


def _paused_owner(after: int) -> Callable[[Run, Stage, tuple[Scenario, ...]], None]:
    def setup(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
        _recoverers(run, stage, scenarios[0], after=after)
        run.moves.append(Move(stage, "the clocks jump past the leases", lambda: jump(stage), times=2))

    return setup


def _answered_late(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    owner = _recoverers(run, stage, scenarios[0], after=4)
    run.moves.append(Move(stage, "the clocks jump past the leases", lambda: jump(stage), times=2))
    answer = Move(stage, "the late answer comes", lambda: _answer(stage, owner), when=lambda: owner.pending)
    run.moves.append(answer)


def _answered_when_sealed(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    """Calls whose saga another process has sealed meanwhile answer their living owner; a recoverer sweeps beside."""
    owner, sealer = Process(stage, 1), Process(stage, 2)
    for process, engine in ((owner, program(owner, scenarios[0], "A")), (sealer, sweep(sealer.writer))):
        task = run.add(process, "before", engine)
        while not task.done:
            task.step()
    recoverer = Process(stage, 3)
    run.add(recoverer, "recoverer 3", _sweeping(recoverer))
    _answer(stage, owner)


def _answer(stage: Stage, owner: Process) -> None:
    stage.process, stage.clock.stream = owner, owner.ordinal
    owner.deliver(all_of_them=True)


_EIGHT_BACK: Final = "keyed:ok:ok,keyed:fail:ok/commit/budget"
_EIGHT_KEPT: Final = "keyed:ok:ok,keyed:ok:ok/commit/key+budget"
_FOUR: Final = "keyed:ok:ok/commit/budget"
_HELD_BACK: Final = "held:ok:ok,keyed:fail:ok/commit/plain"
_HELD_KEPT: Final = "keyed:ok:ok,held:ok:ok/commit/plain"
_SHORT: Final = "keyed:ok:ok,keyed:ok:ok/commit/budget"
_STOPPED: Final = "keyed:ok:ok,look:ok:once,absent:doubt+:ok/commit/catch"
_GUESSED: Final = "keyed:ok:ok,absent:ok:ok/raise/plain"
_LATE: Final = "keyed:ok:ok,keyed:late+:ok/commit/plain"
_SEALED: Final = "absent:late+:ok,absent:late+:ok/commit/catch/late=99"
_OWNED: Final = "keyed:ok:ok,probe:ok:ok/raise/plain"

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        Family("two-sagas-one-process", (_EIGHT_BACK, _EIGHT_KEPT), _in_one_process),
        Family("two-sagas-two-processes", (_EIGHT_BACK, _EIGHT_KEPT), _in_two_processes),
        Family("three-sagas", (_FOUR, _FOUR, _FOUR), _in_two_processes),
        Family("one-key", (_EIGHT_KEPT, _EIGHT_KEPT), _same_key, depth=12),
        Family("killed-beside", (_EIGHT_BACK, _FOUR), _with_a_kill, depth=DEPTH),
        Family("siblings-threads", ("keyed:ok:ok,keyed:fail:ok,keyed:ok:ok/commit/plain",), _threads, depth=9),
        Family("siblings-cancelled", ("keyed:ok:ok,keyed:fail:ok,absent:ok:ok/commit/plain",), _task_group, depth=9),
        *(Family(f"killed-owner-{after}", (_OWNED,), _killed_owner(after), depth=DEPTH) for after in (1, 3, 5, 7)),
        *(
            Family(f"paused-owner-{after}", (_OWNED,), _paused_owner(after), depth=DEPTH, lease=True)
            for after in (1, 3, 5, 7)
        ),
        Family("resource-in-two", (_HELD_BACK, _HELD_KEPT), _in_two_processes, depth=12),
        Family("purse-too-small", (_SHORT, _SHORT), _in_two_processes_short, depth=12),
        Family("left-running", ("keyed:ok:ok,absent:doubt+:ok/commit/plain",), _left_running, depth=10),
        Family("siblings-inside", ("keyed:fail:ok,keyed:ok:ok,keyed:ok:ok/commit/plain",), _in_a_scope, depth=12),
        Family("siblings-retrying", ("absent:doubt-:ok,keyed:fail:ok/commit/plain",), _retrying, depth=10),
        Family("cancelled", (_STOPPED,), _cancelled, depth=30, stays=True),
        Family("interrupted", (_STOPPED,), _interrupted, depth=30, stays=True),
        Family("recovery-interrupted", (_OWNED,), _recovery_interrupted, depth=20, stays=True),
        Family("approved-beside", ("keyed:ok:ok/commit/plain",), _approved, depth=9),
        Family("quarantined", ("keyed:ok:ok,absent:doubt-:ok,keyed:fail:ok/commit/catch",), _frozen, depth=24),
        Family("paused-owner-late", (_LATE,), _answered_late, depth=DEPTH, lease=True),
        Family("sealed-then-answered", (_SEALED,), _answered_when_sealed, depth=10, stays=True),
        Family("paused-owner-absent", (_GUESSED,), _paused_owner(3), depth=DEPTH, lease=True),
    )
}


class Player:
    """Plays one family's schedules on one stage after the other."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.covered = Scheduled(family.name)
        self._scenarios = tuple(parse(token) for token in family.scenarios)
        self._specs = {
            item: step
            for letter, scenario in zip(LETTERS, self._scenarios, strict=False)
            for item, step in items_of(scenario, letter).items()
        }
        self.stage = Stage(self._specs, _tools)

    def play(self, decide: Callable[[int], int]) -> None:
        """Run once."""
        trace = self.stage.trace
        stage = self.stage = Stage(self._specs, _tools)
        stage.trace, stage.states = trace, self.covered.states
        if self.family.lease:
            stage.disk.leases = {}
        with installed(stage):
            use_clock(stage.clock)
            run = Run(stage, decide)
            self.family.setup(run, stage, self._scenarios)
            run.free(self.family.depth)
            run.settle()
            stage.spawn = None
            stage.afterwards()
            for process in {task.process.ordinal: task.process for task in run.tasks}.values():
                if not process.log.dead:
                    stage.process = process
                    process.deliver(all_of_them=True)
                    stage.judge.program_ended(process)
                    if not self.family.stays:
                        process.exit()
            self.covered.runs += 1
            self.covered.operations += sum(task.ran for task in run.tasks)
            if stage.disk.leases is not None:
                stage.disk.leases.clear()
            restart(stage, ordinal=LAST)

    def every(self, prefix: tuple[int, ...] = ()) -> Scheduled:
        """Run every schedule that begins with `prefix`, up to the first counterexample."""
        decisions: list[int] = []

        def remembering(decide: Callable[[int], int]) -> None:
            decisions.clear()

            def noted(options: int) -> int:
                decisions.append(decide(options))
                return decisions[-1]

            self.play(noted)

        try:
            for _ in every_run(remembering, prefix=prefix, free=self.family.depth):
                pass
        except Violation as violation:
            token = f"schedule:{self.family.name}"
            self.covered.found.append(Found(violation.invariant, violation.message, token, tuple(decisions)))
        return self.covered

    def replay(self, decisions: tuple[int, ...]) -> list[str]:
        """Run one schedule again, and return what happened, in lines."""
        self.stage.trace = []
        with contextlib.suppress(Violation):
            self.play(replaying(list(decisions)))
        return self.stage.trace or []


def prefixes(family: Family, length: int) -> list[tuple[int, ...]]:
    """Return every beginning of that length, for workers to share."""
    player = Player(family)
    runs: Iterator[list[int]] = every_run(player.play, free=length)
    return [tuple(decisions[:length]) for decisions in runs]


def random_schedule(family: Family, seed: str) -> tuple[Player, list[int]]:
    """Run one schedule drawn from a seed."""
    player = Player(family)
    return player, random_run(player.play, seed)
