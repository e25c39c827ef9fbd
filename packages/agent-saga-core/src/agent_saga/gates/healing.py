"""Going forward within bounds: declared fallbacks of a step, and a loop that tells a model why its call failed.

Plain Python over the public API: each attempt is an ordinary call of a tool, so it passes the gate and is a step of
its own with its own compensation. Neither goes on when it is not known whether the last attempt had an effect.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_saga.errors import DeclarationError, GateRefused, NoSaga, SagaError
from agent_saga.runtime.clock import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from agent_saga.model.call import SagaFacts

    Steps = Generator[Any, Any, Any]

ATTEMPTS_MAX: Final = 20
"""No loop makes more attempts than this."""


class HealingFailed(SagaError):
    """No attempt succeeded, or going on was not safe. `problems` says what became of each.

    Whatever succeeded in between stands as a step of the saga, which compensates it if it rolls back.
    """

    effect = "unknown"
    retry = "never"
    code = "AS-0210"

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why an attempt did not succeed, as a model may read it.

    Attributes:
        attempt: its number, from 1.
        kind: `refused` (by a policy or a human, before any effect), `failed` (no effect is known to stand), `in_doubt`
            (it may have had an effect), `repeated` (the same call had been refused already; it was not made).
        reason: in one line.
        call: what was tried.
        error: what was raised.
    """

    attempt: int
    kind: Literal["refused", "failed", "in_doubt", "repeated"]
    reason: str
    call: Any = None
    error: Exception | None = None


def _problem_of(error: Exception, attempt: int, call: Any, saga: SagaFacts | None, known: set[str]) -> Problem:
    """Judge what an attempt raised."""
    kind: Literal["refused", "failed", "in_doubt"] = "failed"
    if isinstance(error, GateRefused):
        kind = "refused"
    elif getattr(error, "effect", "none") != "none" or _is_uncertain(saga, known):
        kind = "in_doubt"
    return Problem(attempt=attempt, kind=kind, reason=f"{type(error).__name__}: {error}", call=call, error=error)


def _is_uncertain(saga: SagaFacts | None, known: set[str]) -> bool:
    """Tell whether a step that is new since then may have had an effect that its caller does not know of.

    Without a saga nobody knows, so nothing is certain.
    """
    if saga is None:
        return True
    return any(step.state == "in_doubt" and step.step_id not in known for step in saga.steps())


def _doubts(saga: SagaFacts | None) -> set[str]:
    return set() if saga is None else {step.step_id for step in saga.steps() if step.state == "in_doubt"}


def _current() -> SagaFacts | None:
    from agent_saga import current_saga

    return current_saga()


