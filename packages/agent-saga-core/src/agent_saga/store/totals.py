"""The running total of each budget: what was spent costs one look, however many sagas spent it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol

from agent_saga.machine.gate import Fact, amount_in
from agent_saga.model.requirements import spelled, total
from agent_saga.store.port import FactsChange

if TYPE_CHECKING:
    from collections.abc import Iterable

TOTAL: Final = "total"
"""The kind of a budget's running total: one row of no saga, with the number of its `spend` facts as `at`.

A budget without one is added up from those. A store moves it in the transaction of each spend, and `verify` adds it up
again."""
_UNREADABLE: Final = "unreadable"


class Facts(Protocol):
    """What a store holds of the facts of all sagas, inside its transaction."""

    def facts_of_name(self, kind: str, name: str) -> Iterable[Fact]:
        """Return the facts of one kind and name."""

    def fact(self, kind: str, name: str, saga_id: str, no: int) -> Fact | None:
        """Return one fact, or None."""


def with_totals(change: FactsChange, facts: Facts) -> FactsChange:
    """Return a change of facts together with what it does to the running totals of budgets.

    Args:
        change: what an item brings.
        facts: what the store holds before it.
    """
    after: dict[tuple[str, str, int], Fact | None] = {}
    for fact, stays in (*((one, False) for one in change.removed), *((one, True) for one in change.added)):
        if fact.kind == "spend":
            after[fact.name, fact.saga_id, fact.no] = fact if stays else None
    if not after:
        return change
    totals: dict[str, Fact] = {}
    for (name, saga_id, no), new in after.items():
        known = totals.get(name) or running_total(name, facts)
        totals[name] = _moved(known, facts.fact("spend", name, saga_id, no), new)
    gone = frozenset(known for known in totals.values() if known.at == 0)
    return FactsChange(added=change.added | (frozenset(totals.values()) - gone), removed=change.removed | gone)


def running_total(name: str, facts: Facts) -> Fact:
    """Return what a budget has spent; `value` is no amount when that cannot be read."""
    return facts.fact(TOTAL, name, "", 0) or added_up(name, facts.facts_of_name("spend", name))


def added_up(name: str, spends: Iterable[Fact]) -> Fact:
    """Return the total of a budget's `spend` facts."""
    known = Fact(TOTAL, name, "", 0, "0", 0)
    for fact in spends:
        known = _moved(known, None, fact)
    return known


def _moved(known: Fact, old: Fact | None, new: Fact | None) -> Fact:
    """Return a total after one of its facts was put, replaced or removed."""
    count = known.at + (new is not None) - (old is not None)
    values = [known.value, *(fact.value for fact in (old, new) if fact is not None)]
    if not all(map(amount_in, values)):
        return known._replace(value=_UNREADABLE, at=count)
    value = Decimal(known.value)
    if old is not None:
        value = total(value, -Decimal(old.value))
    if new is not None:
        value = total(value, Decimal(new.value))
    return known._replace(value=spelled(value), at=count)
