"""The stage: one disk, one world, one clock, and the simulated processes that play on it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from agent_saga.model.records import kind_of
from agent_saga.runtime import late
from agent_saga.runtime.clock import use_clock
from agent_saga.runtime.declaration import Declarations
from agent_saga.runtime.ops import Call, Commit, Invoke, Join, Sleep
from agent_saga.runtime.scope import ScopeEnvironment
from agent_saga.runtime.writer import Writer
from agent_saga.store import reader
from agent_saga.store.port import Committed
from agent_saga.store.port import Refused as RefusedByLog
from agent_saga.testing.sim.clock import SimClock
from agent_saga.testing.sim.disk import Disk, SimLog
from agent_saga.testing.sim.invariants import Judge
from agent_saga.testing.sim.patching import put
from agent_saga.testing.sim.script import Specs
from agent_saga.testing.sim.tools import StillRunning, Tools, enter_stage, land, leave_stage
from agent_saga.testing.sim.tools import stage as current_stage
from agent_saga.testing.sim.world import Refused, World

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from agent_saga.runtime.ops import Op
    from agent_saga.store.port import Item, StoredRecord, Verdict
    from agent_saga.store.reader import Checked
    from agent_saga.testing.sim.disk import Image
    from agent_saga.testing.sim.script import Step

T = TypeVar("T")
RESTART_S = 1.0
"""How long after a death the next process starts."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is left when every process dies here.

    Attributes:
        image: the log.
        world: the world; nobody changes this copy.
        now_ns: the time.
        label: what had happened last, for people.
    """

    image: Image
    world: World
    now_ns: int
    label: str

    @property
    def digest(self) -> int:
        """A number that differs between crash states that differ."""
        return hash((self.image.digest, self.world.digest))


class SimWriter(Writer):
    """The real group commit, without its thread: what is not durable may be lost at any time."""

    def note_work(self) -> None:
        """See Writer.note_work."""


@dataclass(slots=True)
class _Pending:
    """A call whose caller has given up, and after how many operations its answer comes."""

    item: str
    key: str
    future: concurrent.futures.Future[Any]
    left: int


class Stage:
    """See the module.

    Attributes:
        specs: what the tool and the compensator of each item do.
        snapshots: every crash state passed, while it is a list.
        answered: late answers that came, and the processes that they came to.
        resumed: the program ran again after a death.
        states: a number for each state of log and world passed, while it is a set.
        trace: what happened, in lines for people, while it is a list.
        process: the one that acts now.
        spawn: takes the engine that settles a late answer, where it runs beside others; else it runs at once.
        purse: the limit of the simulated budget, once a saga spends.
        asks: whether each call needs an approval.
        forbidden: items whose calls are refused.
        afterwards: what happens when a schedule is over, before recovery.
    """

    def __init__(self, specs: Mapping[str, Step], tools: Tools) -> None:
        self.specs, self.tools = Specs(specs), tools
        self.clock = SimClock()
        self.disk = Disk()
        self.world = World()
        self.judge = Judge(self)
        self.snapshots: list[Snapshot] | None = None
        self.trace: list[str] | None = None
        self.process: Process | None = None
        self.late_after = 0
        self.answered: list[tuple[str, Process]] = []
        self.resumed = False
        self.states: set[int] | None = None
        self.spawn: Callable[[Process, Generator[Op, Any, Any]], object] | None = None
        self.purse: int | None = None
        self.asks = False
        self.forbidden: set[str] = set()
        self.afterwards: Callable[[], object] = lambda: None

    def restore(self, snapshot: Snapshot) -> None:
        """Begin again where every process had died."""
        self.clock = SimClock(snapshot.now_ns)
        use_clock(self.clock)
        self.clock.advance(RESTART_S)
        self.disk = Disk(snapshot.image)
        self.world = snapshot.world.copy()
        self.judge = Judge(self)
        self.answered.clear()
        self.note(f"-- every process dies: {snapshot.label}")
        self.pass_time(0.0)

    def changed(self, label: str) -> None:
        """Note that the log or the world changed; a crash may come now."""
        self.note(label)
        if self.states is not None:
            self.states.add(hash((self.disk.image.digest, self.world.digest)))
        if self.snapshots is None:
            return
        world, now = self.world.copy(), self.clock.now_ns
        self.snapshots.append(Snapshot(self.disk.image, world, now, label))
        for number, image in enumerate(self.disk.cuts()):
            self.snapshots.append(Snapshot(image, world, now, f"{label}; power lost, cut {number}"))

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            at = (self.clock.now_ns - 1_800_000_000_000_000_000) / 1e9
            who = self.process.token if self.process is not None else "-"
            self.trace.append(f"{at:9.2f} s  {who:<3} {line}")

    def committed(self, log: SimLog, before: Image, items: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
        """See SimLog: called after each commit that changed something."""
        self.judge.committed(log, before, items, verdicts)
        label = ""
        if self.trace is not None or self.snapshots is not None:
            done = (
                item
                for item, verdict in zip(items, verdicts, strict=True)
                if isinstance(verdict, Committed | RefusedByLog)
            )
            kinds = [kind_of(draft.body) for item in done for draft in item.drafts]
            label = f"commit of {', '.join(kinds)}"
        self.changed(label)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and let land what travels."""
        self.clock.advance(seconds)
        if self.world.travelling and self.world.arrive(self.clock.now_ns):
            self.changed("a request arrived late")


