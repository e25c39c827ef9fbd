"""Effect classes, and the answers that probes, compensators and policies give."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_saga.model.requirements import Requirement


class Effect(StrEnum):
    """What a call does to the outside world."""

    READ_ONLY = "read_only"
    """Nothing: it is not logged before it runs and never compensated."""
    REVERSIBLE = "reversible"
    """A change that its compensation restores exactly."""
    COMPENSABLE = "compensable"
    """A change that an inverse offsets; the trace stays (a charge and its refund)."""
    IRREVERSIBLE = "irreversible"
    """A change without an inverse (a mail sent)."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A probe's answer: the effect happened.

    Args:
        result: what the call would have returned, when the probe can tell; the compensation is bound from it.
    """

    result: object = None


@dataclass(frozen=True, slots=True)
class NotLanded:
    """A probe's answer: the effect did not happen."""


@dataclass(frozen=True, slots=True)
class Unknowable:
    """A probe's answer: it cannot be told.

    Args:
        reason: one line for the human who settles the step.
    """

    reason: str = ""


class _AlreadyDone(Enum):
    ALREADY_DONE = "already_done"


ALREADY_DONE: Final = _AlreadyDone.ALREADY_DONE
"""Returned by a compensator that found nothing left to compensate."""


@dataclass(frozen=True, slots=True)
class Allow:
    """A decision: the call may run.

    Args:
        requires: what must hold in the transaction of its intent (a budget, a resource).
    """

    requires: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """A decision: the call does not run.

    Args:
        reason: shown to the caller and to the model, and recorded.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A decision: a human (or the kit's `approver`) decides.

    Args:
        reason: what is asked, in one line; recorded with the decision.
        quorum: how many distinct principals must approve.
        signed: each word must be signed by a key that the operator registered.
        expires_s: how long the question stands.
        suspend: suspend the saga until it is answered, instead of waiting in the process.
        requires: what must hold in the transaction of the intent besides, as of `Allow`.
    """

    reason: str
    quorum: int = 1
    signed: bool = False
    expires_s: float = 300.0
    suspend: bool = False
    requires: tuple[Requirement, ...] = ()


Decision = Allow | Refuse | Ask
