"""States of sagas and steps, and the one table of transitions of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class SagaState(StrEnum):
    """Where a saga stands."""

    __hash__ = str.__hash__  # Enum's own is written in Python, and states are looked up with every record.

    OPEN = "open"
    ROLLING_BACK = "rolling_back"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    SUSPENDED = "suspended"
    ABANDONED = "abandoned"


ENDED: Final = frozenset({SagaState.COMMITTED, SagaState.ROLLED_BACK})


class StepState(StrEnum):
    """Where the effect of a step stands."""

    __hash__ = str.__hash__  # Enum's own is written in Python, and states are looked up with every record.

    IN_DOUBT = "in_doubt"
    """Intent without a known outcome."""
    STANDING = "standing"
    """The effect happened."""
    ABSENT = "absent"
    """The effect did not happen."""
    COMPENSATING = "compensating"
    """An attempt to compensate has no known outcome."""
    COMPENSATED = "compensated"
    CONFLICTED = "conflicted"
    """The compensator refused because somebody else changed the thing since."""
    COMPENSATION_FAILED = "compensation_failed"
    ACCEPTED = "accepted"
    """A human accepted that the effect stands."""


class TransitionError(Exception):
    """A record does not fit the state that the records before it leave."""


_S, _T = SagaState, StepState

# Kinds that state facts about a step do not move the saga, and are legal wherever an owner may write.
_STEP_FACTS: Final = (
    "outcome",
    "late_outcome",
    "probed",
    "compensation_intent",
    "compensation_outcome",
    "settled",
    "released",
    "claimed",
    "waived",
    "approval_decided",
)

_OPEN_FACTS: Final = (
    "decision",
    "intent",
    "scope_opened",
    "scope_ended",
    "replayed",
    "approval_requested",
    "approval_consumed",
    "reserved",
    "operator_action",
    "redacted",
    "pruned",
)

SAGA_TRANSITIONS: Final[dict[tuple[SagaState, str], SagaState]] = {
    **{
        (state, kind): state
        for state in (_S.OPEN, _S.ROLLING_BACK, _S.COMMITTED, _S.ROLLED_BACK)
        for kind in _STEP_FACTS
    },
    **{(_S.OPEN, kind): _S.OPEN for kind in _OPEN_FACTS},
    (_S.OPEN, "rollback_started"): _S.ROLLING_BACK,
    (_S.OPEN, "suspended"): _S.SUSPENDED,
    (_S.OPEN, "abandoned"): _S.ABANDONED,
    (_S.OPEN, "saga_ended"): _S.COMMITTED,
    (_S.ROLLING_BACK, "decision"): _S.ROLLING_BACK,
    (_S.ROLLING_BACK, "scope_ended"): _S.ROLLING_BACK,
    (_S.ROLLING_BACK, "saga_ended"): _S.ROLLED_BACK,
    (_S.ROLLED_BACK, "saga_ended"): _S.ROLLED_BACK,
    (_S.COMMITTED, "saga_ended"): _S.COMMITTED,
    (_S.SUSPENDED, "claimed"): _S.OPEN,
    (_S.ABANDONED, "claimed"): _S.OPEN,
    (_S.SUSPENDED, "settled"): _S.SUSPENDED,
    (_S.ABANDONED, "settled"): _S.ABANDONED,
    (_S.SUSPENDED, "late_outcome"): _S.SUSPENDED,
    (_S.ABANDONED, "late_outcome"): _S.ABANDONED,
}

_OPEN_EFFECTS: Final = (_T.IN_DOUBT, _T.STANDING, _T.COMPENSATING, _T.CONFLICTED, _T.COMPENSATION_FAILED)

STEP_TRANSITIONS: Final[dict[tuple[StepState, str], StepState]] = {
    # The call and its answer.
    (_T.IN_DOUBT, "intent"): _T.IN_DOUBT,
    (_T.ABSENT, "intent"): _T.IN_DOUBT,
    (_T.IN_DOUBT, "succeeded"): _T.STANDING,
    (_T.IN_DOUBT, "failed"): _T.ABSENT,
    (_T.IN_DOUBT, "in_doubt"): _T.IN_DOUBT,
    # An earlier attempt under the same key was found to have landed while this one ran.
    **{(_T.STANDING, state): _T.STANDING for state in ("succeeded", "failed", "in_doubt")},
    # The answer of a call that was given up. A landing is never news to a step whose landing is known.
    **{(state, "late_in_doubt"): state for state in _T},
    **{(state, "late_failed"): state for state in _T},
    **{(state, "late_succeeded"): state for state in _T},
    (_T.IN_DOUBT, "late_failed"): _T.ABSENT,
    (_T.IN_DOUBT, "late_succeeded"): _T.STANDING,
    (_T.ABSENT, "late_succeeded"): _T.STANDING,
    # A probe's answer.
    (_T.IN_DOUBT, "landed"): _T.STANDING,
    (_T.IN_DOUBT, "not_landed"): _T.ABSENT,
    (_T.IN_DOUBT, "unknowable"): _T.IN_DOUBT,
    # Compensation: of a known effect, or of one in doubt when the compensator is safe if it is absent.
    **{(state, "compensation_intent"): _T.COMPENSATING for state in _OPEN_EFFECTS},
    (_T.COMPENSATING, "compensation_compensated"): _T.COMPENSATED,
    (_T.COMPENSATING, "compensation_already_done"): _T.COMPENSATED,
    (_T.COMPENSATING, "compensation_conflict"): _T.CONFLICTED,
    (_T.COMPENSATING, "compensation_failed"): _T.COMPENSATION_FAILED,
    (_T.COMPENSATING, "compensation_in_doubt"): _T.COMPENSATING,
    # A human's word.
    **{(state, "happened"): _T.STANDING for state in (_T.IN_DOUBT, _T.COMPENSATING, _T.CONFLICTED)},
    **{(state, "did-not-happen"): _T.ABSENT for state in _OPEN_EFFECTS},
    **{(state, "compensated-by-hand"): _T.COMPENSATED for state in _OPEN_EFFECTS},
    **{(state, "accept"): _T.ACCEPTED for state in _OPEN_EFFECTS},
}


def next_saga_state(state: SagaState, kind: str) -> SagaState:
    """Return the saga's state after a record of `kind`.

    Raises:
        TransitionError: such a record cannot follow.
    """
    try:
        return SAGA_TRANSITIONS[state, kind]
    except KeyError:
        raise TransitionError(f"a record of kind {kind!r} cannot follow in a saga that is {state.value}") from None


def next_step_state(state: StepState, event: str) -> StepState:
    """Return the step's state after `event`.

    Raises:
        TransitionError: such an event cannot follow.
    """
    try:
        return STEP_TRANSITIONS[state, event]
    except KeyError:
        raise TransitionError(f"{event!r} cannot follow for a step that is {state.value}") from None
