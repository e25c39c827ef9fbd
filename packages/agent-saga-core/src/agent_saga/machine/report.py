"""From the fold to the report: each known effect in exactly one bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from agent_saga.machine.states import SagaState, StepState
from agent_saga.model.report import RollbackReport, StepReport
from agent_saga.model.values import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_saga.machine.view import SagaView, StepView

Outcome = Literal["committed", "rolled_back", "suspended"]


def bucket_of(view: SagaView, step: StepView) -> str | None:
    """Return the bucket of a step's effect, or None when there is none (read-only, or no effect happened)."""
    if step.read_only or step.state is StepState.ABSENT:
        return None
    match step.state:
        case StepState.IN_DOUBT | StepState.COMPENSATING:
            return "in_doubt"
        case StepState.COMPENSATED:
            return "compensated"
        case StepState.CONFLICTED:
            return "conflicted"
        case StepState.COMPENSATION_FAILED:
            return "failed"
        case StepState.ACCEPTED:
            return "kept"
        case _:
            return _standing(view, step)


def _standing(view: SagaView, step: StepView) -> str:
    if not view.rolled_back(step):
        return "kept"
    return "orphaned" if step.compensation is None else "failed"


def is_confirmed(step: StepView) -> bool:
    """Tell whether that nothing of a step is left is known: a read-back said so, or it never had an effect."""
    match step.state:
        case StepState.COMPENSATED:
            return step.read_only or step.verified is True
        case StepState.ABSENT:
            return step.read_only or not step.assumed
        case _:
            return True


def step_report(step: StepView, *, reason: str | None = None) -> StepReport:
    """Return one step for a report."""
    return StepReport(
        step_id=step.id,
        tool=step.tool,
        effect=step.effect,
        kwargs={name: decode(text) for name, text in step.kwargs.items()},
        key=step.key,
        state=step.state.value,
        attempts=step.compensation_attempts,
        reason=reason if reason is not None else step_reason(step),
        result=None if step.result is None else decode(step.result),
        error=step.error_type,
    )


def step_reason(step: StepView) -> str:
    """Return why a step stands where it does, in one line."""
    if step.reason:
        return step.reason
    if step.state is StepState.COMPENSATING:
        return "the compensation was started and its outcome is not known"
    if step.state is StepState.IN_DOUBT:
        return step.error_type or "no outcome was recorded"
    if step.state is StepState.STANDING and step.compensation is None and step.error is not None:
        return f"its compensation could not be bound: {decode(step.error)}"
    if step.state is StepState.ABSENT and step.error_type:
        return f"{step.error_type} was taken to mean that nothing happened"
    return ""


def report_of(
    view: SagaView,
    *,
    scope: int = 0,
    outcome: Outcome | None = None,
    cause: str | None = None,
    notes: Mapping[int, str] | None = None,
) -> RollbackReport:
    """Return what is true of a saga, or of one scope of it.

    Args:
        view: the fold of the saga, amendments included.
        scope: 0 for the whole saga.
        outcome: how the scope ended; by default what the saga's state says.
        cause: why it rolled back; by default what the saga's records say.
        notes: what this process knows about steps beyond the records (a handler that is not loaded, say).
    """
    notes = notes or {}
    if outcome is None:
        outcome = _outcome(view)
    buckets: dict[str, list[StepReport]] = {}
    assumed: list[StepReport] = []
    confirmed = True
    for step in view.within(scope):
        bucket = bucket_of(view, step)
        if bucket is not None:
            note = notes.get(step.no) if bucket != "compensated" else None
            buckets.setdefault(bucket, []).append(step_report(step, reason=note))
        elif step.assumed and not step.read_only:
            assumed.append(step_report(step))
        confirmed = confirmed and is_confirmed(step)
    clean = outcome == "rolled_back" and not (buckets.keys() - {"compensated"})
    return RollbackReport(
        saga_id=view.id,
        outcome=outcome,
        clean=clean,
        verified=clean and confirmed,
        **{bucket: tuple(steps) for bucket, steps in buckets.items()},
        assumed_absent=tuple(assumed),
        cause=cause or view.cause or None,
    )


def _outcome(view: SagaView) -> Outcome:
    match view.state:
        case SagaState.COMMITTED:
            return "committed"
        case SagaState.ROLLED_BACK | SagaState.ROLLING_BACK:
            return "rolled_back"
        case _:
            return "suspended"