# -- declared fallbacks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fallback:
    """What to try when the attempts before it did not succeed.

    Args:
        tool: another wrapped tool; None: the one of the proposal.
        repair: makes the arguments from those of the proposal and the last problem; None: they stay as they are.
        on: for which problems it is meant: `refused`, `failed`.
    """

    tool: Callable[..., Any] | None = None
    repair: Callable[[Mapping[str, Any], Problem], Mapping[str, Any]] | None = None
    on: tuple[str, ...] = ("refused", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfHealedProposal:
    """A call with its declared fallbacks, tried in order until one succeeds.

    A fallback runs only when the attempt before it is known to have had no effect: an attempt that was refused, or
    that failed. After one in doubt nothing more is tried, since the effect could then happen twice.

    Args:
        tool: a wrapped tool.
        kwargs: its arguments.
        fallbacks: what to try then.
    """

    tool: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    fallbacks: tuple[Fallback, ...] = ()

    def __post_init__(self) -> None:
        """Check the fallbacks.

        Raises:
            DeclarationError: one of them would repeat the very call that did not succeed, or there are too many.
        """
        object.__setattr__(self, "fallbacks", tuple(self.fallbacks))
        if len(self.fallbacks) >= ATTEMPTS_MAX:
            raise DeclarationError(f"at most {ATTEMPTS_MAX - 1} fallbacks; there are {len(self.fallbacks)}")
        for fallback in self.fallbacks:
            if fallback.repair is None and fallback.tool in {None, self.tool}:
                raise DeclarationError("a fallback needs another tool, or repair= to change the arguments")
            if not set(fallback.on) <= {"refused", "failed"}:
                raise DeclarationError(f"on must be some of 'refused', 'failed'; it is {fallback.on!r}")

    def run(self, saga: SagaFacts | None = None) -> Any:
        """Return the result of the first attempt that succeeds; for sync tools.

        Args:
            saga: by default the current one.

        Raises:
            HealingFailed: none did; its cause is what the last one raised.
            NoSaga: there is no saga, so nobody knows what a failed attempt left.
        """
        return _drive(self._steps(saga or _current()))

    async def arun(self, saga: SagaFacts | None = None) -> Any:
        """See `run`; for sync and async tools."""
        return await _adrive(self._steps(saga or _current()))

    def _steps(self, saga: SagaFacts | None) -> Steps:
        if saga is None:
            raise NoSaga("fallbacks need a saga: without one, nobody knows whether a failed attempt had an effect")
        problems: list[Problem] = []
        for number, fallback in enumerate((Fallback(), *self.fallbacks), start=1):
            if problems and (problems[-1].kind == "in_doubt" or problems[-1].kind not in fallback.on):
                continue
            tool, kwargs = fallback.tool or self.tool, dict(self.kwargs)
            known = _doubts(saga)
            try:
                if fallback.repair is not None:
                    kwargs = dict(fallback.repair(self.kwargs, problems[-1]))
                return (yield tool(**kwargs))
            except Exception as error:  # noqa: BLE001 - judged, kept, and raised as the cause if nothing succeeds.
                problems.append(_problem_of(error, number, (_name(tool), kwargs), saga, known))
        raise _failure("no attempt succeeded", problems)


# -- a loop with a model -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfHealingLoop:
    """Tells a model function why its call did not succeed and makes the call that it proposes instead, within bounds.

    Args:
        propose: given the problems so far (none at first), returns the next call, or None to give up. Sync or async.
        run_call: makes a call that `propose` returned. Sync or async.
        sleep: waits for so many seconds: `time.sleep`, `asyncio.sleep`, or what a test passes.
        attempts_max: how many calls are made at most.
        backoff_s: the wait after the first failure; it doubles, with jitter. A refusal is not waited for.
        backoff_s_max: the longest wait.
        escalate: given all problems when nothing succeeded; what it returns, `run` returns. Sync or async. With None
            `HealingFailed` is raised.
        same: tells whether two calls are the same one, which is not made again after it was refused.

    It stops at once when an attempt may have had an effect that is not known: a new call could make it happen twice.
    """

    propose: Callable[[tuple[Problem, ...]], Any]
    run_call: Callable[[Any], Any]
    sleep: Callable[[float], Any]
    attempts_max: int = 3
    backoff_s: float = 0.5
    backoff_s_max: float = 30.0
    escalate: Callable[[tuple[Problem, ...]], Any] | None = None
    same: Callable[[Any, Any], bool] = field(default=lambda one, other: bool(one == other))

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            DeclarationError: they cannot work.
        """
        if type(self.attempts_max) is not int or not 1 <= self.attempts_max <= ATTEMPTS_MAX:
            raise DeclarationError(f"attempts_max must be 1 to {ATTEMPTS_MAX}; it is {self.attempts_max!r}")
        if not 0 <= self.backoff_s <= self.backoff_s_max < float("inf"):
            raise DeclarationError("backoff_s must be at least 0 and at most backoff_s_max")

    def run(self, saga: SagaFacts | None = None) -> Any:
        """Return what the first successful call returned; for sync functions.

        Args:
            saga: by default the current one.

        Raises:
            HealingFailed: none succeeded, and nobody was told to take over; its cause is what the last one raised.
            NoSaga: there is no saga, so nobody knows what a failed attempt left.
        """
        return _drive(self._steps(saga or _current()))

    async def arun(self, saga: SagaFacts | None = None) -> Any:
        """See `run`; for sync and async functions."""
        return await _adrive(self._steps(saga or _current()))

    def _steps(self, saga: SagaFacts | None) -> Steps:
        if saga is None:
            raise NoSaga("the loop needs a saga: without one, nobody knows whether a failed attempt had an effect")
        problems: list[Problem] = []
        why = f"none of {self.attempts_max} attempts succeeded"
        for attempt in range(1, self.attempts_max + 1):
            call = yield self.propose(tuple(problems))
            if call is None:
                why = "the model gave up"
                break
            if any(known.kind in {"refused", "repeated"} and self.same(known.call, call) for known in problems):
                reason = "this very call was refused already; propose another one"
                problems.append(Problem(attempt=attempt, kind="repeated", reason=reason, call=call))
                continue
            known_doubts = _doubts(saga)
            try:
                return (yield self.run_call(call))
            except Exception as error:  # noqa: BLE001 - judged, given to the model, and raised as the cause at the end.
                problems.append(_problem_of(error, attempt, call, saga, known_doubts))
            if problems[-1].kind == "in_doubt":
                why = "an attempt may have had an effect, so no other was made"
                break
            if problems[-1].kind == "failed" and attempt < self.attempts_max:
                yield self.sleep(self._delay_s(attempt))
        if self.escalate is not None:
            return (yield self.escalate(tuple(problems)))
        raise _failure(why, problems)

    def _delay_s(self, attempt: int) -> float:
        return min(self.backoff_s * 2.0 ** (attempt - 1), self.backoff_s_max) * clock().jitter()


def _failure(why: str, problems: list[Problem]) -> HealingFailed:
    told = "; ".join(f"{problem.attempt}: {problem.kind}, {problem.reason}" for problem in problems)
    failure = HealingFailed(f"{why} ({told})" if told else why, tuple(problems))
    failure.__cause__ = problems[-1].error if problems else None
    return failure


def _name(tool: Callable[..., Any]) -> str:
    return getattr(tool, "__name__", None) or type(tool).__name__


# -- one logic, two drivers ----------------------------------------------------------------------------------------


def _drive(steps: Steps) -> Any:
    """Run the steps; what they yield are values, and nothing to be awaited."""

    def value_of(value: Any) -> Any:
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise DeclarationError("a function returned an awaitable; use `await ... .arun()`")
        return value

    try:
        value = steps.send(None)
        while True:
            value = steps.send(value_of(value))
    except StopIteration as end:
        return end.value


async def _adrive(steps: Steps) -> Any:
    """Run the steps and await what they yield, where it is to be awaited."""
    try:
        value = steps.send(None)
        while True:
            try:
                answer = await value if inspect.isawaitable(value) else value
            except BaseException as error:  # noqa: BLE001 - the steps decide what to do with it.
                value = steps.throw(error)
            else:
                value = steps.send(answer)
    except StopIteration as end:
        return end.value
