"""The report: what is true after a saga, or one of its scopes, ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

INT_BITS_MAX: Final = 64
"""Longer whole numbers are hexadecimal texts in JSON."""
BUCKETS: Final = ("kept", "compensated", "in_doubt", "conflicted", "failed", "orphaned")
"""Each known effect is in exactly one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step in a report.

    Attributes:
        step_id: `<saga id>:<number>`.
        effect: its effect class.
        kwargs: the arguments as recorded; markers stand for what was not stored.
        key: the idempotency key.
        state: the state of its effect.
        attempts: attempts to compensate it.
        reason: why it is in this bucket, in one line.
        result: what it returned, as recorded.
        error: the type of the exception that its last failed attempt raised, or None.
    """

    step_id: str
    tool: str
    effect: str
    kwargs: Mapping[str, object]
    key: str
    state: str
    attempts: int
    reason: str
    result: object
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        names = ("step_id", "tool", "effect", "key", "state", "attempts", "reason")
        return {
            **{name: getattr(self, name) for name in names},
            "kwargs": {name: _jsonable(value) for name, value in self.kwargs.items()},
            "result": _jsonable(self.result),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport:
    """What is true after a saga, or one of its scopes, ended.

    Attributes:
        outcome: `committed`, `rolled_back` or `suspended`.
        clean: it was rolled back and nothing known is left standing.
        verified: clean, each compensation was confirmed by a read-back, and nothing was assumed absent.
        assumed_absent: failed steps of which "no effect" was judged by the public table only.
        cause: why it rolled back, or None.
    """

    saga_id: str
    outcome: Literal["committed", "rolled_back", "suspended"]
    clean: bool
    verified: bool
    kept: tuple[StepReport, ...] = ()
    compensated: tuple[StepReport, ...] = ()
    in_doubt: tuple[StepReport, ...] = ()
    conflicted: tuple[StepReport, ...] = ()
    failed: tuple[StepReport, ...] = ()
    orphaned: tuple[StepReport, ...] = ()
    assumed_absent: tuple[StepReport, ...] = ()
    cause: str | None = None

    @property
    def left(self) -> tuple[StepReport, ...]:
        """The steps whose effect is not compensated, or not known to be."""
        return self.in_doubt + self.conflicted + self.failed + self.orphaned

    def format_text(self) -> str:
        """Return the report for people: a verdict, then one line for each step."""
        verdict = f"{self.outcome.replace('_', ' ')}"
        if self.outcome == "rolled_back":
            verdict += ", clean" if self.clean else ", partial"
            verdict += " and verified" if self.verified else ""
        lines = [f"saga {self.saga_id}: {verdict}"]
        if self.cause:
            lines.append(f"  cause: {self.cause}")
        for bucket in (*BUCKETS, "assumed_absent"):
            for step in getattr(self, bucket):
                name = bucket.replace("_", " ")
                reason = f" ({step.reason})" if step.reason else ""
                number = step.step_id.rpartition(":")[2]
                lines.append(f"  {name:<14} {number:>3} {step.tool}({_arguments(step.kwargs)}){reason}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        buckets = {
            bucket: [step.to_dict() for step in getattr(self, bucket)] for bucket in (*BUCKETS, "assumed_absent")
        }
        return {
            "saga_id": self.saga_id,
            "outcome": self.outcome,
            "clean": self.clean,
            "verified": self.verified,
            **buckets,
            "cause": self.cause,
        }


def _arguments(kwargs: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in kwargs.items())


def _short(value: object, length_max: int = 60) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than some thousand digits.
        text = f"<{type(value).__name__}, too long to write>"
    return text if len(text) <= length_max else text[: length_max - 3] + "..."


def _jsonable(value: object) -> object:
    if isinstance(value, dict):
        return {str(_jsonable(name)): _jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_jsonable(item) for item in value]
    if isinstance(value, int) and value.bit_length() > INT_BITS_MAX:
        return hex(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and value - value == 0 else str(value)
