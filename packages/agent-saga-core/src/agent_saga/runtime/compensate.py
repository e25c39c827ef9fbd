"""Running one compensation: recorded before, recorded after, read back, tried again where that is safe."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import Conflict, HandlerUnavailable
from agent_saga.machine.plan import Action, next_action
from agent_saga.machine.states import StepState
from agent_saga.model import paths
from agent_saga.model import records as r
from agent_saga.model.effects import ALREADY_DONE
from agent_saga.model.ids import compensation_key
from agent_saga.model.values import decode, encode, is_complete
from agent_saga.runtime.classify import is_in_doubt
from agent_saga.runtime.clock import clock
from agent_saga.runtime.halts import is_frozen
from agent_saga.runtime.ops import Invoke, Sleep
from agent_saga.runtime.registry import check_kwargs, compensator_for, function_for
from agent_saga.runtime.rehearsal import rehearsal

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.machine.view import StepView
    from agent_saga.model.records import Recipe
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op

ATTEMPTS_AT_ONCE: Final = 3
"""Attempts within one rollback or one sweep; later sweeps go on."""
BACKOFF_S: Final = 0.1
BACKOFF_S_MAX: Final = 5.0
SWEEP_BACKOFF_S: Final = 1.0
SWEEP_BACKOFF_S_MAX: Final = 3600.0


@dataclass(slots=True)
class Budget:
    """How long a rollback may take, by the monotonic clock.

    Attributes:
        until: no compensation begins after this.
        unsettled: probe again later instead of waiting longer than this for `settle_s`.
    """

    until: float
    settle_wait_s: float = 30.0

    @classmethod
    def of(cls, seconds: float) -> Budget:
        """Return a budget that ends `seconds` from now."""
        return cls(clock().monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds left; zero or less when it is used up."""
        return self.until - clock().monotonic()


def compensate(live: LiveSaga, step: StepView, budget: Budget) -> Generator[Op, Any, None]:
    """Compensate one step as far as it goes now; the view says what came of it.

    Raises:
        LogFailed: an attempt could not be recorded, so it was not made (or its outcome is not recorded).
    """
    for tried in range(ATTEMPTS_AT_ONCE):
        if tried:
            delay = min(BACKOFF_S * 2 ** (tried - 1), BACKOFF_S_MAX) * clock().jitter()
            if delay > budget.left_s:
                return
            yield Sleep(delay)
        if is_frozen(live):
            return
        yield from _attempt(live, step, budget)
        if not (yield from _may_try_again(live, step)):
            return


def _may_try_again(live: LiveSaga, step: StepView) -> Generator[Op, Any, bool]:
    """After an attempt: one that failed may be tried again; one in doubt is looked at first."""
    if step.no in live.notes and step.state is not StepState.COMPENSATING:
        return False
    if step.state is StepState.COMPENSATING and (yield from recheck(live, step)):
        return False
    return next_action(step, verified=True) is Action.COMPENSATE


def recheck(live: LiveSaga, step: StepView) -> Generator[Op, Any, bool]:
    """Ask the verifier whether an attempt without a known outcome succeeded; True when it did."""
    recipe = _recipe(step)
    if recipe.verify is None:
        return False
    confirmed = yield from _verify(live, step, recipe)
    if confirmed is True:
        fields: dict[str, Any] = {"state": "compensated", "reason": "confirmed by its verifier"}
    elif _may_run_again(recipe) or (confirmed is False and step.verified is False):
        return False
    elif confirmed is False:
        fields = {"state": "in_doubt", "reason": f"not confirmed by {recipe.verify!r}, and it may not run again unseen"}
    else:
        asked = step.unknowable + 1
        fields = {"state": "in_doubt", "reason": live.notes.get(step.no, ""), "next_at": next_at(asked)}
    attempt = step.compensation_attempts
    ticket = live.emit(r.CompensationOutcome, step=step.no, attempt=attempt, verified=confirmed, **fields)
    yield from live.committed(ticket)
    return confirmed is True


def _may_run_again(recipe: Recipe) -> bool:
    return recipe.idempotent or recipe.key_param is not None


def _recipe(step: StepView) -> Recipe:
    if step.recipe is None:
        raise HandlerUnavailable(f"step {step.id!r} has no compensation")
    return step.recipe


def _attempt(live: LiveSaga, step: StepView, budget: Budget) -> Generator[Op, Any, None]:
    recipe = _recipe(step)
    try:
        handler = compensator_for(recipe.name, recipe.version)
        bound, texts = _kwargs(live, step, recipe)
        if recipe.key_param is not None:
            bound[recipe.key_param] = compensation_key(live.view.id, step.no, step.generation)
        check_kwargs(handler, bound)
    except HandlerUnavailable as error:
        live.notes[step.no] = str(error)
        return
    live.notes.pop(step.no, None)
    attempt = step.compensation_attempts + 1
    ticket = live.emit(
        r.CompensationIntent,
        {f"compensation.{name}": text for name, text in texts.items()},
        durable=True,
        step=step.no,
        compensator=recipe.name,
        version=recipe.version,
        key=compensation_key(live.view.id, step.no, step.generation),
        attempt=attempt,
        generation=step.generation,
    )
    yield from live.committed(ticket)
    outcome = yield from _run(live, step, Invoke(handler.fn, bound, recipe.timeout_s, limit_s=max(budget.left_s, 1.0)))
    if outcome["state"] in {"compensated", "already_done"}:
        outcome |= yield from _read_back(live, step, recipe)
    if outcome["state"] == "failed":
        outcome["next_at"] = next_at(attempt)
    live.commit_now(live.emit(r.CompensationOutcome, step=step.no, attempt=attempt, **outcome))


