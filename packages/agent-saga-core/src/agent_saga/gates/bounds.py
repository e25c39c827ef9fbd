"""Bounds of amounts."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from agent_saga.errors import DeclarationError
from agent_saga.gates.reading import Reading
from agent_saga.gates.rule import ALLOW, Rule, Then, answer, check_then, prepare
from agent_saga.gates.values import Unreadable, amount_of, at_path, shown, total_of

if TYPE_CHECKING:
    from agent_saga.model.call import ProposedCall, SagaFacts
    from agent_saga.model.effects import Decision

Amount = int | Decimal | str | float
"""An amount as a rule may state it; see `amount_of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(Rule):
    """Keeps every amount at a path between two limits, both included.

    An amount that is missing, of another unit, negative (unless `min` is) or not a finite number is refused, whatever
    `then` says.

    Args:
        tool: names or shell patterns of the tools concerned.
        argument: the path of the amount, as in `order.total.amount` or `items.*.amount`.
        min: the lowest amount, in `unit`; with None, zero.
        max: the highest amount, in `unit`.
        unit: `mg`, `V`, `deg`, `EUR`, ...; a bare number is in this unit. A text may name it: `"0.5 mg"`.
        allowed_units: other units that a call may use; they are converted exactly.
        unit_argument: the path of the argument that names the unit.
        total: bound the sum of the amounts too, not only each of them.
        then: the answer to an amount out of bounds.
    """

    tool: str | tuple[str, ...]
    argument: str
    min: Amount | None = None
    max: Amount | None = None
    unit: str | None = None
    allowed_units: tuple[str, ...] = ()
    unit_argument: str | None = None
    total: bool = False
    then: Then = "refuse"
    reading: Reading = field(init=False, repr=False, compare=False)
    low: Decimal = field(init=False, repr=False, compare=False)
    high: Decimal | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        check_then(self.then, "Bounds")
        if self.min is None and self.max is None:
            raise DeclarationError("Bounds needs min or max")
        low = limit(self.min, "Bounds: min") if self.min is not None else Decimal(0)
        high = limit(self.max, "Bounds: max") if self.max is not None else None
        if high is not None and low > high:
            raise DeclarationError(f"Bounds: min {low} is above max {high}; no call could pass")
        reading = Reading(
            argument=self.argument,
            unit=self.unit,
            allowed_units=as_tuple(self.allowed_units),
            unit_argument=self.unit_argument,
            negative=low < 0,
        )
        prepare(
            self,
            allowed_units=reading.allowed_units,
            reading=reading,
            low=reading.base(low),
            high=None if high is None else reading.base(high),
        )

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        amounts = self.reading.read(call.kwargs)
        if self.total and len(amounts) > 1:
            amounts.append(total_of(amounts))
        low, high = self.low, self.high
        for amount in amounts:
            if amount < low or (high is not None and amount > high):
                return answer(self.then, self._reason(call, amount))
        return ALLOW

    def _reason(self, call: ProposedCall, amount: Decimal) -> str:
        unit = f" {self.unit}" if self.unit else ""
        limits = f"{self.min if self.min is not None else 0} to {self.max if self.max is not None else 'any'}{unit}"
        stated = shown(_first(call, self.reading, amount))
        return f"{call.tool}: {self.reading.name!r} is {stated}, outside {limits}"


def _first(call: ProposedCall, reading: Reading, amount: Decimal) -> Any:
    """Return the value as the call states it, where there is only one; else the amount in base units."""
    values = at_path(call.kwargs, reading.parts)
    return values[0] if len(values) == 1 else str(amount)


def limit(value: object, what: str) -> Decimal:
    """Return an amount that a rule states.

    Raises:
        DeclarationError: it cannot be read.
    """
    try:
        return amount_of(value)
    except Unreadable as error:
        raise DeclarationError(f"{what}: {error}") from None


def as_tuple(values: tuple[str, ...] | str) -> tuple[str, ...]:
    """Return texts as a tuple; one text is a tuple of one."""
    return (values,) if isinstance(values, str) else tuple(values)
