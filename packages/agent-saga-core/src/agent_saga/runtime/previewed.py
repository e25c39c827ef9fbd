"""What a preview tells: a decision for each call of a plan, and what could not be taken back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from agent_saga.model.values import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    from agent_saga.model.call import ProposedCall
    from agent_saga.model.values import Encoded

_VALUE_LENGTH_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """What would take a call back.

    Attributes:
        possible: whether something does; None where only the result tells.
        sentence: the same for people.
    """

    possible: bool | None
    sentence: str
    compensator: str | None = None
    valid_for_s: float | None = None
    lives_in: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a call would take of a budget."""

    budget: str
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedCall:
    """What the gate would say of one call.

    Attributes:
        number: within the plan, from 1.
        kwargs: the effective arguments as the log would have them (texts); redacted ones are withheld.
        decision: `allow`, `ask` or `refuse`.
        reasons: all of them, in order; those of questions where nothing refuses.
        reserves: what it would take of budgets.
        resources: what it would hold alone.
    """

    number: int
    tool: str
    effect: str
    kwargs: Mapping[str, str]
    decision: Literal["allow", "ask", "refuse"]
    reasons: tuple[str, ...]
    reserves: tuple[Reservation, ...]
    resources: tuple[str, ...]
    undo: Undo

    @classmethod
    def of(
        cls,
        number: int,
        call: ProposedCall,
        encoded: Mapping[str, Encoded],
        *,
        refusals: Sequence[str],
        questions: Sequence[str],
        reserves: tuple[Reservation, ...],
        resources: tuple[str, ...],
        undo: Undo,
    ) -> PreviewedCall:
        """Return what was found out about a call: one refusal refuses it."""
        decision: Literal["allow", "ask", "refuse"] = "refuse" if refusals else "ask" if questions else "allow"
        return cls(
            number=number,
            tool=call.tool,
            effect=call.effect.value,
            kwargs={name: value.text for name, value in encoded.items()},
            decision=decision,
            reasons=tuple(refusals or questions),
            reserves=reserves,
            resources=resources,
            undo=undo,
        )

    @classmethod
    def undeclared(cls, number: int, tool: str, kwargs: Mapping[str, Any], reason: str) -> PreviewedCall:
        """Return the refusal of a tool that is not declared."""
        return cls(
            number=number,
            tool=tool,
            effect="unknown",
            kwargs={name: encode(value).text for name, value in kwargs.items()},
            decision="refuse",
            reasons=(reason,),
            reserves=(),
            resources=(),
            undo=Undo(possible=None, sentence="nothing is known of it"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        undo = {name: getattr(self.undo, name) for name in Undo.__slots__}
        return {
            "number": self.number,
            "tool": self.tool,
            "effect": self.effect,
            "kwargs": {name: json.loads(text) for name, text in self.kwargs.items()},
            "decision": self.decision,
            "reasons": list(self.reasons),
            "reserves": [{"budget": one.budget, "amount": f"{one.amount:f}"} for one in self.reserves],
            "resources": list(self.resources),
            "undo": undo,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What the gate would say of a plan, call by call, as things are now.

    Attributes:
        calls: in the order of the plan.
        stopped: why a plan that is a function ended before its end; None when it did not.
    """

    calls: tuple[PreviewedCall, ...]
    stopped: str | None = None

    @property
    def clear(self) -> bool:
        """Whether every call would run without anybody's word."""
        return self.stopped is None and all(call.decision == "allow" for call in self.calls)

    @property
    def refused(self) -> tuple[PreviewedCall, ...]:
        """The calls that would be refused."""
        return tuple(call for call in self.calls if call.decision == "refuse")

    @property
    def asked(self) -> tuple[PreviewedCall, ...]:
        """The calls that would need somebody's word."""
        return tuple(call for call in self.calls if call.decision == "ask")

    @property
    def cannot_be_undone(self) -> tuple[PreviewedCall, ...]:
        """The calls that would run, or be asked about, and that nothing is known to take back."""
        return tuple(call for call in self.calls if call.decision != "refuse" and call.undo.possible is not True)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        return {
            "clear": self.clear,
            "stopped": self.stopped,
            "calls": [call.to_dict() for call in self.calls],
            "cannot_be_undone": [call.number for call in self.cannot_be_undone],
        }

    def format_text(self) -> str:
        """Return the preview for people: a verdict, then each call with its reasons and what takes it back."""
        counts = ", ".join(
            f"{sum(call.decision == word for call in self.calls)} {told}"
            for word, told in (("allow", "allowed"), ("ask", "to be asked about"), ("refuse", "refused"))
        )
        lines = [f"{len(self.calls)} calls: {counts}; {len(self.cannot_be_undone)} cannot be undone"]
        for call in self.calls:
            given = ", ".join(f"{name}={_short(text)}" for name, text in call.kwargs.items())
            lines.append(f"  {call.number:>3} {call.decision:<6} {call.tool}({given})")
            lines += [f"      because {reason}" for reason in call.reasons]
            if call.decision != "refuse":
                lines.append(f"      undo: {call.undo.sentence}")
        if self.stopped is not None:
            lines.append(f"  the plan stopped: {self.stopped}")
        return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= _VALUE_LENGTH_MAX else text[: _VALUE_LENGTH_MAX - 3] + "..."
