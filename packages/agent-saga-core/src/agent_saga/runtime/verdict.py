"""A human's word about a step: recorded as a small saga that amends the one concerned."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from agent_saga.errors import SagaBusy, UsageError
from agent_saga.machine.states import STEP_TRANSITIONS
from agent_saga.model import records as r
from agent_saga.model.paths import PathMissing
from agent_saga.model.values import encode
from agent_saga.runtime.late import amendment, is_being_amended
from agent_saga.runtime.settle import bind_recorded
from agent_saga.store.port import Committed
from agent_saga.store.reader import load
from agent_saga.store.sealing import check_readable

if TYPE_CHECKING:
    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.runtime.writer import Writer

VERDICTS: Final = ("happened", "did-not-happen", "compensated-by-hand", "accept")
_TRIES: Final = 5


def settle_by_hand(
    writer: Writer, saga_id: str, step: int, verdict: str, *, evidence: str, by: str, result: str | None = None
) -> SagaView:
    """Record what a human found out about a step, and return the saga as it is then.

    Args:
        writer: the log.
        saga_id: the saga concerned.
        step: the number of the step.
        verdict: one of `VERDICTS`.
        evidence: why the human is sure; recorded.
        by: who says so; recorded.
        result: for `happened`, what the call returned, as JSON; the compensation is bound from it.

    Raises:
        LookupError: there is no such saga or step.
        UsageError: the step needs no such word, the result is no JSON, or the compensation cannot be bound from it.
        SagaBusy: a live owner works on the saga.
        KeyUnavailable: it is encrypted, and its key is not here.
    """
    check_readable(writer.store, saga_id, what="nothing was recorded")
    for _ in range(_TRIES):
        loaded = load(writer.store, saga_id)
        if loaded is None:
            raise LookupError(f"there is no saga {saga_id!r} in {writer.store.location}")
        _check_free(writer, loaded.view)
        found = _step(loaded.view, step, verdict)
        live = amendment(writer, loaded.view, loaded.row.count, loaded.row.amendments, name="settlement", by=by)
        values, bound = _values(found, verdict, evidence, result)
        live.emit(r.Settled, values, hold=True, step=step, verdict=verdict, by=by, bound=bound)
        ticket = live.emit(r.SagaEnded, durable=True, outcome="committed")
        if ticket is not None and isinstance(writer.wait(ticket), Committed):
            return live.view
    raise SagaBusy(f"saga {saga_id!r} changes all the time; nothing was recorded. Try again")


def _check_free(writer: Writer, view: SagaView) -> None:
    if view.owner is None and is_being_amended(writer.store, view.id):
        raise SagaBusy(f"a living process amends saga {view.id!r}, and may still settle the step; nothing was recorded")
    if view.owner is None:
        return
    dead = writer.store.prove_dead(view.owner)
    if dead is None:
        raise SagaBusy(f"saga {view.id!r} has a live owner, which may still settle the step; nothing was recorded")
    dead.close()


def _step(view: SagaView, no: int, verdict: str) -> StepView:
    step = view.steps.get(no)
    if step is None:
        raise LookupError(f"saga {view.id!r} has no step {no}; it has {len(view.steps)}")
    if (step.state, verdict) not in STEP_TRANSITIONS:
        fitting = [known for known in VERDICTS if (step.state, known) in STEP_TRANSITIONS]
        what = f"fitting words are {', '.join(fitting)}" if fitting else "it needs no word"
        raise UsageError(
            f"step {step.id!r} ({step.tool}) is {step.state.value} and cannot be settled as {verdict!r}: {what}"
        )
    return step


def _values(step: StepView, verdict: str, evidence: str, result: str | None) -> tuple[dict[str, str], bool]:
    values = {"evidence": encode(evidence).text}
    try:
        parsed = None if result is None else json.loads(result)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the result is not JSON: {error}") from None
    if result is not None:
        values["result"] = encode(parsed).text
    if verdict != "happened":
        return values, False
    if step.compensation is not None:
        return values, _keep(values, step)
    if step.recipe is None or step.recipe.bind is None:
        return values, False
    try:
        bound = bind_recorded(step, parsed)
    except PathMissing as error:
        raise UsageError(
            f"step {step.id!r} ({step.tool}) cannot be settled as 'happened' with this result: {error}. Its "
            f"compensation {step.recipe.name!r} is bound from what the call returned: give that as --result JSON, or "
            "compensate it by hand and say so"
        ) from None
    return values | {f"compensation.{name}": encode(value).text for name, value in bound.items()}, True


def _keep(values: dict[str, str], step: StepView) -> bool:
    values.update({f"compensation.{name}": text for name, text in (step.compensation or {}).items()})
    return True
