"""How one execution is watched: each call, compensation and scope, with the world before and after it."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import UsageError
from agent_saga.model.effects import Effect
from agent_saga.runtime.ops import Op, on_own_loop
from agent_saga.runtime.process import drop_writer, writer_for
from agent_saga.runtime.rehearsal import Rehearsal
from agent_saga.testing.proving.faults import BEFORE, STOPS, InjectedInterrupt, Place, strike

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from agent_saga.machine.view import StepView
    from agent_saga.model.report import RollbackReport
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Call, Invoke
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.writer import Writer
    from agent_saga.testing.proving.faults import Fault


class _Unknown:
    """A world that was not looked at: equal to itself only."""

    def __repr__(self) -> str:
        return "(not looked at)"


UNKNOWN: Final = _Unknown()


@dataclass(slots=True, kw_only=True)
class Event:
    """One call of a tool or one attempt of a compensation.

    Attributes:
        step: the number of its step; None for a read-only call.
        tool: whose effect it is.
        began, ended: ticks of the execution's own counter; `ended` is 0 while it runs.
        before, after: the world.
        ran: the function was called and did not raise.
        error: what it raised, or what was raised in its place.
        broken: a fault struck here.
    """

    place: Place
    saga_id: str
    scope: int
    step: int | None
    tool: str
    began: int
    ended: int = 0
    before: Any = UNKNOWN
    after: Any = UNKNOWN
    ran: bool = False
    error: BaseException | None = None
    broken: bool = False

    @property
    def changed(self) -> bool:
        """Whether the world differs after it."""
        return known(self.before, self.after) and differ(self.before, self.after)


@dataclass(slots=True, kw_only=True)
class ScopeSeen:
    """One saga or nested scope.

    Attributes:
        saga: as its user holds it.
        ended: 0 while it is open.
        report: what its caller was told; after a recovery, what the log says.
    """

    saga: Saga
    began: int
    ended: int = 0
    before: Any = UNKNOWN
    after: Any = UNKNOWN
    report: RollbackReport | None = None

    @property
    def name(self) -> str:
        """Its name, for people."""
        live = self.saga.live
        return live.view.scopes[self.saga.scope].name if self.saga.scope else live.view.name


def known(*worlds: Any) -> bool:
    """Tell whether worlds were looked at; what `snapshot` returns is not asked, its `==` may do anything."""
    return all(world is not UNKNOWN for world in worlds)


def differ(first: Any, second: Any) -> bool:
    """Tell whether two snapshots differ.

    Raises:
        UsageError: they cannot be compared.
    """
    try:
        return not bool(first == second)
    except Exception as error:
        raise UsageError(
            f"what snapshot() returns cannot be compared with == ({type(error).__name__}: {error}): return plain data, "
            "such as numbers, texts, lists and dicts"
        ) from error


class Ask(Op):
    """Call a function of the user, sync or async, in this thread or loop."""

    __slots__ = ("fn",)

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn = fn

    def block(self) -> Any:
        """See Op.block."""
        result = self.fn()
        return on_own_loop(result) if inspect.iscoroutine(result) else result

    async def wait(self) -> Any:
        """See Op.wait."""
        result = self.fn()
        return await result if inspect.isawaitable(result) else result


class Strike(Op):
    """Let a fault happen."""

    __slots__ = ("fault", "task")

    def __init__(self, fault: Fault, task: asyncio.Task[Any] | None) -> None:
        self.fault, self.task = fault, task

    def block(self) -> None:
        """See Op.block. In a scenario that is async, its task is cancelled, and feels it at its next await."""
        strike(self.fault, self._stop)

    async def wait(self) -> None:
        """See Op.wait."""
        strike(self.fault, self._stop)
        await asyncio.sleep(0)  # Where a cancellation of this very task arrives.

    def _stop(self) -> None:
        if self.task is None:
            raise InjectedInterrupt("broken by the test: Ctrl-C")
        self.task.cancel()


@dataclass(slots=True, kw_only=True)
class Watch(Rehearsal):
    """Watches one execution and breaks it where it is told to.

    Attributes:
        snapshot: of the user.
        faults: what is broken.
        folder: where fresh logs of kits that keep theirs in a file go.
        task: of the scenario, when that is async.
        recovering: the scenario is over, and what it left is being finished.
        struck: the faults that happened.
        out_of_reach: interrupts that were to strike in a thread of the workflow, which none reaches.
        thread: the one that runs the scenario.
        failure: what `snapshot` raised.
    """

    snapshot: Callable[[], Any]
    faults: Sequence[Fault]
    folder: Path
    task: asyncio.Task[Any] | None = None
    recovering: bool = False
    events: list[Event] = field(default_factory=list)
    scopes: list[ScopeSeen] = field(default_factory=list)
    struck: set[Fault] = field(default_factory=set)
    out_of_reach: set[Fault] = field(default_factory=set)
    thread: int = field(default_factory=threading.get_ident)
    failure: BaseException | None = None
    _writers: dict[str, tuple[object, Writer]] = field(default_factory=dict)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)
    _lasting: dict[tuple[str, int], Fault] = field(default_factory=dict)
    _ticks: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # -- logs ---------------------------------------------------------------------------------------------------

    def writer(self, kit: object, log: str) -> Writer | None:
        """See Rehearsal.writer: each execution has a fresh log of the same sort, shared by the kits that share one."""
        with self._lock:
            place = f"memory:{id(kit)}" if log == "memory:" else log
            known = self._writers.get(place)
            if known is None:
                url = log if log == "memory:" else str(self.folder / f"log-{len(self._writers)}.db")
                known = self._writers[place] = (kit, writer_for(url, allow_fs=True))
            return known[1]

    def writers(self) -> list[Writer]:
        """Return the writers of all logs of this execution."""
        return [writer for _, writer in self._writers.values()]

    def close(self) -> None:
        """Close the logs."""
        for writer in self.writers():
            drop_writer(writer)

    # -- scopes -------------------------------------------------------------------------------------------------

    def opened(self, saga: Saga) -> Generator[Op, Any, None]:
        """See Rehearsal.opened."""
        world = yield from self.look()
        self.scopes.append(ScopeSeen(saga=saga, began=self._tick(), before=world))

    def ended(self, saga: Saga) -> Generator[Op, Any, None]:
        """See Rehearsal.ended."""
        world = yield from self.look()
        for scope in reversed(self.scopes):
            if scope.saga is saga and not scope.ended:
                scope.after, scope.report, scope.ended = world, saga.report, self._tick()
                return

    # -- effects ------------------------------------------------------------------------------------------------

    def call(
        self, saga: Saga, declaration: Declaration, step: StepView | None, operation: Call
    ) -> Generator[Op, Any, Any]:
        """See Rehearsal.call."""
        read_only = declaration.effect is Effect.READ_ONLY
        event = self._begin(
            Place(of="call", name=declaration.name, nth=self._nth("call", declaration.name)),
            saga.live.id,
            saga.scope,
            None if read_only or step is None else step.no,
            declaration.name,
        )
        return (yield from self._run(event, operation))

    def recorded(self, saga: Saga, step: StepView) -> Generator[Op, Any, None]:
        """See Rehearsal.recorded."""
        place = next(e.place for e in reversed(self.events) if (e.saga_id, e.step) == (saga.live.id, step.no))
        for fault in self.faults:
            if fault.at == place and fault.how == "fails_next":
                self.struck.add(fault)
                yield Strike(fault, self.task)

    def compensation(self, live: LiveSaga, step: StepView, operation: Invoke) -> Generator[Op, Any, Any]:
        """See Rehearsal.compensation."""
        name = "" if step.recipe is None else step.recipe.name
        event = self._begin(
            Place(of="compensation", name=name, nth=self._nth("compensation", name)),
            live.view.id,
            step.scope,
            step.no,
            step.tool,
        )
        return (yield from self._run(event, operation))

    def _run(self, event: Event, operation: Call | Invoke) -> Generator[Op, Any, Any]:
        event.before = yield from self.look()
        faults = self._faults(event)
        try:
            yield from self._strike(event, [fault for fault in faults if fault.how in BEFORE])
            result = yield operation
            event.ran = True
            event.after = yield from self.look()
            yield from self._strike(event, [fault for fault in faults if fault.how not in BEFORE])
        except BaseException as error:
            event.error = error
            if event.after is UNKNOWN and not isinstance(error, GeneratorExit):
                event.after = yield from self.look()
            raise
        finally:
            event.ended = self._tick()
        return result

    def _strike(self, event: Event, faults: list[Fault]) -> Generator[Op, Any, None]:
        for fault in faults:
            if self._is_out_of_reach(fault):
                self.out_of_reach.add(fault)
                continue
            event.broken = True
            self.struck.add(fault)
            yield Strike(fault, self.task)

    def _is_out_of_reach(self, fault: Fault) -> bool:
        """Ctrl-C interrupts the thread that runs the scenario, and no other one."""
        return fault.how in STOPS and self.task is None and threading.get_ident() != self.thread

    def _faults(self, event: Event) -> list[Fault]:
        found = [fault for fault in self.faults if fault.at == event.place and fault.how != "fails_next"]
        step = (event.saga_id, event.step or 0)
        for fault in found:
            if fault.how == "fails_throughout":
                self._lasting[step] = fault
        lasting = self._lasting.get(step)
        if event.place.of == "compensation" and lasting is not None and lasting not in found and not self.recovering:
            found.append(lasting)
        return found

    # -- counting -----------------------------------------------------------------------------------------------

    def look(self) -> Generator[Op, Any, Any]:
        """Return a copy of what `snapshot` returns: it may hand out the world itself."""
        try:
            value = yield Ask(self.snapshot)
        except Exception as error:  # noqa: BLE001 - the test's own function, not the tool: raised when the run is over.
            self.failure = self.failure or error
            return UNKNOWN
        try:
            return copy.deepcopy(value)
        except Exception:  # noqa: BLE001 - what cannot be copied is compared as it is.
            return value

    def _begin(self, place: Place, saga_id: str, scope: int, step: int | None, tool: str) -> Event:
        event = Event(place=place, saga_id=saga_id, scope=scope, step=step, tool=tool, began=self._tick())
        self.events.append(event)
        return event

    def _nth(self, of: str, name: str) -> int:
        with self._lock:
            self._counts[of, name] = self._counts.get((of, name), 0) + 1
            return self._counts[of, name]

    def _tick(self) -> int:
        with self._lock:
            self._ticks += 1
            return self._ticks
