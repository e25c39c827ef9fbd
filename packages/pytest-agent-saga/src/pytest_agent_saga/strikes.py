"""Chaos: wrapped tools fail at random, by a seed: they raise, lose their answers, or answer too late."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_saga.errors import UsageError
from agent_saga.model.effects import Effect
from agent_saga.runtime.ops import Call, Op, in_thread
from agent_saga.runtime.rehearsal import Rehearsal, rehearsal, use_rehearsal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.saga import Saga

Kind = Literal["error", "lost", "late"]
LATE_WAIT_S: Final = 10.0
"""How long the end of a chaos waits for late answers."""


class ChaosError(Exception):
    """Raised in a tool's place, before it did anything."""


class ChaosTimeout(TimeoutError):
    """Raised in place of an answer."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One thing that was done.

    Attributes:
        kind: `error`: the tool raised and did nothing; `lost`: it took effect and its answer was lost; `late`: it took
            effect, and answered, when its caller had given up.
        nth: the how many-th call of any tool it was.
    """

    kind: Kind
    tool: str
    nth: int


class _Late(Op):
    """Lets a tool run only after its caller has given up, then raises the timeout."""

    __slots__ = ("call", "chaos")

    def __init__(self, call: Call, chaos: Chaos) -> None:
        self.call, self.chaos = call, chaos

    def block(self) -> None:
        """See Op.block."""
        gate = self.chaos.gate
        call = self.call

        def later() -> Any:
            gate.wait(LATE_WAIT_S)
            return call.fn(*call.args, **call.kwargs)

        call.running = in_thread(later)
        self.chaos.pending.append(call.running)
        raise ChaosTimeout("chaos: the answer comes too late")

    async def wait(self) -> None:
        """See Op.wait."""
        call, gate, answer = self.call, self.chaos.gate, concurrent.futures.Future[Any]()

        async def later() -> None:
            while not gate.is_set():  # noqa: ASYNC110 - other threads may set it.
                await asyncio.sleep(0)
            try:
                answer.set_result(await call.fn(*call.args, **call.kwargs))
            except BaseException as error:  # noqa: BLE001 - the late answer.
                answer.set_exception(error)

        self.chaos.tasks.append(asyncio.get_running_loop().create_task(later()))
        call.running = answer
        self.chaos.pending.append(answer)
        raise ChaosTimeout("chaos: the answer comes too late")


class _Release(Op):
    """Let the late answers come, and wait until the engine is done with them."""

    __slots__ = ("chaos",)

    def __init__(self, chaos: Chaos) -> None:
        self.chaos = chaos

    def block(self) -> None:
        """See Op.block."""
        for done in self.chaos.release():
            done.wait(LATE_WAIT_S)

    async def wait(self) -> None:
        """See Op.wait. The engine starts tasks of its own for what comes late in a loop."""
        tasks, self.chaos.tasks = self.chaos.tasks, []
        known = asyncio.all_tasks() - set(tasks)
        events = self.chaos.release()
        while new := asyncio.all_tasks() - known:
            await asyncio.wait(new, timeout=LATE_WAIT_S)
        while not all(done.is_set() for done in events):  # noqa: ASYNC110 - threads set them.
            await asyncio.sleep(0)


@dataclass(slots=True)
class Chaos(Rehearsal):
    """What goes on between the beginning and the end of a `chaos`.

    Attributes:
        seed: gives the same chaos again, for a workflow that makes the same calls in the same order.
        strikes: what was done, in order.
    """

    seed: int
    rates: dict[Kind, float]
    tools: frozenset[str] | None
    strikes: list[Strike] = field(default_factory=list)
    pending: list[concurrent.futures.Future[Any]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    _random: random.Random = field(default_factory=random.Random)
    _calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def format_text(self) -> str:
        """Return the seed and what was done, for people."""
        done = ", ".join(f"{strike.kind} in call {strike.nth} ({strike.tool})" for strike in self.strikes)
        return f"seed {self.seed}: {done or 'nothing'}"

    def call(
        self, saga: Saga, declaration: Declaration, step: StepView | None, operation: Call
    ) -> Generator[Op, Any, Any]:
        """See Rehearsal.call."""
        kind = self._draw(declaration)
        if kind == "error":
            raise ChaosError(f"chaos: {declaration.name} fails")
        if kind == "late":
            yield _Late(operation, self)
        result = yield operation
        if kind == "lost":
            raise ChaosTimeout(f"chaos: the answer of {declaration.name} is lost")
        return result

    def ended(self, saga: Saga) -> Generator[Op, Any, None]:
        """See Rehearsal.ended: now the late answers come."""
        if saga.scope == 0 and self.pending:
            yield _Release(self)

    def release(self) -> list[threading.Event]:
        """Let late answers come; returns what is set as each of them has been dealt with."""
        events = []
        pending, self.pending = self.pending, []
        for answer in pending:
            done = threading.Event()
            answer.add_done_callback(functools.partial(_set, done))  # After the engine's own callback.
            events.append(done)
        gate, self.gate = self.gate, threading.Event()
        gate.set()
        return events

    def _draw(self, declaration: Declaration) -> Kind | None:
        with self._lock:
            self._calls += 1
            hit, which = self._random.random(), self._random.random()
            if self.tools is not None and declaration.name not in self.tools:
                return None
            total = sum(self.rates.values())
            if hit >= total:
                return None
            kind = self._kind(which * total)
            if kind == "late" and declaration.effect is Effect.READ_ONLY:
                kind = "error"  # Nobody waits for what a read has to say later.
            self.strikes.append(Strike(kind, declaration.name, self._calls))
            return kind

    def _kind(self, point: float) -> Kind:
        for kind, rate in self.rates.items():
            point -= rate
            if point < 0:
                return kind
        return "error"


def _set(event: threading.Event, _answer: object) -> None:
    event.set()


@contextlib.contextmanager
def chaos(
    seed: int,
    *,
    error: float = 0.1,
    lost: float = 0.1,
    late: float = 0.1,
    tools: Sequence[str] | None = None,
    tell: Callable[[Chaos], None] | None = None,
) -> Iterator[Chaos]:
    """Let wrapped tools fail at random, in all sagas of this process, for the length of the block.

    Args:
        seed: the same seed and calls give the same failures.
        error: how likely a call raises `ChaosError` and does nothing.
        lost: how likely it takes effect and raises `ChaosTimeout`.
        late: how likely it raises `ChaosTimeout`, and takes effect and answers when its saga has ended.
        tools: only these; by default all.
        tell: called with the chaos at the end.

    Raises:
        ValueError: the rates are no probabilities.
        UsageError: another chaos or proof goes on.
    """
    rates: dict[Kind, float] = {"error": error, "lost": lost, "late": late}
    if min(rates.values()) < 0 or sum(rates.values()) > 1:
        raise ValueError(f"rates {rates} are no probabilities that add up to 1 at most")
    if rehearsal() is not None:
        raise UsageError("a chaos must not run inside another rehearsal")
    made = Chaos(seed, rates, None if tools is None else frozenset(tools))
    made._random.seed(seed)  # noqa: SLF001 - built here.
    use_rehearsal(made)
    try:
        yield made
    finally:
        for done in made.release():
            done.wait(LATE_WAIT_S)
        use_rehearsal(None)
        if tell is not None:
            tell(made)
