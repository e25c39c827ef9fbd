"""A scheduler that tries every order: tasks of several processes, one operation at a time, with a list of decisions.

The engine only gives control away where it yields an operation, so what happens between two of them is one step. A run
is determined by its decisions: `every_run` enumerates them depth first, `random_runs` draws them.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import InvariantViolation, SagaError, SagaSuspended
from agent_saga.runtime.ops import Call, Commit, Join, Op, Sleep
from agent_saga.testing.sim.disk import LEASE_S, Killed
from agent_saga.testing.sim.script import Boom
from agent_saga.testing.sim.world import Refused

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from agent_saga.testing.sim.stage import Process, Stage

EXPECTED: Final = (
    SagaError,
    SagaSuspended,
    Boom,
    Refused,
    TimeoutError,
    ConnectionResetError,
    asyncio.CancelledError,
    KeyboardInterrupt,
    Killed,
)
STEPS_MAX: Final = 400


class Wait(Op):
    """Wait until one of some tasks has failed, or all have ended; gives the first error or None."""

    __slots__ = ("tasks",)

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks

    @property
    def ready(self) -> bool:
        """Whether the wait is over."""
        return all(task.done for task in self.tasks) or any(task.error is not None for task in self.tasks)


class Task:
    """An engine on its way, in a context of its own.

    Attributes:
        op: the operation that it wants done next.
        ran: how many operations were done.
    """

    def __init__(self, process: Process, name: str, engine: Generator[Op, Any, Any]) -> None:
        self.process, self.name = process, name
        self.done = False
        self.error: BaseException | None = None
        self.ran = 0
        self.op: Op | None = None
        self._engine = engine
        self._context = contextvars.Context()
        self._stop: BaseException | None = None

    def start(self) -> None:
        """Go to the first operation."""
        self._go(None, None)

    @property
    def runnable(self) -> bool:
        """Whether its operation could be done now."""
        return not self.done and not (isinstance(self.op, Wait) and not self.op.ready)

    def step(self) -> None:
        """Do the operation, and go to the next one."""
        op, self.ran = self.op, self.ran + 1
        process = self.process
        process.stage.process, process.stage.clock.stream = process, process.ordinal
        process.log.renew()
        value: Any = None
        error: BaseException | None = None
        try:
            if isinstance(op, Wait):
                value = next((task.error for task in op.tasks if task.error is not None), None)
            elif op is not None:
                value = self._context.run(process.perform, op)
            if self._stop is not None:
                stop, self._stop = self._stop, None
                raise stop
        except BaseException as raised:  # noqa: BLE001 - handed to the engine, which decides.
            error = raised
        self._go(value, error)

    def cancel(self) -> None:
        """Cancel it as an event loop does: a commit is written first, a call may have had its effect."""
        self._raise(asyncio.CancelledError())

    def interrupt(self) -> None:
        """Press Ctrl-C: an operation that can be waited for ends with it, a commit is written first."""
        self._raise(KeyboardInterrupt())

    def _raise(self, stop: BaseException) -> None:
        if self.done:
            return
        if isinstance(self.op, Call | Commit):
            self._stop = stop
            return
        process = self.process
        process.stage.process, process.stage.clock.stream = process, process.ordinal
        self._go(None, stop)

    def kill(self) -> None:
        """Its process is dead: what its engine does on the way out reaches nobody."""
        self.done = True
        with contextlib.suppress(*EXPECTED, RuntimeError):
            self._context.run(self._engine.close)

    def _go(self, value: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                self.op = self._context.run(self._engine.send, value)
            else:
                self.op = self._context.run(self._engine.throw, error)
        except StopIteration:
            self.done = True
        except EXPECTED as raised:
            self.done, self.error = True, raised
            if isinstance(raised, InvariantViolation):
                raise self.process.stage.judge.broken("INV-25", str(raised)) from raised
        except Exception as raised:
            raise self.process.stage.judge.broken("INV-25", f"{type(raised).__name__}: {raised}") from raised


class Run:
    """One run of some tasks under a list of decisions.

    Args:
        stage: where it plays.
        tasks: in order; more may be added while it runs.
        moves: other things that can happen, by name; each gives True when it may happen now, and does it on `True`.
        decide: chooses among options; see `every_run`.
    """

    def __init__(self, stage: Stage, decide: Callable[[int], int]) -> None:
        self.stage, self._decide = stage, decide
        self.tasks: list[Task] = []
        self.moves: list[Move] = []
        stage.spawn = lambda process, engine: self.add(process, "late answer", engine)

    def add(self, process: Process, name: str, engine: Generator[Op, Any, Any]) -> Task:
        """Add a task, gone to its first operation."""
        task = Task(process, name, engine)
        self.stage.process, self.stage.clock.stream = process, process.ordinal
        self.tasks.append(task)
        task.start()
        return task

    def free(self, steps: int = STEPS_MAX) -> None:
        """Take up to `steps` decisions."""
        for _ in range(steps):
            options = [task for task in self.tasks if task.runnable]
            moves = [move for move in self.moves if move.possible()]
            count = len(options) + len(moves)
            if not options:
                return
            chosen = self._decide(count) if count > 1 else 0
            if chosen < len(options):
                self._step(options[chosen])
            else:
                moves[chosen - len(options)].happen()

    def settle(self) -> None:
        """Let all tasks run to their ends, in their order; who only waits for time waits for those who act."""
        for _ in range(STEPS_MAX):
            runnable = [task for task in self.tasks if task.runnable]
            if not runnable:
                return
            self._step(next((task for task in runnable if not isinstance(task.op, Sleep | Join)), runnable[0]))
        raise self.stage.judge.broken("INV-25", f"the run did not end within {STEPS_MAX} operations")

    def _step(self, task: Task) -> None:
        self.stage.note(f"-- {task.name} goes on: {type(task.op).__name__}")
        task.step()


class Move:
    """Something that may happen between two operations, at most `times`."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        act: Callable[[], None],
        *,
        times: int = 1,
        when: Callable[[], object] = lambda: True,
    ) -> None:
        self._stage, self._name, self._act, self._left, self._when = stage, name, act, times, when

    def possible(self) -> bool:
        """Tell whether it may happen."""
        return self._left > 0 and bool(self._when())

    def happen(self) -> None:
        """Do it."""
        self._left -= 1
        self._stage.note(f"-- {self._name}")
        self._act()


