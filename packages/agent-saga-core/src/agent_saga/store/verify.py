"""Verifying a whole log: every record, chain, payload, position, derived row, key, leaf and amendment."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.errors import CorruptLog, RecordsPruned
from agent_saga.machine.gate import facts_of
from agent_saga.machine.row import row_of
from agent_saga.machine.states import ENDED
from agent_saga.store.mark import UNCHECKED
from agent_saga.store.port import Query, StoredRow
from agent_saga.store.reader import history
from agent_saga.store.removed import REMOVED, row_digest
from agent_saga.store.totals import TOTAL, added_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga.machine.view import SagaView
    from agent_saga.store.port import LogStore

_PAGE: Final = 500
_CHECKED: Final = (
    "chains: every record follows the one before it, by number and hash",
    "bodies: each is in canonical form and names its own saga, number and position",
    "payloads: each is there and equals its commitments",
    "positions: none is missing",
    "rows: each equals the fold of its records and amendments",
    "keys: each newest saga of a key is found by it",
    "facts: resources, spending, approvals, halts and keys equal the fold",
    "totals: the running total of each budget is what was spent of it",
    "leaves: sealed sagas, and no others, in the order of their sealing",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a verification looked at, and found undamaged.

    Attributes:
        checked: what was checked, a line each.
        unchecked: what could not be checked, a line each.
        pruned: sagas whose records were removed, and a record says so.
    """

    sagas: int
    records: int
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]
    pruned: int = 0


def verify(
    store: LogStore,
    *,
    progress: Callable[[int, int], None] | None = None,
    visit: Callable[[StoredRow, SagaView | None], None] | None = None,
) -> VerifyReport:
    """Check everything in a log, up to the last position that it had at the beginning.

    Args:
        store: the log; live processes may write it meanwhile.
        progress: called with records done and records in all, now and then.
        visit: called with the row and the fold of each saga, amendments included, when they are checked; without a fold
            for one that was pruned.

    Raises:
        CorruptLog: at the first damage.

    Limits:
        Reads saga by saga, a page at a time; keeps 8 bytes for each sealed saga, and the id of each amended one.
    """
    lines = list(store.verify())
    last = last_position(store)
    sagas = seen = done = pruned = 0
    sealed_at = array("q")
    facts, facts_before = 0, store.count_facts()
    amended: dict[str, int] = {}
    for stored in all_rows(store):
        view, at, there = _read(store, stored, last, any_pruned=facts_before > 0)
        seen, pruned = seen + there, pruned + (view is None)
        if stored.row.amends is not None:
            amended[stored.row.amends] = amended.get(stored.row.amends, 0) + stored.count
        facts += _check_facts(store, stored, view, none_known=facts_before == 0)
        _note_leaf(sealed_at, stored, at, last)
        _check_key(store, stored)
        if visit is not None:
            visit(stored, view)
        sagas, done = sagas + 1, done + stored.count
        if progress is not None and sagas % _PAGE == 0:
            progress(min(done, last), last)
    if seen != last:
        raise CorruptLog(f"{last - seen} of the positions 1 to {last} are in no saga's chain: records are missing")
    if store.count_facts() != facts and last_position(store) == last:
        raise CorruptLog(f"the log holds {store.count_facts()} facts, its sagas give {facts}")
    _check_totals(store)
    _check_leaves(sealed_at)
    _check_amended(store, amended)
    if progress is not None:
        progress(last, last)
    own = tuple(line for line in lines if not line.startswith(UNCHECKED))
    unchecked = tuple(line.removeprefix(UNCHECKED) for line in lines if line.startswith(UNCHECKED))
    if pruned:
        unchecked += (f"the records of {pruned} sagas, which were pruned: their rows and leaves are as they were then",)
    return VerifyReport(sagas=sagas, records=last, checked=_CHECKED + own, unchecked=unchecked, pruned=pruned)


def last_position(store: LogStore) -> int:
    """Return the last position of a log, 0 when it is empty; by bisection, so every store can tell."""
    high = 1
    while store.tail(after_pos=high - 1, limit=1):
        high *= 2
    low = high // 2  # There is a record at or after `low` (or none at all), and none at or after `high`.
    while high - low > 1:
        middle = (low + high) // 2
        if store.tail(after_pos=middle - 1, limit=1):
            low = middle
        else:
            high = middle
    return low


def all_rows(store: LogStore) -> Iterator[StoredRow]:
    """Yield every row that a log has when it begins, amendments included, newest first."""
    after: str | None = None
    while page := store.rows(Query(amendments=True, after=after, limit=_PAGE)):
        yield from page
        after = page[-1].saga_id


