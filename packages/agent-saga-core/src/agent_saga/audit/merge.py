"""Merging the logs of devices that worked apart: a union of histories, saga by saga.

A history is a saga with all that amends it, as one sequence of records. Of two histories of one saga of which one
begins with the other, the longer one stays. Two of which neither does have diverged: both stay, apart, and nobody
chooses between them. So a merge is a union of sets without what others begin with, and its order does not matter.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from agent_saga.errors import SagaBusy, UsageError
from agent_saga.machine.row import row_of
from agent_saga.machine.states import ENDED
from agent_saga.model.records import decode_body
from agent_saga.store.merged import merged_of
from agent_saga.store.reader import complete_row, history
from agent_saga.store.removed import REMOVED
from agent_saga.store.verify import all_rows, last_position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agent_saga.machine.view import SagaView
    from agent_saga.model.records import AnyRecord
    from agent_saga.store.port import LogStore, StoredRecord, StoredRow

_TRIES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A saga, or a key, that went on in two ways.

    Attributes:
        saga_id: the saga.
        reason: what differs, in words.
        versions: which log holds which version: (label of the log, number of its records, amendments included).
    """

    saga_id: str
    reason: str
    versions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One saga with all that amends it, as one log holds it.

    Attributes:
        source: the number of the log among those to be merged.
        hashes: of all its records, in order: what makes it what it is.
    """

    saga_id: str
    source: int
    hashes: tuple[bytes, ...]


def longest(histories: Iterable[History]) -> list[History]:
    """Return the histories that no other one begins with, one of equal ones, in an order that follows from them."""
    kept: list[History] = []
    for one in sorted(histories, key=lambda one: (-len(one.hashes), one.hashes, one.source)):
        if not any(other.hashes[: len(one.hashes)] == one.hashes for other in kept):
            kept.append(one)
    return sorted(kept, key=attrgetter("hashes"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One saga of a family.

    Attributes:
        view: its fold, amendments included.
        sealed_by: the record that sealed it first (its saga and number), or None.
    """

    row: StoredRow
    view: SagaView
    sealed_by: tuple[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One saga with all that amends it, as it was read and checked.

    Attributes:
        members: the saga, and what amends it.
        records: of all of them, in order, each with its body.
    """

    members: tuple[Member, ...]
    records: tuple[tuple[StoredRecord, AnyRecord], ...]


class Source:
    """One of the logs that are merged.

    Args:
        store: the log, verified.
        label: how people call it.
    """

    def __init__(self, store: LogStore, label: str) -> None:
        self.store, self.label = store, label
        gone = [fact.name for fact in store.facts(REMOVED) if fact.no == 0]
        if gone:
            raise UsageError(
                f"{label} cannot be merged: the records of saga {gone[0]} were pruned, and a merge needs them; "
                "merge a copy from before, and prune the merged log"
            )
        self.without_payloads = {fact.name for fact in store.facts(REMOVED)}

    def logs(self) -> list[str]:
        """Return the ids of the devices that wrote it."""
        merged = merged_of(self.store)
        own = [self.store.log_id()] if not merged.logs or last_position(self.store) > merged.last else []
        return [*merged.logs, *own]

    def roots(self) -> Iterator[StoredRow]:
        """Yield the row of each saga that amends no other."""
        return (row for row in all_rows(self.store) if row.row.amends is None)

    def family(self, saga_id: str) -> Family | None:
        """Return a saga with all that amends it, checked; None when it is not there.

        Raises:
            CorruptLog: it is damaged.
            SagaBusy: it changes all the time.
        """
        for _ in range(_TRIES):
            before = complete_row(self.store, saga_id)
            if before is None:
                return None
            members = tuple(self._members(before))
            records = heapq.merge(*(self._records(one.row) for one in members), key=lambda each: each[0].pos)
            if self.store.row(saga_id) == before:
                return Family(members=members, records=tuple(records))
        raise SagaBusy(f"saga {saga_id!r} changes all the time; merge logs that nobody writes")

    def _members(self, row: StoredRow) -> Iterator[Member]:
        sealed_by: tuple[str, int] | None = None
        view: SagaView | None = None
        for (stored, _, _), view in history(self.store, row):
            if sealed_by is None and view.state in ENDED and row_of(view).sealed:
                sealed_by = stored.saga_id, stored.n
        if view is not None:
            yield Member(row=row, view=view, sealed_by=sealed_by)
        for other in self.store.amendments(row.saga_id):
            if (amending := self.store.row(other)) is not None:
                yield from self._members(amending)

    def _records(self, row: StoredRow) -> Iterator[tuple[StoredRecord, AnyRecord]]:
        after = 0
        while page := self.store.records(row.saga_id, after_n=after, limit=min(1000, row.count - after)):
            for stored in page:
                yield stored, decode_body(stored.body)
            after += len(page)
            if after >= row.count:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """What a merge comes to.

    Attributes:
        apart: by number from 1, how many logs were written for what has diverged.
        sagas: how many are in the merged log, amendments included.
    """

    sagas: int
    records: int
    logs: tuple[str, ...]
    diverged: tuple[Divergence, ...]
    apart: int


def merge(sources: Sequence[Source], put: Callable[[int, Family, set[str]], None]) -> list[Divergence]:
    """Merge logs, saga by saga.

    Args:
        sources: the logs.
        put: takes a history for the merged log (0), or for one of those that are kept apart (from 1), and the sagas
            whose payloads were pruned in any of the logs.

    Raises:
        CorruptLog: one of the logs is damaged.
        SagaBusy: one of them changes all the time.
    """
    roots: dict[str, StoredRow] = {}
    keyed: dict[str, dict[int, set[str]]] = {}
    for source in sources:
        for row in source.roots():
            roots.setdefault(row.saga_id, row)
            if row.row.key is not None:
                keyed.setdefault(row.row.key, {}).setdefault(row.row.incarnation, set()).add(row.saga_id)
    bare = set[str]().union(*(source.without_payloads for source in sources))
    diverged: list[Divergence] = []
    for saga_id in sorted(roots):
        key = roots[saga_id].row.key
        rivals = sorted(keyed[key][roots[saga_id].row.incarnation]) if key is not None else [saga_id]
        split = key is not None and any(len(same) > 1 for same in keyed[key].values())
        families, versions = _versions(sources, saga_id)
        if len(versions) > 1:
            diverged.append(_parted(saga_id, versions, sources))
        elif split:
            reason = f"its key {key!r} was opened by more than one saga at a time"
            held = (sources[versions[0].source].label, len(versions[0].hashes))
            diverged.append(Divergence(saga_id=saga_id, reason=reason, versions=(held,)))
        first = rivals.index(saga_id) + 1 if split else min(1, len(versions) - 1)
        for place, version in enumerate(versions, start=first):
            put(place, families[version.source], bare)
    return diverged


def _versions(sources: Sequence[Source], saga_id: str) -> tuple[dict[int, Family], list[History]]:
    families = {n: found for n, source in enumerate(sources) if (found := source.family(saga_id)) is not None}
    histories = [
        History(saga_id=saga_id, source=n, hashes=tuple(stored.hash for stored, _ in family.records))
        for n, family in families.items()
    ]
    return families, longest(histories)


def _parted(saga_id: str, versions: Sequence[History], sources: Sequence[Source]) -> Divergence:
    same = 0
    for hashes in zip(*(version.hashes for version in versions), strict=False):
        if len(set(hashes)) > 1:
            break
        same += 1
    held = tuple((sources[version.source].label, len(version.hashes)) for version in versions)
    return Divergence(saga_id=saga_id, reason=f"its histories part after {same} records", versions=held)
