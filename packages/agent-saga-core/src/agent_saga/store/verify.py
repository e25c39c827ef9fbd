"""Verifying a whole log: every record, chain, payload, position, derived row, key, leaf and amendment."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.errors import CorruptLog
from agent_saga.store.mark import UNCHECKED
from agent_saga.store.merged import check_order, merged_of
from agent_saga.store.shares import WHOLE, Asked, Share, Tally, check_share, rows_of
from agent_saga.store.totals import TOTAL, added_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga.store.port import LogStore, StoredRow
    from agent_saga.store.shares import Visitor

SHARED_FROM: Final = 20_000
"""Records from which several processes are worth what it takes to fork them."""
PROCESSES_MAX: Final = 16
_SHARES: Final = 4
"""Shares for each process: whoever is done takes the next, so that none waits long for another."""
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
    visitor: Visitor | None = None,
    processes: int = 1,
) -> VerifyReport:
    """Check everything in a log, up to the last position that it had at the beginning.

    Args:
        store: the log; live processes may write it meanwhile.
        progress: called with records done and records in all, now and then.
        visitor: gets each saga when it is checked, newest first.
        processes: how many share the work, this one and others forked from it, where the log is large enough for that.
            Only for a program that has no other thread.

    Raises:
        CorruptLog: at the first damage.

    Limits:
        Reads a page of records at a time; keeps 24 bytes for each sealed saga, and the id of each amended one.
    """
    last = last_position(store)
    asked = Asked(last=last, facts=store.count_facts())
    whole = _Whole(store, last)
    if processes > 1 and last >= SHARED_FROM:
        from agent_saga.store.crew import check_shared  # Late: most logs are small.

        shares = _divided(store, last, _SHARES * min(processes, PROCESSES_MAX))
        lines, tallies = check_shared(store, asked, shares, visitor, progress, processes=processes)
    else:
        lines = list(store.verify())
        tallies = iter([check_share(store, asked, WHOLE, visitor, lambda done: progress and progress(done, last))])
    for tally in tallies:
        whole.add(tally)
    whole.check(asked)
    if progress is not None:
        progress(last, last)
    own = tuple(line for line in lines if not line.startswith(UNCHECKED))
    unchecked = tuple(line.removeprefix(UNCHECKED) for line in lines if line.startswith(UNCHECKED))
    return VerifyReport(
        sagas=whole.sagas,
        records=last,
        checked=_CHECKED + own,
        unchecked=unchecked + whole.unchecked(),
        pruned=whole.pruned,
    )


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
    return rows_of(store, WHOLE)


def _divided(store: LogStore, last: int, number: int) -> list[Share]:
    """Return shares of the sagas of a log with about as many records each, newest first."""
    cuts: list[str] = []
    for part in range(number - 1, 0, -1):
        found = store.tail(after_pos=last * part // number, limit=1)
        if found and isinstance(found[0].saga_id, str) and (not cuts or found[0].saga_id < cuts[-1]):
            cuts.append(found[0].saga_id)
    return [Share(before=before, since=since) for before, since in zip([None, *cuts], [*cuts, None], strict=True)]


class _Whole:
    """Puts together what the shares gave."""

    def __init__(self, store: LogStore, last: int) -> None:
        self._store, self._last = store, last
        self.sagas = self.pruned = 0
        self._there = self._unsure = self._facts = 0
        self._sealed_at = array("q")
        self._amended: dict[str, int] = {}

    def add(self, tally: Tally) -> None:
        self.sagas, self.pruned = self.sagas + tally.sagas, self.pruned + tally.pruned
        self._there, self._unsure = self._there + tally.there, self._unsure + tally.unsure
        self._facts += tally.facts
        for saga_id, count in tally.amended.items():
            self._amended[saga_id] = self._amended.get(saga_id, 0) + count
        for leaf, at in zip(tally.leaves, tally.sealed_at, strict=True):
            if leaf > len(self._sealed_at):
                self._sealed_at.extend([0] * (leaf - len(self._sealed_at)))
            if self._sealed_at[leaf - 1]:
                held = [row.saga_id for row in all_rows(self._store) if row.leaf == leaf]
                raise CorruptLog(f"leaf {leaf} is given twice", saga_id=held[-1] if held else None)
            self._sealed_at[leaf - 1] = at

    def check(self, asked: Asked) -> None:
        store, last = self._store, self._last
        merged = merged_of(store)
        missing = last - merged.skipped - self._there if last else 0
        if not 0 <= missing <= self._unsure:
            raise CorruptLog(f"{missing} of the positions 1 to {last} are in no saga's chain: records are missing")
        if store.count_facts() != self._facts and last_position(store) == asked.last:
            raise CorruptLog(f"the log holds {store.count_facts()} facts, its sagas give {self._facts}")
        if merged.last:
            check_order(store, merged)
        _check_totals(store)
        _check_leaves(self._sealed_at)
        _check_amended(store, self._amended)

    def unchecked(self) -> tuple[str, ...]:
        lines = []
        if self.pruned:
            lines.append(
                f"the records of {self.pruned} sagas, which were pruned: their rows and leaves are as they were then"
            )
        if self._unsure:
            lines.append(f"{self._unsure} positions at most: their sagas were sealed and pruned while this ran")
        return tuple(lines)


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