class Process:
    """One simulated process: a writer, a token, and a blocking driver for the engine.

    Attributes:
        pending: calls that their callers gave up, and that still run.
        streams: that were left open.
        ending: a scope ends, which the engine shields from cancellation.
    """

    def __init__(self, stage: Stage, ordinal: int) -> None:
        self.stage, self.ordinal, self.token = stage, ordinal, f"p{ordinal}"
        self.log = SimLog(
            stage.disk,
            self.token,
            now_ns=lambda: stage.clock.now_ns,
            committed=stage.committed,
            waits=stage.pass_time,
        )
        self.writer = SimWriter(self.log, _INLINE)
        self.environment = ScopeEnvironment(
            writer=lambda: self.writer, declarations=Declarations(), policies=(), approver=None
        )
        self.pending: list[_Pending] = []
        self.streams: list[object] = []
        self.ending = False
        stage.process = self
        stage.clock.stream = ordinal

    def run(self, engine: Generator[Op, Any, T]) -> T:
        """Drive an engine to its end, as `ops.drive` does."""
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                op = engine.send(value) if error is None else engine.throw(error)
                value, error = None, None
                try:
                    value = self.perform(op)
                except BaseException as raised:  # noqa: BLE001 - handed to the engine, which decides.
                    error = raised
                if self.pending:
                    self.deliver()
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            error = None

    def perform(self, op: Op) -> Any:
        """Do one operation in simulated time."""
        match op:
            case Commit():
                return op.writer.wait(op.ticket)
            case Call():
                return self._call(op)
            case Invoke():
                return op.fn(**op.kwargs)
            case Sleep():
                self.stage.pass_time(op.seconds)
            case Join():
                if not op.future.done():
                    self.stage.pass_time(op.timeout_s)
                return op.future.done()
        return None

    def _call(self, op: Call) -> Any:
        try:
            return op.fn(*op.args, **op.kwargs)
        except StillRunning as running:
            op.running = concurrent.futures.Future()
            self.pending.append(_Pending(running.item, running.key, op.running, self.stage.late_after))
            raise TimeoutError(str(running)) from None

    def deliver(self, *, all_of_them: bool = False) -> None:
        """Let the answers come whose time it is."""
        for entry in list(self.pending):
            entry.left -= 1
            if entry.left < 0 or all_of_them:
                self.pending.remove(entry)
                self.answer(entry.item, entry.key, entry.future)

    def answer(self, item: str, key: str, future: concurrent.futures.Future[Any]) -> None:
        """Let a call that was given up return."""
        self.stage.answered.append((item, self))
        if self.stage.specs[item].act == "late+":
            land(self.stage, item, key)
            future.set_result({"id": item})
        else:
            future.set_exception(Refused(item))

    def exit(self) -> None:
        """End as a process does that nobody kills: the last answers come, the log is closed."""
        self.deliver(all_of_them=True)
        self.writer.close()


class _Inline(concurrent.futures.Executor):
    """Never used: a simulated process commits where it waits."""


_INLINE = _Inline()


@contextlib.contextmanager
def installed(stage: Stage) -> Iterator[Stage]:
    """Put the simulation's clock, driver and tools in the place of the machine's."""
    before = use_clock(stage.clock)
    enter_stage(stage)
    try:
        with (
            put(reader, check_record=_remembering(reader.check_record), check_page=reader.check_each),
            put(late, drive=_drive_late, _warn_text=stage_warned),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield stage
    finally:
        leave_stage()
        use_clock(before)


def _remembering(check: Callable[..., Checked]) -> Callable[..., Checked]:
    """Return the reader's check of one record with a memory.

    It is a function of its arguments alone, and most records of a scenario are read thousands of times: each is
    checked once for each place that it was found in. What it returns is never changed.
    """
    known: dict[tuple[object, ...], Checked] = {}

    def check_record(stored: StoredRecord, previous: bytes, n: int, *more: Any) -> Checked:
        if more and more[0].something:  # What was removed from the log.
            return check(stored, previous, n, *more)
        asked = (stored.hash, stored.body, stored.payload, previous, n, stored.n, stored.pos, stored.saga_id)
        found = known.get(asked)
        if found is None:
            found = known[asked] = check(stored, previous, n, *more)
        return found

    return check_record


def _drive_late(engine: Generator[Op, Any, T]) -> T | None:
    here = current_stage()
    process = here.process
    assert process is not None
    if here.spawn is not None:
        here.spawn(process, engine)
        return None
    return process.run(engine)


def stage_warned(message: str) -> None:
    """Take a warning of the engine about a late answer."""
    current_stage().judge.warned(message)
