"""What a rule of `AdapterSuite` works with: a kit with a fresh log, a world, tools that act on it, and runs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import threading
import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_saga import AgentKit, compensator
from agent_saga.spi import read_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from agent_saga import RollbackReport
    from pytest_agent_saga.conformance.driver import AdapterDriver, Agent, Run, Turn

WAIT_S: Final = 10.0
"""How long a test waits for something that must happen."""
LOOK_S: Final = 0.01
"""How often a test looks at the log meanwhile."""
THREAD: Final = "thread-1"
_numbers: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Way:
    """How agents run and tools are written in one variant."""

    run: str
    body: str

    def __str__(self) -> str:
        """Return it for a test's id."""
        return self.run if self.run == self.body else f"{self.run}-{self.body}-tools"


class World:
    """The outside world.

    Attributes:
        effects: what stands.
        landed: what ever happened.
        calls: the bodies that ever ran.
    """

    def __init__(self) -> None:
        self.effects: list[tuple[str, str, int]] = []
        self.landed: list[tuple[str, str, int]] = []
        self.calls: list[str] = []
        self._changed = threading.Condition()

    def enter(self, tool: str) -> int:
        """Say that a tool's body runs; returns how many times it has by now."""
        with self._changed:
            self.calls.append(tool)
            self._changed.notify_all()
            return self.calls.count(tool)

    def do(self, tool: str, customer: str, amount: int) -> None:
        """Let an effect happen."""
        with self._changed:
            self.effects.append((tool, customer, amount))
            self.landed.append((tool, customer, amount))
            self._changed.notify_all()

    def undo(self, tool: str, customer: str, amount: int) -> None:
        """Take an effect back, if it is there."""
        with self._changed:
            if (tool, customer, amount) in self.effects:
                self.effects.remove((tool, customer, amount))
            self._changed.notify_all()

    def count(self, tool: str) -> int:
        """Return how many effects of a tool stand."""
        return sum(effect[0] == tool for effect in self.effects)

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Wait until something about the world, or about the log, holds; at most `WAIT_S`."""
        until = time.monotonic() + WAIT_S
        with self._changed:
            while not predicate():
                self._changed.wait(LOOK_S)
                assert time.monotonic() < until, f"still: calls {self.calls}, effects {self.effects}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a saga around some runs came to.

    Attributes:
        error: what left the saga's scope.
        report: what its caller was told.
    """

    runs: list[Run]
    error: BaseException | None
    report: RollbackReport | None

    @property
    def run(self) -> Run:
        """The last run."""
        assert self.runs, f"the run did not end normally: {self.error!r}"
        return self.runs[-1]

    @property
    def committed(self) -> bool:
        """Whether the saga committed."""
        return self.report is not None and self.report.outcome == "committed"


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to be done inside (or outside of) a saga: turns to run, or an answer to a pause."""

    agent: Agent
    turns: Sequence[Turn] = ()
    thread: str = THREAD
    answer: bool | None = None

    def run(self) -> Run:
        """Do it without an event loop."""
        if self.answer is not None:
            return self.agent.answer(self.thread, approved=self.answer)
        return self.agent.run(self.turns, thread=self.thread)

    def start(self, how: str) -> Awaitable[Run]:
        """Do it in the running event loop."""
        if self.answer is not None:
            return self.agent.aanswer(self.thread, approved=self.answer)
        if how == "stream":
            return self.agent.astream(self.turns, thread=self.thread)
        return self.agent.arun(self.turns, thread=self.thread)


@dataclass
class AdapterCase:
    """One test's kit, world and driver."""

    driver: AdapterDriver
    folder: Path
    way: Way
    swallow: bool
    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        self.kit = self.new_kit()

    def new_kit(self) -> AgentKit:
        """Return a kit on this case's log; it has no declarations yet."""
        self.kit = AgentKit(log=self.folder / "log.db", allow_fs=True)
        return self.kit

    def close(self) -> None:
        """Close the log, when the engine has recorded what landed late: tests see its effects a little earlier."""
        for thread in threading.enumerate():
            if thread.name == "agent-saga-late":
                thread.join(WAIT_S)
        self.kit.close()

    # -- tools --------------------------------------------------------------------------------------------------

    def tool(
        self,
        name: str,
        act: Callable[[str, int], Any] | None = None,
        *,
        effect: str = "compensable",
        absent_ok: bool = False,
        wait: threading.Event | None = None,
        linger: threading.Event | None = None,
        **options: Any,
    ) -> Callable[..., Any]:
        """Return a tool's body, and declare it (a compensable one with a compensator).

        Args:
            name: of the tool.
            act: what it does with its arguments, and what it returns; by default an effect.
            effect: its class.
            absent_ok: its compensator may run although there is no effect.
            wait: the body waits until this is set before it acts.
            linger: the same after it has acted.
            options: of the declaration.
        """
        if effect in {"compensable", "reversible"}:
            options["compensate"] = self._compensator(name, absent_ok=absent_ok)
        body = self.body(name, act, wait=wait, linger=linger)
        self.kit.declare(name, effect=effect, **options)
        return body

    def body(
        self,
        name: str,
        act: Callable[[str, int], Any] | None = None,
        *,
        wait: threading.Event | None = None,
        linger: threading.Event | None = None,
    ) -> Callable[..., Any]:
        """Return a function that can be a tool, of the nature that this variant asks for."""
        world = self.world

        def default(customer: str, amount: int) -> str:
            world.do(name, customer, amount)
            return f"{name} for {customer}: {amount}"

        perform = act or default
        if self.way.body == "async":

            async def body(customer: str, amount: int) -> Any:
                world.enter(name)
                await asyncio.sleep(0)
                await _event(wait)
                result = perform(customer, amount)
                await _event(linger)
                return result

        else:

            def body(customer: str, amount: int) -> Any:  # type: ignore[misc]
                world.enter(name)
                _ = wait is None or wait.wait(WAIT_S)
                result = perform(customer, amount)
                _ = linger is None or linger.wait(WAIT_S)
                return result

        body.__name__ = body.__qualname__ = name
        body.__doc__ = f"Do {name} for a customer."
        body.__annotations__ = {"customer": str, "amount": int, "return": str}
        return body

    def _compensator(self, tool: str, *, absent_ok: bool) -> Any:
        world = self.world

        def undo(customer: str, amount: int) -> None:
            world.undo(tool, customer, amount)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It is a closure: the test's own process compensates.
            made = compensator(f"conformance-{next(_numbers)}", idempotent=True, safe_if_absent=absent_ok)(undo)
        return made.bind(customer="kwargs.customer", amount="kwargs.amount")

    def agent(
        self,
        *bodies: Callable[..., Any],
        swallow: bool | None = None,
        retries: int = 0,
        protect: int = 1,
        bare: bool = False,
    ) -> Agent:
        """Return an agent with these tools."""
        return self.driver.agent(
            bodies,
            kit=None if bare else self.kit,
            swallow=self.swallow if swallow is None else swallow,
            retries=retries,
            protect=protect,
        )

    # -- runs ---------------------------------------------------------------------------------------------------

    def alone(self, work: Work) -> Run:
        """Do something outside of any saga."""
        if self.way.run == "sync":
            return work.run()

        async def main() -> Run:
            return await work.start(self.way.run)

        return asyncio.run(main())

    def transact(self, *works: Work, leave: BaseException | None = None, **options: Any) -> Outcome:
        """Do things inside one saga; raise `leave` at its end."""
        if self.way.run == "sync":
            return self._sync(works, leave, options)
        return asyncio.run(self._async(works, leave, options))

    def _sync(self, works: Sequence[Work], leave: BaseException | None, options: dict[str, Any]) -> Outcome:
        runs: list[Run] = []
        transaction = self.kit.transaction("conformance", **options)
        saga = transaction.__enter__()
        try:
            try:
                runs.extend(work.run() for work in works)
                if leave is not None:
                    raise leave
            except BaseException as error:
                transaction.__exit__(type(error), error, error.__traceback__)
                raise
            transaction.__exit__(None, None, None)
        except BaseException as error:  # noqa: BLE001 - part of the outcome.
            return Outcome(runs, error, saga.report)
        return Outcome(runs, None, saga.report)

    async def _async(self, works: Sequence[Work], leave: BaseException | None, options: dict[str, Any]) -> Outcome:
        runs: list[Run] = []
        transaction = self.kit.transaction("conformance", **options)
        saga = await transaction.__aenter__()
        try:
            try:
                for work in works:
                    runs += [await work.start(self.way.run)]
                if leave is not None:
                    raise leave
            except BaseException as error:
                await transaction.__aexit__(type(error), error, error.__traceback__)
                raise
            await transaction.__aexit__(None, None, None)
        except BaseException as error:  # noqa: BLE001 - part of the outcome.
            return Outcome(runs, error, saga.report)
        return Outcome(runs, None, saga.report)

    def cancelled(self, work: Work, tool: str, release: threading.Event, **options: Any) -> Outcome:
        """Do something inside a saga in an event loop, cancel it when a tool is in flight, release that afterwards."""

        async def main() -> Outcome:
            transaction = self.kit.transaction("conformance", **options)
            saga = await transaction.__aenter__()
            runs: list[Run] = []
            try:
                try:
                    task = asyncio.ensure_future(work.start(self.way.run))
                    while not self._is_in_flight(tool) and not task.done():
                        await asyncio.sleep(LOOK_S)
                    task.cancel()
                    runs.append(await task)
                except BaseException as error:
                    await transaction.__aexit__(type(error), error, error.__traceback__)
                    raise
                await transaction.__aexit__(None, None, None)
            except BaseException as error:  # noqa: BLE001 - part of the outcome.
                return Outcome(runs, error, saga.report)
            finally:
                release.set()  # Before the loop ends: it waits for its threads.
            return Outcome(runs, None, saga.report)

        return asyncio.run(main())

    def _is_in_flight(self, tool: str) -> bool:
        """Tell whether a tool's body runs; an async one has acted by then, and lingers."""
        if self.way.body == "sync":
            return tool in self.world.calls
        return any(effect[0] == tool for effect in self.world.landed)

    def in_lost_context(self, work: Work) -> None:
        """Do something while a saga is open here, in a thread that knows nothing of it."""
        done: list[BaseException | None] = []

        def elsewhere() -> None:
            try:
                self.alone(work)
            except BaseException as error:  # noqa: BLE001 - whatever it raises, it must not have happened.
                done.append(error)

        with contextlib.suppress(Exception), self.kit.transaction("conformance"):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join(WAIT_S)
            assert not thread.is_alive()

    # -- the log ------------------------------------------------------------------------------------------------

    def records(self, kind: str, tool: str | None = None) -> list[dict[str, Any]]:
        """Return the records of one kind, and of one tool, that are in the log now."""
        if not (self.folder / "log.db").exists():
            return []
        found = read_records(str(self.folder / "log.db"))
        return [one for one in found if one["kind"] == kind and tool in {None, one.get("tool")}]


async def _event(event: threading.Event | None) -> None:
    """Wait for an event of a thread without blocking the loop or starting a thread."""
    while event is not None and not event.is_set():
        await asyncio.sleep(LOOK_S)


def wrapped_tool(case: AdapterCase, name: str) -> Callable[..., Any]:
    """Return a body that is wrapped by the kit itself."""
    made = case._compensator(name, absent_ok=False)  # noqa: SLF001 - a part of the case that only this needs.
    wrapped = case.kit.wrap(case.body(name), effect="compensable", name=name, compensate=made)
    assert inspect.signature(wrapped).parameters.keys() == {"customer", "amount"}
    return wrapped
