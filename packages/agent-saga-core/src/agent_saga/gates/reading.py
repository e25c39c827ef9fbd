"""How a rule reads amounts from a call: by path, in units, all of them or none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_saga.errors import DeclarationError
from agent_saga.gates.values import (
    Unreadable,
    amount_of,
    at_path,
    check_path,
    factor,
    scaled,
    shown,
    split_quantity,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where amounts are, and in which units they may be given.

    Attributes:
        argument: the path.
        unit: the unit of the rule; a bare number is in it. None: bare numbers only.
        allowed_units: the units that a call may use; by default only `unit`.
        unit_argument: the path of the argument that names the unit.
        negative: amounts below zero can be read.
    """

    argument: str
    unit: str | None = None
    allowed_units: tuple[str, ...] = ()
    unit_argument: str | None = None
    negative: bool = False
    parts: tuple[str, ...] = field(init=False, repr=False, compare=False)
    name: str = field(init=False, repr=False, compare=False)
    unit_parts: tuple[str, ...] | None = field(init=False, repr=False, compare=False)
    factors: dict[str, Decimal] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options and compute what each call needs.

        Raises:
            DeclarationError: they cannot work.
        """
        if self.unit is None and (self.allowed_units or self.unit_argument):
            raise DeclarationError("allowed_units and unit_argument need unit=, the unit in which the rule compares")
        derived = {
            "parts": check_path(self.argument),
            "name": self.argument.removeprefix("kwargs.").removeprefix("args."),
            "unit_parts": None if self.unit_argument is None else check_path(self.unit_argument),
            "factors": _factors(self.unit, self.allowed_units),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def base(self, amount: Decimal) -> Decimal:
        """Return an amount of the rule, in base units."""
        return amount if self.unit is None else scaled(amount, self.factors[self.unit])

    def read(self, kwargs: Mapping[str, Any]) -> list[Decimal]:
        """Return all amounts, in base units.

        Raises:
            Unreadable: one of them cannot be read, or there is none.
        """
        unit = self.unit if self.unit_parts is None else self._unit_of(kwargs, self.unit_parts)
        return [self._amount(value, unit) for value in at_path(kwargs, self.parts)]

    def _unit_of(self, kwargs: Mapping[str, Any], parts: tuple[str, ...]) -> str:
        units = at_path(kwargs, parts)
        first = units[0]
        if type(first) is not str or any(type(unit) is not str or unit != first for unit in units):
            raise Unreadable(f"{self.unit_argument!r} must name one unit; it is {shown(units)}")
        return first

    def _amount(self, value: object, unit: str | None) -> Decimal:
        try:
            amount = amount_of(value)
        except Unreadable as error:
            found = split_quantity(value) if type(value) is str and self.unit is not None else None
            if found is None:
                raise Unreadable(f"argument {self.name!r}: {error}") from None
            if self.unit_parts is not None:
                raise Unreadable(
                    f"argument {self.name!r}: {shown(value)} and {self.unit_argument!r} both state a unit"
                ) from None
            number, unit = found
            amount = amount_of(number)
        if amount < 0 and not self.negative:
            raise Unreadable(f"argument {self.name!r}: {shown(value)} is negative")
        if unit is None:
            return amount
        by = self.factors.get(unit)
        if by is None:
            raise Unreadable(f"argument {self.name!r}: unit {shown(unit)} is none of {', '.join(self.factors)}")
        return scaled(amount, by)


def _factors(unit: str | None, allowed: tuple[str, ...]) -> dict[str, Decimal]:
    if unit is None:
        return {}
    factors = {}
    for name in (unit, *allowed):
        by = factor(name, unit)
        if by is None:
            raise DeclarationError(f"unit {name!r} cannot be converted to {unit!r}")
        factors[name] = by
    return factors