def kill(run: Run, process: Process) -> None:
    """Kill a process: its tasks stop where they are, and it does not count as alive any more."""
    process.log.dead = True
    process.stage.disk.bury(process.token)
    for task in run.tasks:
        if task.process is process:
            task.kill()


def jump(stage: Stage) -> None:
    """Let the clocks jump past the lease of whoever does not run meanwhile."""
    stage.pass_time(LEASE_S + 1.0)


Play = Callable[[Callable[[int], int]], None]
"""Runs once; calls its argument with a number of options, and gets the chosen one."""


def every_run(play: Play, *, prefix: Sequence[int] = (), free: int = 1 << 30) -> Iterator[list[int]]:
    """Run `play` once for every list of decisions that begins with `prefix`, depth first; yield each list.

    Args:
        play: the run.
        prefix: stays as it is, so that several workers can share the tree.
        free: how many decisions vary; the later ones take the first option.
    """
    path = list(prefix)
    while True:
        taken: list[tuple[int, int]] = []

        def decide(options: int, path: list[int] = path, taken: list[tuple[int, int]] = taken) -> int:
            chosen = path[len(taken)] if len(taken) < len(path) else 0
            taken.append((chosen, options))
            return chosen

        play(decide)
        yield [chosen for chosen, _ in taken]
        del taken[free:]
        while len(taken) > len(prefix) and taken[-1][0] + 1 >= taken[-1][1]:
            taken.pop()
        if len(taken) <= len(prefix):
            return
        path = [chosen for chosen, _ in taken[:-1]] + [taken[-1][0] + 1]


def random_run(play: Callable[[Callable[[int], int]], None], seed: str) -> list[int]:
    """Run `play` once with decisions drawn from a seed, and return them."""
    rng = random.Random(seed)  # noqa: S311 - a replayable draw; nothing secret.
    taken: list[int] = []

    def decide(options: int) -> int:
        taken.append(rng.randrange(options))
        return taken[-1]

    play(decide)
    return taken


def replaying(decisions: list[int]) -> Callable[[int], int]:
    """Return decisions that were taken before; past their end, the first option."""
    left = list(decisions)
    return lambda options: min(left.pop(0), options - 1) if left else 0
