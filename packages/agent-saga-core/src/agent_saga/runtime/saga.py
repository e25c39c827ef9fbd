"""The saga as users hold it: the whole, or one nested scope of it."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar

from agent_saga.errors import UsageError
from agent_saga.machine.report import step_report
from agent_saga.model import records as r
from agent_saga.model.report import StepReport
from agent_saga.runtime.current import current_saga_var
from agent_saga.runtime.lookback import Lookback
from agent_saga.runtime.ops import is_async
from agent_saga.runtime.stream import wrap_stream

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from agent_saga.model.call import Policy
    from agent_saga.model.report import RollbackReport
    from agent_saga.runtime.live import Flight, LiveSaga
    from agent_saga.runtime.preview import PlannedSaga
    from agent_saga.runtime.scope import ScopeEnvironment
    from agent_saga.runtime.step import ToolCall

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long the end of a saga may take.

    Attributes:
        drain_s: how long calls that still run are waited for.
        rollback_timeout_s: how long a rollback goes on before it leaves the rest to recovery.
        suspend_ttl_s: how long a suspended saga is left alone.
        on_busy: whether to wait for what another saga holds.
        busy_wait_s: how long.
    """

    drain_s: float = 5.0
    rollback_timeout_s: float = 60.0
    suspend_ttl_s: float = 7 * 24 * 3600.0
    on_busy: Literal["fail", "wait"] = "fail"
    busy_wait_s: float = 3600.0


class Saga:
    """A saga, or a nested scope of one. `async with kit.transaction(...) as saga` gives it.

    Attributes:
        report: what is true after it ended; None before that.
        tags: its tags; a nested scope has those of the scopes around it too.
    """

    def __init__(
        self,
        live: LiveSaga,
        *,
        scope: int,
        limits: Limits,
        policies: tuple[Policy, ...],
        environment: ScopeEnvironment,
        tags: tuple[str, ...] = (),
    ) -> None:
        self.live = live
        self.scope = scope
        self.limits = limits
        self.policies = policies
        self.environment = environment
        self.report: RollbackReport | None = None
        self.rollback_reason: str | None = None
        self.tags: Final = tags
        self.plan: PlannedSaga | None = None  # In a preview, what answers the calls instead of the engine.
        self.sync_in_loop = False
        self.loop: asyncio.AbstractEventLoop | None = None  # The one that runs in the thread of its scope.

    @property
    def id(self) -> str:
        """The saga's id; nested scopes have the id of their saga."""
        return self.live.id

    @property
    def name(self) -> str:
        """The saga's name."""
        return self.live.view.name

    def steps(self, after: int = 0) -> tuple[StepReport, ...]:
        """Return the effectful steps so far, in order; `state` says where each stands.

        Args:
            after: how many of them to leave out at the beginning; those cost nothing.
        """
        known = self.live.lookback
        if known is not None and known.has_no_more(after):
            return ()
        with self.live.lock:
            numbers = self._lookback().effects()
            return tuple(step_report(self.live.view.steps[no]) for no in numbers[after:])

    def step(self, step_id: str) -> StepReport:
        """Return one step as it stands now."""
        with self.live.lock:
            return step_report(self.live.view.steps[_number(self.live, step_id)])

    def places(self) -> tuple[tuple[str, StepReport], ...]:
        """Return the places in which compensations live that may still be needed, each with the newest step needing it.

        Those are the places that compensators state (`lives_in=`).
        """
        with self.live.lock:
            return tuple((place, step_report(step)) for place, step in self._lookback().needed())

    def _lookback(self) -> Lookback:
        if self.live.lookback is None:
            self.live.lookback = Lookback(self.live)
        return self.live.lookback

    def __repr__(self) -> str:
        scope = f", scope {self.scope}" if self.scope else ""
        return f"<Saga {self.id} {self.live.view.name!r}{scope}, {self.live.view.state.value}>"

    def bind(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Return `fn` as a function that runs inside this saga, in whatever thread or task it is called.

        It may run in several threads at once. What it starts after the saga has ended is refused.
        """
        if is_async(fn):

            @functools.wraps(fn)
            async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self.attach():
                    return await fn(*args, **kwargs)  # type: ignore[misc]

            return run_async  # type: ignore[return-value]

        @functools.wraps(fn)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.attach():
                return fn(*args, **kwargs)

        return run

    @contextlib.contextmanager
    def attach(self) -> Iterator[Saga]:
        """Make this saga the current one in this thread or task, for the length of the block."""
        token = current_saga_var.set(self)
        try:
            yield self
        finally:
            current_saga_var.reset(token)

    def waive(self, step: StepReport | str | int) -> None:
        """Say that a failed step no longer counts against the saga.

        Args:
            step: its report, its id or its number.

        Raises:
            UsageError: the saga has no such step.
        """
        no = _number(self.live, step)
        with self.live.lock:
            if no not in self.live.view.steps:
                raise UsageError(f"saga {self.id!r} has no step {no}")
            self.live.emit(r.Waived, step=no, hold=True)

    def roll_back(self, reason: str) -> None:
        """Ask for a rollback: no further step may start, and the scope ends rolled back, without an exception if clean.

        Args:
            reason: recorded as the cause.

        Raises:
            UsageError: the saga has committed before, and its calls are only replayed.
        """
        if self.live.committed_key:
            raise UsageError(f"saga {self.id!r} (key {self.live.view.key!r}) has committed and cannot be rolled back")
        with self.live.lock:
            self.rollback_reason = reason
            self.live.closing.add(self.scope)

    # -- for the engine -----------------------------------------------------------------------------------------

    def pause(self, call: ToolCall, reason: str, error: BaseException) -> None:
        """Note that a framework paused in a call: the saga is suspended when its scope ends, also by this exception."""
        self.live.paused[_pause_name(call)] = reason
        self.live.pauses.append(error)

    def resumed_pause(self, call: ToolCall) -> None:
        """Note that a paused call runs again."""
        self.live.paused.pop(_pause_name(call), None)

    def wrap_stream(self, call: ToolCall, flight: Flight, result: Any) -> Any:
        """See `agent_saga.runtime.stream`."""
        return wrap_stream(self, call, flight, result)


def _pause_name(call: ToolCall) -> str:
    return call.call_id or call.declaration.name


def _number(live: LiveSaga, step: StepReport | str | int) -> int:
    if isinstance(step, StepReport):
        step = step.step_id
    if isinstance(step, int):
        return step
    saga_id, _, number = step.rpartition(":")
    if (saga_id and saga_id != live.id) or not number.isdigit():
        raise UsageError(f"{step!r} is no step of saga {live.id!r}")
    return int(number)
