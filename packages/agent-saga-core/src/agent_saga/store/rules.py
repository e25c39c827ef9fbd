"""The rules by which a log judges an item: one source for every store.

A store looks up what it holds now (`Current`), asks `judge`, and applies the item when the answer is None.

* An item is `Stale` unless the saga's epoch and number of records are what its writer saw (for a claim: the epoch
  before). A saga with a leaf takes no more records of its own; later facts about it go into amendments.
* An opening item with a key is `Taken` while the newest saga of that key is anything but ended `rolled_back` without
  an owner. After that the opener must be the next incarnation: `incarnation == newest + 1` (1 for a new key), else it
  is `Stale` and its writer looks again. So one incarnation of a key exists at a time, even when two processes race.
* An amending item is `Stale` unless the amended saga's epoch, records and amending records are what its writer saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from agent_saga.errors import InvariantViolation
from agent_saga.machine.gate import amount_in
from agent_saga.machine.states import SagaState
from agent_saga.model.records import (
    GENESIS,
    ApprovalConsumed,
    ApprovalDecided,
    Claimed,
    Intent,
    Reserved,
    SagaOpened,
)
from agent_saga.model.requirements import Approved, Free, Undecided, Within, total
from agent_saga.store.port import Refused, Stale, Taken
from agent_saga.store.totals import running_total

if TYPE_CHECKING:
    from agent_saga.machine.row import Row
    from agent_saga.model.requirements import Requirement
    from agent_saga.store.port import Amended, Item
    from agent_saga.store.totals import Facts


@dataclass(slots=True)
class Current:
    """What a store holds of a saga, as far as the rules ask for it; a store changes it as it applies items."""

    saga_id: str
    epoch: int = 0
    count: int = 0
    head: bytes = GENESIS
    amendments: int = 0
    leaf: int | None = None
    state: str = ""
    owner: str | None = None
    incarnation: int = 1
    amends: str | None = None

    def take(self, row: Row) -> None:
        """Take over a new derived row."""
        self.epoch, self.state, self.owner = row.epoch, row.state, row.owner
        self.incarnation, self.amends = row.incarnation, row.amends


class Lookup(Protocol):
    """What a store holds now, inside its transaction."""

    def saga(self, saga_id: str) -> Current | None:
        """Return a saga."""

    def newest(self, key: str) -> Current | None:
        """Return the newest saga of a key."""


def judge(item: Item, lookup: Lookup) -> Stale | Taken | None:
    """Return why an item cannot be committed now, or None when it can.

    Raises:
        InvariantViolation: the item contradicts itself; nothing of it may be written.
    """
    current = lookup.saga(item.saga_id)
    refusal = _judge_opening(item, current, lookup) if item.count == 0 else _judge_next(item, current)
    if refusal is not None or item.amended is None:
        return refusal
    return _judge_amended(item.amended, lookup)


def _judge_next(item: Item, current: Current | None) -> Stale | None:
    if current is None:
        return Stale("the log holds no such saga")
    if current.leaf is not None:
        return Stale("the saga is sealed: later facts about it belong in a saga that amends it")
    if item.claims:
        _check_claim(item)
    seen = item.epoch - 1 if item.claims else item.epoch
    if current.epoch != seen:
        return Stale(f"the saga is at epoch {current.epoch}, the writer saw {seen}: another owner claimed it")
    if current.count != item.count:
        return Stale(f"the saga has {current.count} records, the writer saw {item.count}")
    if not item.drafts or (item.row is not None and item.row.epoch != item.epoch):
        raise InvariantViolation(f"an item of saga {item.saga_id!r} has no record, or a row of another epoch")
    return None


def _check_claim(item: Item) -> None:
    first = item.drafts[0].body if item.drafts else None
    if item.row is None or not isinstance(first, Claimed) or first.epoch != item.epoch:
        raise InvariantViolation(f"a claim of saga {item.saga_id!r} needs a row and begins with `claimed`")


def _judge_opening(item: Item, current: Current | None, lookup: Lookup) -> Stale | Taken | None:
    first = item.drafts[0].body if item.drafts else None
    row = item.row
    if row is None or not isinstance(first, SagaOpened) or item.claims or not first.epoch == row.epoch == item.epoch:
        raise InvariantViolation(f"the first item of saga {item.saga_id!r} needs a row and begins with `saga_opened`")
    if (first.key, first.incarnation, first.amends) != (row.key, row.incarnation, row.amends):
        raise InvariantViolation(f"the first record of saga {item.saga_id!r} and its row differ")
    if item.amended is not None and item.amended.saga_id != first.amends:
        raise InvariantViolation(f"saga {item.saga_id!r} amends {first.amends!r}, not {item.amended.saga_id!r}")
    if current is not None:
        return Stale("the saga is in the log already")
    if first.amends is not None and lookup.saga(first.amends) is None:
        return Stale(f"the log holds no saga {first.amends!r} to amend")
    return None if first.key is None else _judge_key(first.key, first.incarnation, lookup)


def _judge_key(key: str, incarnation: int, lookup: Lookup) -> Stale | Taken | None:
    newest = lookup.newest(key)
    if newest is not None and (newest.state != SagaState.ROLLED_BACK or newest.owner is not None):
        return Taken(newest.saga_id)
    expected = 1 if newest is None else newest.incarnation + 1
    if incarnation != expected:
        return Stale(f"the next incarnation of key {key!r} is {expected}, the writer saw {incarnation}")
    return None


def _judge_amended(amended: Amended, lookup: Lookup) -> Stale | None:
    target = lookup.saga(amended.saga_id)
    if target is None:
        return Stale(f"the log holds no saga {amended.saga_id!r} to amend")
    found = (target.epoch, target.count, target.amendments)
    seen = (amended.epoch, amended.count, amended.amendments)
    if found != seen:
        return Stale(
            f"saga {amended.saga_id!r} is at (epoch, records, amending records) {found}, the writer saw {seen}"
        )
    return None


def unmet(item: Item, facts: Facts) -> Refused | None:
    """Return what an item requires and does not have, or None when all of it holds."""
    asked: dict[str, Decimal] = {}
    for requirement in item.requires:
        refusal = _unmet(item, requirement, facts, asked)
        if refusal is not None:
            return refusal
    return None


def _unmet(item: Item, requirement: Requirement, facts: Facts, asked: dict[str, Decimal]) -> Refused | None:
    match requirement:
        case Free(names=names):
            return _held(item.saga_id, names, facts)
        case Within():
            return _exceeded(item, requirement, facts, asked)
        case Approved(approval=approval, now_ns=now_ns):
            return _not_approved(approval, now_ns, facts)
        case Undecided(approval=approval):
            return None if list(facts.facts_of_name("approval", approval)) else _over(approval)


def _held(saga_id: str, names: tuple[str, ...], facts: Facts) -> Refused | None:
    for name in names:
        for fact in facts.facts_of_name("resource", name):
            if fact.saga_id != saga_id:
                return Refused(f"resource {name!r} is held by saga {fact.saga_id!r} until that is sealed", fact.saga_id)
    return None


def _exceeded(item: Item, wanted: Within, facts: Facts, asked: dict[str, Decimal]) -> Refused | None:
    before = spent_of(wanted, facts, own=_step(item))
    if before is None:
        return Refused(f"what was spent of budget {wanted.budget!r} cannot be read: run agent-saga verify")
    spent = total(asked.get(wanted.budget, Decimal(0)), before)
    if total(spent, wanted.amount) > wanted.limit:
        left = max(total(wanted.limit, -spent), Decimal(0))
        return Refused(f"budget {wanted.budget!r} has {left} left of {wanted.limit}, and {wanted.amount} was asked")
    asked[wanted.budget] = total(asked.get(wanted.budget, Decimal(0)), wanted.amount)
    return None


def spent_of(wanted: Within, facts: Facts, *, own: tuple[str, int] = ("", 0)) -> Decimal | None:
    """Return what counts against a limit now, or None when that cannot be read.

    Args:
        wanted: the limit.
        facts: what the store holds.
        own: a saga and step: what an earlier attempt of it took is replaced by what the next one takes.
    """
    if not wanted.since_ns:
        known, mine = running_total(wanted.budget, facts), facts.fact("spend", wanted.budget, *own)
        if not (amount_in(known.value) and (mine is None or amount_in(mine.value))):
            return None
        return Decimal(known.value) if mine is None else total(Decimal(known.value), -Decimal(mine.value))
    spent = Decimal(0)
    for name in (wanted.budget, *wanted.also):
        for fact in facts.facts_of_name("spend", name):
            if not amount_in(fact.value):
                return None
            if fact.at >= wanted.since_ns and (fact.saga_id, fact.no) != own:
                spent = total(spent, Decimal(fact.value))
    return spent


def _step(item: Item) -> tuple[str, int]:
    numbers = [draft.body.step for draft in item.drafts if isinstance(draft.body, Intent)]
    return item.saga_id, numbers[-1] if numbers else 0


def _not_approved(approval: str, now_ns: int, facts: Facts) -> Refused | None:
    for fact in facts.facts_of_name("approval", approval):
        if fact.value != "approved":
            return Refused(f"approval {approval!r} is {fact.value}")
        if fact.at <= now_ns:
            return Refused(f"approval {approval!r} has expired")
        return None
    return _over(approval)


def _over(approval: str) -> Refused:
    return Refused(f"approval {approval!r} was used, withdrawn or rejected")


def mark_refused(item: Item, reason: str) -> None:
    """Mark the drafts of an item whose requirements do not hold: its intent, or a word on a request."""
    intends = any(isinstance(draft.body, Intent) for draft in item.drafts)
    for draft in item.drafts:
        if isinstance(draft.body, Intent | Reserved | ApprovalConsumed if intends else ApprovalDecided):
            draft.body.refused = reason