def _kwargs(live: LiveSaga, step: StepView, recipe: Recipe) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a compensation's kwargs, and the texts to record when they are bound only now, from the intent alone."""
    if step.compensation is None:
        texts = _bind_from_intent(step, recipe)
        return {name: decode(text) for name, text in texts.items()}, texts
    live_objects = live.bound_objects.get(step.no, {})
    for name, text in step.compensation.items():
        if name not in live_objects and not is_complete(text):
            raise HandlerUnavailable(
                f"argument {name!r} of compensator {recipe.name!r} could not be stored ({decode(text)!r}), so only the "
                f"process that made the call could compensate step {step.id!r}: compensate it by hand and settle it"
            )
    stored = {name: decode(text) for name, text in step.compensation.items() if name not in live_objects}
    return {**stored, **live_objects}, {}


def _bind_from_intent(step: StepView, recipe: Recipe) -> dict[str, str]:
    roots = {"kwargs": {name: decode(text) for name, text in step.kwargs.items()}, "key": step.key, "result": None}
    try:
        bound = {name: paths.resolve(path, roots) for name, path in (recipe.bind or {}).items()}
    except paths.PathMissing as error:
        raise HandlerUnavailable(f"compensator {recipe.name!r} of step {step.id!r} cannot be bound: {error}") from error
    texts = {name: encode(value).text for name, value in bound.items()}
    lost = [
        path
        for path in (recipe.bind or {}).values()
        if path != "key" and not is_complete(step.kwargs[path.split(".")[1]])
    ]
    if lost:
        raise HandlerUnavailable(
            f"compensator {recipe.name!r} of step {step.id!r}: {', '.join(lost)} could not be stored"
        )
    return texts


def _run(live: LiveSaga, step: StepView, operation: Invoke) -> Generator[Op, Any, dict[str, Any]]:
    """Run one attempt and return the fields of its outcome. Only cancellation of the process itself gets through."""
    beside = rehearsal()
    try:
        result = (yield operation) if beside is None else (yield from beside.compensation(live, step, operation))
    except Conflict as error:
        return {"state": "conflict", "reason": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a compensator raises is recorded and judged.
        state = "in_doubt" if is_in_doubt(error) else "failed"
        return {"state": state, "reason": f"{type(error).__name__}: {error}"}
    if type(result) in {types.GeneratorType, types.AsyncGeneratorType}:
        return {"state": "failed", "reason": "it returned a generator, which nobody has run"}
    if callable(getattr(result, "add_done_callback", None)):
        return {"state": "in_doubt", "reason": "it returned a future, whose end nobody has waited for"}
    return {"state": "already_done" if result is ALREADY_DONE else "compensated"}


def _read_back(live: LiveSaga, step: StepView, recipe: Recipe) -> Generator[Op, Any, dict[str, Any]]:
    """Read the world back after a compensation that said that it succeeded."""
    if recipe.verify is None:
        return {}
    confirmed = yield from _verify(live, step, recipe)
    if confirmed is not False:
        return {"verified": confirmed}
    return {
        "state": "failed" if _may_run_again(recipe) else "in_doubt",
        "verified": False,
        "reason": f"it returned normally, but {recipe.verify!r} does not confirm it",
    }


def _verify(live: LiveSaga, step: StepView, recipe: Recipe) -> Generator[Op, Any, bool | None]:
    """Return what the verifier says; None when it cannot tell (missing, failing, or no bool)."""
    try:
        fn = function_for(recipe.verify or "")
        kwargs, _ = _kwargs(live, step, recipe)
        if recipe.key_param is not None and _takes(fn, recipe.key_param):
            kwargs[recipe.key_param] = compensation_key(live.view.id, step.no, step.generation)
        answer = yield Invoke(fn, kwargs, recipe.timeout_s)
    except Exception as error:  # noqa: BLE001 - a verifier that fails has confirmed nothing.
        live.notes[step.no] = f"{recipe.verify}: {type(error).__name__}: {error}"
        return None
    return answer if isinstance(answer, bool) else None


def _takes(fn: Any, name: str) -> bool:
    parameters = inspect.signature(fn).parameters
    return name in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def next_at(attempt: int) -> int:
    """Return when a sweep tries again what failed, or could not be found out, for the `attempt`-th time."""
    delay_s = min(SWEEP_BACKOFF_S * 2.0 ** min(attempt - 1, 30), SWEEP_BACKOFF_S_MAX)
    return clock().time_ns() + int(delay_s * 1e9)
