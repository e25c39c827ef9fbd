"""What must hold in the transaction of an intent: checked by the log itself, so that no race can get past it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Final

DIGITS_MAX: Final = 200
"""Amounts are of at most so many digits, before the point and behind it, so that their sums are exact."""
_EXACT: Final = Context(prec=4 * DIGITS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """No other unsealed saga holds any of these resources; this saga holds them from here until it is sealed.

    Attributes:
        names: sorted, so that sagas which need several take them in one order.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """What was spent of a budget, with this amount, does not exceed the limit; the amount is reserved.

    Attributes:
        budget: its name, the same for all processes that share it.
        amount: what this call takes.
        limit: the budget.
        since_ns: only reservations made at or after this time count (0: all of them).
        also: budgets whose reservations count too; with `since_ns` only.
    """

    budget: str
    amount: Decimal
    limit: Decimal
    since_ns: int = 0
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the amounts: what cannot be compared must not get as far as the log.

        Raises:
            ValueError: one is no finite `Decimal` of a sensible size, or is negative.
        """
        if not (is_amount(self.amount) and is_amount(self.limit)):
            raise ValueError(
                f"budget {self.budget!r}: amount and limit must be finite decimals from 0 up, of at most {DIGITS_MAX} "
                f"digits before and behind the point; they are {self.amount!r} and {self.limit!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """An approval is good: decided in favour, not used, not withdrawn, not expired.

    Attributes:
        approval: its id.
        now_ns: the time.
    """

    approval: str
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """A request for approval still takes words: it is not rejected, used, withdrawn or expired.

    Attributes:
        approval: its id.
    """

    approval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit that a policy keeps, for those who want to know how much of it is left.

    Attributes:
        title: for people, as `budget 'spend' (10 EUR)`.
        base: how the names of its budgets begin.
        tails: how they end now; the first one takes what is spent, the others count too.
        limit: the most that may be spent.
        since_ns: as of `Within`.
        parted: there is a budget for each part, whose name stands between base and tail.
        lasting: what is spent does not come back within moments.
    """

    title: str
    base: str
    tails: tuple[str, ...]
    limit: Decimal
    since_ns: int
    parted: bool
    lasting: bool

    def within(self, part: str = "") -> Within:
        """Return what a call that takes nothing would require."""
        names = [f"{self.base}{part}{tail}" for tail in self.tails]
        return Within(
            budget=names[0], amount=Decimal(0), limit=self.limit, since_ns=self.since_ns, also=tuple(names[1:])
        )


Requirement = Free | Within | Approved | Undecided


def is_amount(value: object) -> bool:
    """Tell whether a value can be spent: a finite `Decimal` from 0 up, small enough for sums to be exact."""
    if type(value) is not Decimal or not value.is_finite() or value < 0:
        return False
    if 0 <= value.adjusted() < DIGITS_MAX and len(str(value)) <= DIGITS_MAX:
        return True  # Too short to have that many digits behind the point; taking it apart costs ten times as much.
    exponent = int(value.as_tuple().exponent)
    return exponent >= -DIGITS_MAX and value.adjusted() < DIGITS_MAX


def spelled(amount: Decimal) -> str:
    """Return the one text of an amount, whatever the precision of this thread's context."""
    return str(_EXACT.normalize(amount))


def total(first: Decimal, second: Decimal) -> Decimal:
    """Return the exact sum of two amounts, whatever the precision of this thread's context."""
    return _EXACT.add(first, second)