def _note_leaf(sealed_at: array[int], stored: StoredRow, at: int, last: int) -> None:
    """Keep where the saga of a leaf was sealed; leaves that came after the beginning are not looked at."""
    leaf = stored.leaf
    if leaf is None:
        if at:
            raise CorruptLog("it was sealed and has no leaf", saga_id=stored.saga_id)
        return
    if not isinstance(leaf, int) or at == 0:
        raise CorruptLog("it has a leaf and was never sealed", saga_id=stored.saga_id)
    if at > last:
        return
    if not 1 <= leaf <= last:
        raise CorruptLog(f"leaf {leaf} cannot be", saga_id=stored.saga_id)
    if leaf > len(sealed_at):
        sealed_at.extend([0] * (leaf - len(sealed_at)))
    if sealed_at[leaf - 1]:
        raise CorruptLog(f"leaf {leaf} is given twice", saga_id=stored.saga_id)
    sealed_at[leaf - 1] = at


def _read(store: LogStore, stored: StoredRow, last: int, *, any_pruned: bool) -> tuple[SagaView | None, int, int]:
    """Check a saga; return its fold, the position that sealed it, and how many of its records are up to `last`.

    A saga that was pruned has no fold, and its records were all there when this began: it was sealed before.
    """
    at = there = 0
    view: SagaView | None = None
    try:
        for (record, _, _), view in history(store, stored, any_pruned=any_pruned):
            there += record.pos <= last and record.saga_id == stored.saga_id
            if at == 0 and view.state in ENDED and row_of(view).sealed:
                at = record.pos
    except RecordsPruned:
        return None, _check_pruned(store, stored), stored.count
    return view, at, there


def _check_pruned(store: LogStore, stored: StoredRow) -> int:
    """Check what stays of a pruned saga, and return the position of the record that had sealed it."""
    said = [fact for fact in store.facts(REMOVED, stored.saga_id) if fact.no == 0]
    now = store.row(stored.saga_id)
    if now is None or len(said) != 1 or row_digest(now, store.facts_of(stored.saga_id)) != said[0].value:
        raise CorruptLog("its row or facts are others than when it was pruned", saga_id=stored.saga_id)
    if store.records(stored.saga_id, limit=1):
        raise CorruptLog("a record says that it was pruned, and it has records", saga_id=stored.saga_id)
    return said[0].at


def _check_facts(store: LogStore, stored: StoredRow, view: SagaView | None, *, none_known: bool) -> int:
    """Compare the facts of a saga with its fold, unless the saga has changed meanwhile; return their number.

    Args:
        store: the log.
        stored: the saga's row.
        view: its fold, amendments included; None for a saga that was pruned, whose facts its digest binds.
        none_known: the log held no fact at all when verifying began; one that came since is counted at the end.
    """
    if view is None:
        return len(store.facts_of(stored.saga_id))
    expected = facts_of(view, sealed=stored.row.sealed)
    if none_known and not expected:
        return 0
    found = store.facts_of(stored.saga_id)
    if (set(found) != expected or len(found) != len(expected)) and store.row(stored.saga_id) == stored:
        odd = min(set(found) ^ expected, key=repr)
        raise CorruptLog(f"its facts differ from its records, at {odd.kind} {odd.name!r}", saga_id=stored.saga_id)
    return len(found)


def _check_totals(store: LogStore) -> None:
    """Compare the running total of each budget with what it adds up, unless that has changed meanwhile."""
    for known in store.facts(TOTAL):
        summed = added_up(known.name, store.facts("spend", known.name))
        if (known != summed or known.at == 0) and known in store.facts(TOTAL, known.name):
            raise CorruptLog(f"the running total of budget {known.name!r} is not what was spent of it")


def _check_leaves(sealed_at: array[int]) -> None:
    before = 0
    for leaf, at in enumerate(sealed_at, start=1):
        if at <= before:
            reason = "is missing" if at == 0 else "is out of the order of sealing"
            raise CorruptLog(f"leaf {leaf} {reason}")
        before = at


def _check_amended(store: LogStore, amended: dict[str, int]) -> None:
    """Check that no row leaves amendments out, which were there before it is read now."""
    for saga_id, there in amended.items():
        stored = store.row(saga_id)
        if stored is None or stored.amendments < there:
            raise CorruptLog(f"its row counts fewer than the {there} records that amend it", saga_id=saga_id)


def _check_key(store: LogStore, stored: StoredRow) -> None:
    key = stored.row.key
    if key is None:
        return
    newest = store.row_of_key(key)
    if newest is None or newest.row.key != key or newest.row.incarnation < stored.row.incarnation:
        raise CorruptLog(f"key {key!r} does not lead to its newest saga", saga_id=stored.saga_id)
    if newest.row.incarnation == stored.row.incarnation and newest.saga_id != stored.saga_id:
        raise CorruptLog(f"key {key!r} has two sagas of one incarnation", saga_id=stored.saga_id)
