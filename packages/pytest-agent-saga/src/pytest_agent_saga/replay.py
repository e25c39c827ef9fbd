"""Is a workflow deterministic? It is suspended after each of its effects, resumed from its log, and compared."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pytest

from agent_saga import SagaSuspended
from agent_saga.errors import SagaError, UsageError
from agent_saga.model.effects import Effect
from agent_saga.runtime.ops import is_async
from agent_saga.runtime.process import drop_writer, writer_for
from agent_saga.runtime.rehearsal import Rehearsal, rehearsal, use_rehearsal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.ops import Call, Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.writer import Writer


@dataclass(frozen=True, slots=True)
class Replays:
    """What `assert_replays` did.

    Attributes:
        effects: the effects of the workflow, in order.
        resumed: how often it was suspended and resumed.
    """

    effects: tuple[str, ...]
    resumed: int


@dataclass(slots=True)
class _Watch(Rehearsal):
    """Counts the bodies that run, and suspends the saga after one of them.

    Attributes:
        stop_after: the number of the effect after which the run is suspended; 0 for none.
        ran: the tools whose bodies ran.
    """

    folder: Path
    stop_after: int = 0
    ran: list[str] = field(default_factory=list)
    keyed: bool = True
    writers: dict[str, tuple[object, Writer]] = field(default_factory=dict)

    def writer(self, kit: object, log: str) -> Writer | None:
        """See Rehearsal.writer: logs of the test's own, which outlive the single run."""
        place = f"memory:{id(kit)}" if log == "memory:" else log
        if place not in self.writers:
            url = str(self.folder / f"log-{len(self.writers)}.db")
            self.writers[place] = (kit, writer_for(url, allow_fs=True))
        return self.writers[place][1]

    def opened(self, saga: Saga) -> Generator[Op, Any, None]:
        """See Rehearsal.opened."""
        self.keyed = self.keyed and saga.live.view.key is not None
        yield from ()

    def call(
        self, saga: Saga, declaration: Declaration, step: StepView | None, operation: Call
    ) -> Generator[Op, Any, Any]:
        """See Rehearsal.call."""
        if declaration.effect is not Effect.READ_ONLY:
            self.ran.append(declaration.name)
        return (yield operation)

    def recorded(self, saga: Saga, step: StepView) -> Generator[Op, Any, None]:
        """See Rehearsal.recorded."""
        yield from ()
        if self.stop_after and len(self.ran) == self.stop_after:
            self.stop_after = 0
            raise SagaSuspended("suspended by assert_replays", saga_id=saga.id)

    def close(self) -> None:
        """Close the logs."""
        for _, writer in self.writers.values():
            drop_writer(writer)


@overload
def assert_replays(
    workflow: Callable[[], Coroutine[Any, Any, Any]], *, reset: Callable[[], Any] | None = None
) -> Awaitable[Replays]: ...
@overload
def assert_replays(workflow: Callable[[], Any], *, reset: Callable[[], Any] | None = None) -> Replays: ...
def assert_replays(
    workflow: Callable[[], Any], *, reset: Callable[[], Any] | None = None
) -> Replays | Awaitable[Replays]:
    """Fail the test unless the workflow can be resumed after each of its effects.

    It runs once to its end, and again on the same log: no effect may run again, and the result must be equal. Then,
    for each effect, on a new log: it is suspended after the effect and resumed: over both runs each effect must have
    run as often as in the first, and the result must be equal.

    Args:
        workflow: opens its saga with a `key=`, and returns a comparable result; sync or async.
        reset: brings the world back before each run on a new log.

    Raises:
        UsageError: its saga has no key, so it cannot be resumed; or this runs inside a rehearsal.
    """
    if rehearsal() is not None:
        raise UsageError("assert_replays must not run inside another rehearsal")
    return _areplays(workflow, reset) if is_async(workflow) else _drive(_replays(reset), workflow)


def _drive(steps: Generator[_Watch, Any, Replays], workflow: Callable[[], Any]) -> Replays:
    try:
        watch = next(steps)
        while True:
            watch = steps.send(_outcome(watch, workflow))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def _areplays(workflow: Callable[[], Any], reset: Callable[[], Any] | None) -> Replays:
    steps = _replays(reset)
    try:
        watch = next(steps)
        while True:
            use_rehearsal(watch)
            try:
                result: Any = ("returned", await workflow())
            except SagaSuspended:
                result = ("suspended", None)
            except SagaError as error:
                result = ("raised", error)
            finally:
                use_rehearsal(None)
            watch = steps.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def _outcome(watch: _Watch, workflow: Callable[[], Any]) -> tuple[str, Any]:
    use_rehearsal(watch)
    try:
        return ("returned", workflow())
    except SagaSuspended:
        return ("suspended", None)
    except SagaError as error:
        return ("raised", error)
    finally:
        use_rehearsal(None)


def _replays(reset: Callable[[], Any] | None) -> Generator[_Watch, Any, Replays]:
    """Yield what the workflow is to be run under; takes what came of it."""
    with tempfile.TemporaryDirectory(prefix="agent-saga-replay-") as folder:
        first, result = yield from _whole(Path(folder) / "0", reset)
        for number in range(1, len(first) + 1):
            yield from _interrupted(Path(folder) / str(number), reset, number, first, result)
    return Replays(tuple(first), len(first))


def _whole(folder: Path, reset: Callable[[], Any] | None) -> Generator[_Watch, Any, tuple[list[str], Any]]:
    watch = _fresh(folder, reset)
    try:
        how, result = yield watch
        if not watch.keyed:
            raise UsageError("assert_replays needs a workflow whose saga has a key=: without one nothing is resumed")
        _check(how == "returned", "it does not end normally by itself", how, result)
        ran, watch.ran = watch.ran, []
        how, again = yield watch
        _check(how == "returned", "run again on its log, it does not end normally", how, again)
        _check(watch.ran == [], f"run again on its log, these effects ran again: {', '.join(watch.ran)}", how, again)
        _check(again == result, f"run again on its log, it returns {again!r}, not {result!r}", how, again)
        return ran, result
    finally:
        watch.close()


def _interrupted(
    folder: Path, reset: Callable[[], Any] | None, number: int, first: list[str], result: Any
) -> Generator[_Watch, Any, None]:
    watch = _fresh(folder, reset)
    watch.stop_after = number
    place = f"suspended after effect {number} ({first[number - 1]}) and resumed"
    try:
        how, _ = yield watch
        _check(how == "suspended", f"{place}: it did not stop: something caught the suspension", how, None)
        how, again = yield watch
        _check(how == "returned", f"{place}, it does not end normally", how, again)
        more, fewer = Counter(watch.ran) - Counter(first), Counter(first) - Counter(watch.ran)
        _check(not more, f"{place}, these effects ran again: {', '.join(more.elements())}", how, again)
        _check(not fewer, f"{place}, these effects never ran: {', '.join(fewer.elements())}", how, again)
        _check(again == result, f"{place}, it returns {again!r}, not {result!r}", how, again)
    finally:
        watch.close()


def _fresh(folder: Path, reset: Callable[[], Any] | None) -> _Watch:
    folder.mkdir()
    made = reset() if reset is not None else None
    if asyncio.iscoroutine(made):
        made.close()
        raise UsageError("assert_replays takes a sync reset")
    return _Watch(folder)


def _check(holds: bool, text: str, how: str, what: Any) -> None:  # noqa: FBT001 - an assertion.
    if not holds:
        pytest.fail(f"the workflow does not replay: {text}" + (f": {what}" if how == "raised" else ""), pytrace=False)
