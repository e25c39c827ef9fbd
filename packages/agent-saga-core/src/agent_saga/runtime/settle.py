"""Settling a step in doubt: its late outcome, its probe, its compensation if that is safe; else it stays in doubt."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import HandlerUnavailable
from agent_saga.machine.plan import Action, next_action
from agent_saga.machine.states import StepState
from agent_saga.model import records as r
from agent_saga.model.effects import Landed, NotLanded, Unknowable
from agent_saga.model.paths import PathMissing
from agent_saga.model.paths import resolve as resolve_path
from agent_saga.model.values import decode, encode
from agent_saga.runtime.clock import clock
from agent_saga.runtime.compensate import compensate, next_at, recheck
from agent_saga.runtime.declaration import recipe_of
from agent_saga.runtime.ops import Invoke, Join, Sleep
from agent_saga.runtime.registry import compensator_for, function_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agent_saga.machine.view import StepView
    from agent_saga.model.records import Recipe
    from agent_saga.runtime.compensate import Budget
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op

PROBE_S_MAX: Final = 30.0
"""How long a probe may take. A sync one under `with` runs in the thread of its scope, where nothing can stop it."""


def settle(live: LiveSaga, step: StepView, budget: Budget) -> Generator[Op, Any, None]:
    """Settle a step in doubt in the order of DESIGN 4, as far as it can be settled now.

    A call that still runs in this process is left alone: it stays in doubt until it returns.
    """
    if not (yield from _taken(live, step.no, budget)):
        return
    try:
        if step.no in live.flights:
            return
        if step.state is StepState.IN_DOUBT and step.probe is not None:
            yield from probe(live, step, budget)
        if step.state is StepState.IN_DOUBT and step.bindable_from_intent:
            yield from _travelled(live, step, budget)
            if step.state is StepState.IN_DOUBT and _unsettled_s(step) <= 0:
                yield from compensate(live, step, budget)
    finally:
        _give_back(live, step.no)


def resolve(live: LiveSaga, step: StepView, budget: Budget) -> Generator[Op, Any, None]:
    """Do all that rollback can do now about one step of a scope that must go."""
    if next_action(step) is Action.NONE or not (yield from _taken(live, step.no, budget)):
        return
    try:
        yield from _resolve(live, step, budget)
    finally:
        _give_back(live, step.no)


def _taken(live: LiveSaga, no: int, budget: Budget) -> Generator[Op, Any, bool]:
    """Wait until nobody else here settles a step, and take it; False when the budget is used up before that.

    Rollbacks of an inner and an outer scope, retries and late answers meet at one step. Without this its compensation
    would run twice at once.
    """
    while True:
        with live.lock:
            other = live.settling.get(no)
            if other is None:
                live.settling[no] = concurrent.futures.Future()
                return True
        if not (yield Join(other, max(budget.left_s, 0.0))):
            return False


def _give_back(live: LiveSaga, no: int) -> None:
    with live.lock:
        mine = live.settling.pop(no)
    mine.set_result(None)


def _resolve(live: LiveSaga, step: StepView, budget: Budget) -> Generator[Op, Any, None]:
    probed = verified = False
    while step.no not in live.flights and budget.left_s > 0:
        match next_action(step, probed=probed, verified=verified):
            case Action.PROBE:
                yield from probe(live, step, budget)
                probed = True
            case Action.VERIFY:
                verified = not (yield from recheck(live, step))
            case Action.COMPENSATE if step.state is StepState.IN_DOUBT and _unsettled_s(step) > 0:
                if not (yield from _travelled(live, step, budget)):
                    return
            case Action.COMPENSATE:
                yield from compensate(live, step, budget)
                return
            case _:
                return


def _travelled(live: LiveSaga, step: StepView, budget: Budget) -> Generator[Op, Any, bool]:
    """Wait until the call of a step in doubt can no longer land; False when that takes longer than the budget.

    A compensation from the intent alone that ran before would offset nothing, and what lands after it would stand
    unseen, so it is left to a later sweep.
    """
    wait_s = _unsettled_s(step)
    if wait_s <= 0:
        return True
    if wait_s <= min(budget.left_s, budget.settle_wait_s):
        yield Sleep(wait_s)
        return True
    reason = f"a request may travel for {step.settle_s:g} s, and is compensated after that, in {wait_s:.0f} s"
    later = clock().time_ns() + int(wait_s * 1e9)
    yield from live.committed(live.emit(r.Probed, step=step.no, answer="unknowable", reason=reason, next_at=later))
    return False


def why_stuck(step: StepView, *, named: bool) -> str | None:
    """Return why `resolve` could do nothing about a step here and now, or None when it could.

    Args:
        step: a work item of an ended saga.
        named: its saga was named, so a verifier that did not confirm a compensation is asked again.
    """
    action = next_action(step, verified=not named and step.verified is False)
    missing = ""
    while True:
        try:
            match action:
                case Action.PROBE:
                    function_for(step.probe or "")
                case Action.VERIFY:
                    function_for(step.recipe.verify if step.recipe and step.recipe.verify else "")
                case Action.COMPENSATE if step.recipe is not None:
                    compensator_for(step.recipe.name, step.recipe.version)
                case _:
                    return missing
            return None
        except HandlerUnavailable as error:
            missing = missing or str(error)
        if action is Action.COMPENSATE:
            return missing
        action = next_action(step, probed=True, verified=True)


def probe(live: LiveSaga, step: StepView, budget: Budget) -> Generator[Op, Any, None]:
    """Ask the probe, and record its answer.

    `NotLanded` counts only when the call can no longer land: `settle_s` after it returned, or after its owner was
    found dead. Until then the question is asked again, within the budget.
    """
    try:
        fn = function_for(step.probe or "")
    except HandlerUnavailable as error:  # Nobody was asked, so there is no answer to record.
        live.notes[step.no] = str(error)
        return
    live.notes.pop(step.no, None)
    answer = yield from _ask(step, fn)
    again_at = next_at(step.unknowable + 1)
    if isinstance(answer, NotLanded) and (wait_s := _unsettled_s(step)) > 0:
        if wait_s <= min(budget.left_s, budget.settle_wait_s):
            yield Sleep(wait_s)
            answer = yield from _ask(step, fn)
        else:
            answer = Unknowable(
                f"not landed yet, but a request may travel for {step.settle_s:g} s; ask again in {wait_s:.0f} s"
            )
            again_at = clock().time_ns() + int(wait_s * 1e9)
    values, fields = _answer_fields(live, step, answer)
    if isinstance(answer, Unknowable):
        fields["next_at"] = again_at
    ticket = live.emit(r.Probed, values, step=step.no, **fields)
    yield from live.committed(ticket)


def _unsettled_s(step: StepView) -> float:
    """Return for how long a request of the step may still travel: since its call returned, or its owner was gone."""
    since_ns = max(step.outcome_at, step.intent_at, step.lost_at)
    return step.settle_s - (clock().time_ns() - since_ns) / 1e9


def _ask(step: StepView, fn: Callable[..., Any]) -> Generator[Op, Any, Landed | NotLanded | Unknowable]:
    """Return one of the three answers; anything else, and an exception, counts as Unknowable."""
    try:
        kwargs = {name: decode(text) for name, text in step.kwargs.items()}
        answer = yield Invoke(fn, {"key": step.key, "kwargs": kwargs}, limit_s=PROBE_S_MAX)
    except Exception as error:  # noqa: BLE001 - a probe that fails has answered nothing.
        return Unknowable(f"{step.probe}: {type(error).__name__}: {error}")
    if isinstance(answer, Landed | NotLanded | Unknowable):
        return answer
    return Unknowable(f"{step.probe} returned {answer!r}, which is no answer")


def _answer_fields(
    live: LiveSaga, step: StepView, answer: Landed | NotLanded | Unknowable
) -> tuple[dict[str, str], dict[str, Any]]:
    match answer:
        case NotLanded():
            return {}, {"answer": "not_landed"}
        case Unknowable(reason):
            return {}, {"answer": "unknowable", "reason": reason}
        case Landed(result):
            encoded = encode(result)
            values = {"result": encoded.text}
            bound, recipe, reason = bind_late(live, step, result)
            if bound is not None:
                values |= {f"compensation.{name}": text for name, text in bound.items()}
            fields = {"answer": "landed", "reason": reason, "bound": bound is not None, "exact": encoded.exact}
            return values, {**fields, "recipe": recipe}


def bind_late(live: LiveSaga, step: StepView, result: object) -> tuple[dict[str, str] | None, Recipe | None, str]:
    """Bind a compensation from a result that became known later, by the live declaration or by the recipe.

    Returns:
        The kwargs' texts, the recipe when the intent has none, and the reason when there is no compensation.
    """
    live_binder = live.binders.get(step.no)
    recipe, hidden = None, frozenset[str]()
    try:
        if live_binder is not None:
            _check_known(step, result)
            bound = live_binder(result)
            if bound is None:
                return None, None, "no compensation is declared"
            if result is None and step.recipe is None and None in bound.kwargs.values():
                raise PathMissing(_NOT_KNOWN)  # A callable made it, perhaps of the result that nobody gave.
            kwargs, hidden = bound.kwargs, bound.hidden
            recipe = recipe_of(bound.compensator, None) if step.recipe is None else None
        elif step.recipe is not None and step.recipe.bind is not None:
            kwargs = bind_recorded(step, result)
        else:
            return None, None, "no compensation is declared that another process could bind"
    except PathMissing as error:
        return None, None, str(error)
    except Exception as error:  # noqa: BLE001 - the user's own binder failed: the step is an orphan, and says why.
        return None, None, f"its compensation could not be bound: {type(error).__name__}: {error}"
    return live.texts_of(step.no, kwargs, hidden), recipe, ""


def bind_recorded(step: StepView, result: object) -> dict[str, object]:
    """Bind a compensation by the recorded recipe, from the recorded arguments and a result that a probe or human gave.

    Raises:
        PathMissing: a path leads nowhere, or to a result that nobody gave: nothing is compensated with None for it.
    """
    bind = _check_known(step, result)
    roots = {"kwargs": {name: decode(text) for name, text in step.kwargs.items()}, "result": result, "key": step.key}
    return {parameter: resolve_path(path, roots) for parameter, path in bind.items()}


_NOT_KNOWN: Final = "'result' was wanted, and what the call returned is not known"


def _check_known(step: StepView, result: object) -> dict[str, str]:
    """Return the recorded paths of a compensation, unless one leads to the whole of a result that nobody gave."""
    bind = (step.recipe.bind if step.recipe is not None else None) or {}
    if result is None and "result" in bind.values():
        raise PathMissing(_NOT_KNOWN)
    return bind
