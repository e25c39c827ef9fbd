"""What to do next with each step: the plan of settlement and rollback, the same live and in recovery."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from agent_saga.machine.states import SagaState, StepState

if TYPE_CHECKING:
    from agent_saga.machine.view import SagaView, StepView

ATTEMPTS_HUMAN: Final = 10
"""After so many failed compensations or unknowable answers a step is listed for a human (sweeps go on trying)."""

_LEFT: Final = frozenset(
    {StepState.IN_DOUBT, StepState.COMPENSATING, StepState.CONFLICTED, StepState.COMPENSATION_FAILED}
)


class Action(Enum):
    """The next thing to do with a step."""

    NONE = auto()
    """Nothing is left to do."""
    PROBE = auto()
    """Ask the outside world whether the effect happened."""
    COMPENSATE = auto()
    """Run the compensation."""
    VERIFY = auto()
    """Read the world back: did an attempt without a known outcome succeed?"""
    ORPHAN = auto()
    """The effect stands and there is no compensation: report it."""
    HUMAN = auto()
    """Only a human can settle it."""


def next_action(step: StepView, *, probed: bool = False, verified: bool = False) -> Action:
    """Return what rollback does next with a step.

    Args:
        step: the step.
        probed: this pass has asked the probe already, without a definite answer.
        verified: this pass has asked the verifier already, and it did not confirm the compensation.
    """
    if step.read_only:
        return Action.NONE
    match step.state:
        case StepState.IN_DOUBT:
            if step.probe is not None and not probed:
                return Action.PROBE
            return Action.COMPENSATE if step.bindable_from_intent else Action.HUMAN
        case StepState.STANDING:
            return Action.ORPHAN if step.compensation is None else Action.COMPENSATE
        case StepState.COMPENSATING:
            return _recheck(step, verified=verified)
        case StepState.COMPENSATION_FAILED:
            return Action.COMPENSATE
        case StepState.CONFLICTED:
            return Action.HUMAN
        case _:
            return Action.NONE


def _recheck(step: StepView, *, verified: bool) -> Action:
    """An attempt has no known outcome: look first, and run it again only where that is safe."""
    recipe = step.recipe
    if recipe is None:
        return Action.HUMAN
    if recipe.verify is not None and not verified:
        return Action.VERIFY
    return Action.COMPENSATE if recipe.idempotent or recipe.key_param is not None else Action.HUMAN


def rollback_order(view: SagaView, scope: int = 0) -> list[StepView]:
    """Return the steps of a scope in reverse order of intent, which never contradicts happens-before."""
    return [step for step in reversed(view.within(scope)) if not step.read_only]


def leftovers(view: SagaView) -> list[StepView]:
    """Return the work items of an ended saga: what a later recovery or a human must still settle."""
    committed = view.state is SagaState.COMMITTED
    return [step for step in view.steps.values() if not step.read_only and _is_left(view, step, committed=committed)]


def _is_left(view: SagaView, step: StepView, *, committed: bool) -> bool:
    if step.state in _LEFT:
        return True
    if step.state is not StepState.STANDING:
        return False
    return not committed or view.rolled_back(step)


def needs_human(step: StepView) -> bool:
    """Tell whether no retry can settle a work item."""
    match step.state:
        case StepState.IN_DOUBT:
            if not step.unknowable and (step.probe is not None or step.bindable_from_intent):
                return False  # Nobody has looked yet: the call still ran when the saga ended.
            return step.next_at is None or step.unknowable >= ATTEMPTS_HUMAN
        case StepState.COMPENSATION_FAILED:
            return step.next_at is None or step.compensation_attempts >= ATTEMPTS_HUMAN
        case StepState.COMPENSATING:
            return _recheck(step, verified=step.verified is False) is Action.HUMAN
        case StepState.STANDING:
            return step.compensation is None
        case _:
            return True


def unresolved(view: SagaView, scope: int = 0) -> list[StepView]:
    """Return the failed steps of adapters that nothing has resolved.

    A later success of the same tool and identity, whose intent came after the failure was recorded, resolves one; so
    does a waiver, and with `resolves="same_tool"` any later success of the tool.
    """
    steps = [step for step in view.within(scope) if not view.rolled_back(step)]  # The others are dealt with.
    return [step for step in steps if _failed_unseen(step) and not any(_resolves(later, step) for later in steps)]


def _failed_unseen(step: StepView) -> bool:
    """Tell whether an adapter's call failed, or was settled by its compensation, which is no answer to its caller."""
    gone = step.state is StepState.ABSENT or (step.state is StepState.COMPENSATED and not step.answered)
    return step.adapter is not None and gone and not step.waived


def _resolves(later: StepView, failed: StepView) -> bool:
    if later.tool != failed.tool or later.intent_n <= failed.outcome_n or later.state is not StepState.STANDING:
        return False
    return failed.resolves == "same_tool" or (failed.identity is not None and later.identity == failed.identity)
