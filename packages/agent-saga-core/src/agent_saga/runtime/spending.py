"""How much is left of the limits that policies keep, looked up outside of any transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.model.requirements import total
from agent_saga.store.rules import spent_of
from agent_saga.store.totals import TOTAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from decimal import Decimal

    from agent_saga.machine.gate import Fact
    from agent_saga.model.requirements import Limit, Within
    from agent_saga.store.port import LogStore

_PARTS_NAMED_MAX = 3


class StoredFacts:
    """The facts of a store, as the rules of the log ask for them."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def facts_of_name(self, kind: str, name: str) -> Iterable[Fact]:
        """See Facts.facts_of_name."""
        return self._store.facts(kind, name)

    def fact(self, kind: str, name: str, saga_id: str, no: int) -> Fact | None:
        """See Facts.fact."""
        if kind != TOTAL and not saga_id:
            return None  # Only totals are of no saga.
        found = self._store.facts(kind, name)
        return next((fact for fact in found if (fact.saga_id, fact.no) == (saga_id, no)), None)


def limits_of(policies: Iterable[Any]) -> Iterator[Limit]:
    """Yield the limits that policies keep, also those inside of others."""
    for policy in policies:
        if callable(limits := getattr(policy, "limits", None)):
            yield from limits()
        inner = (*getattr(policy, "policies", ()), *filter(None, (getattr(policy, "policy", None),)))
        yield from limits_of(inner)


def left_of(store: LogStore, wanted: Within) -> Decimal | None:
    """Return how much a budget has left, or None when that cannot be read."""
    spent = spent_of(wanted, StoredFacts(store))
    return None if spent is None else total(wanted.limit, -spent)


def used_up(store: LogStore, policies: Iterable[Any]) -> Iterator[tuple[bool, str]]:
    """Yield a line for each limit of which nothing is left, and whether it stops an agent.

    A budget stops it. A part of one (that of a customer, say) stops only some calls, and a rate limit only for moments.
    """
    for limit in limits_of(policies):
        if limit.parted:
            parts = [part for part in _parts(store, limit) if _is_used_up(store, limit.within(part))]
            if parts:
                named = ", ".join(part.removeprefix("/") for part in parts[:_PARTS_NAMED_MAX])
                more = ", ..." if len(parts) > _PARTS_NAMED_MAX else ""
                yield False, f"{limit.title} has nothing left for {len(parts)} of its parts ({named}{more})"
        elif _is_used_up(store, limit.within()):
            yield limit.lasting, f"{limit.title} has nothing left"


def _is_used_up(store: LogStore, wanted: Within) -> bool:
    left = left_of(store, wanted)
    if left is None:
        raise ValueError(f"what was spent of {wanted.budget!r} is no amount: run agent-saga verify")
    return left <= 0


def _parts(store: LogStore, limit: Limit) -> list[str]:
    """Return the parts that have spent something now, as they stand in the names of their budgets."""
    found: set[str] = set()
    for fact in store.facts(TOTAL):
        for tail in limit.tails:
            if fact.name.startswith(f"{limit.base}/") and fact.name.endswith(tail):
                part = fact.name[len(limit.base) : len(fact.name) - len(tail)]
                found.update({part} if "@" not in part else ())
    return sorted(found)
