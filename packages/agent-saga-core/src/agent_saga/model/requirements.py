"""What must hold in the transaction of an intent: checked by the log itself, so that no race can get past it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


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
    """

    budget: str
    amount: Decimal
    limit: Decimal
    since_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """An approval is good: decided in favour, not used, not withdrawn, not expired.

    Attributes:
        approval: its id.
        now_ns: the time.
    """

    approval: str
    now_ns: int


Requirement = Free | Within | Approved
