"""Families of schedules: which tasks run side by side, and what may happen between their operations."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_saga.runtime.clock import use_clock
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.step import perform
from agent_saga.testing.sim.crashes import Found, restart
from agent_saga.testing.sim.invariants import Violation
from agent_saga.testing.sim.scheduler import Move, Run, Wait, every_run, jump, kill, random_run, replaying
from agent_saga.testing.sim.script import Scenario, call_of, enter, items_of, leave, parse, program
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
    """

    name: str
    scenarios: tuple[str, ...]
    setup: Callable[[Run, Stage, tuple[Scenario, ...]], None]
    depth: int = 1 << 30
    lease: bool = False


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
    _sagas(run, stage, scenarios, (1, 1, 1))


def _in_two_processes(run: Run, stage: Stage, scenarios: tuple[Scenario, ...]) -> None:
    _sagas(run, stage, scenarios, (1, 2, 2))


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
    yield from sweep(process.writer)


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


def _answer(stage: Stage, owner: Process) -> None:
    stage.process, stage.clock.stream = owner, owner.ordinal
    owner.deliver(all_of_them=True)


_EIGHT_BACK: Final = "keyed:ok:ok,keyed:fail:ok/commit/plain"
_EIGHT_KEPT: Final = "keyed:ok:ok,keyed:ok:ok/commit/key"
_FOUR: Final = "keyed:ok:ok/commit/plain"
_GUESSED: Final = "keyed:ok:ok,absent:ok:ok/raise/plain"
_LATE: Final = "keyed:ok:ok,keyed:late+:ok/commit/plain"
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
        Family("paused-owner-late", (_LATE,), _answered_late, depth=DEPTH, lease=True),
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
            for process in {task.process.ordinal: task.process for task in run.tasks}.values():
                if not process.log.dead:
                    stage.process = process
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
