"""Checking a share of the sagas of a log: each with its records, row, facts, key and leaf."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from agent_saga.errors import CorruptLog, RecordsPruned
from agent_saga.machine.gate import facts_of
from agent_saga.machine.row import row_of
from agent_saga.machine.states import ENDED
from agent_saga.store.port import Query, ReadsRanges
from agent_saga.store.reader import history
from agent_saga.store.removed import REMOVED, row_digest
from agent_saga.store.together import alone, batches, check_together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.machine.view import SagaView
    from agent_saga.store.port import LogStore, StoredRow
    from agent_saga.store.together import Sound

_PAGE: Final = 500


class Share(NamedTuple):
    """The sagas with ids from `since` on and before `before`; None is no bound."""

    before: str | None
    since: str | None


WHOLE: Final = Share(before=None, since=None)


class Asked(NamedTuple):
    """What the log had when verifying began.

    Attributes:
        last: its last position.
        facts: how many facts.
    """

    last: int
    facts: int


class Tally:
    """What was found in a share of the sagas.

    Attributes:
        there: their records up to the last position that was asked for.
        unsure: records of which nobody can tell whether they are among those: their sagas were sealed and pruned since.
        leaves, sealed_at: of each saga that has one: the number of its leaf, and the position that sealed it.
        amended: records that amend each saga.
    """

    __slots__ = ("amended", "facts", "leaves", "pruned", "sagas", "sealed_at", "there", "unsure")

    def __init__(self) -> None:
        self.sagas = self.pruned = self.there = self.unsure = self.facts = 0
        self.leaves, self.sealed_at = array("q"), array("q")
        self.amended: dict[str, int] = {}


class Visitor(Protocol):
    """Gathers something from sagas that were checked, share by share and maybe in several processes."""

    def add(self, stored: StoredRow, view: SagaView | None) -> None:
        """Take a saga's row and its fold, amendments included, maybe without values; no fold of one that was pruned."""

    def take(self) -> bytes:
        """Return what was gathered since the last call, and forget it."""

    def merge(self, taken: bytes) -> None:
        """Put together what `take` has returned, maybe in another process; called in order, newest share first."""


def rows_of(store: LogStore, share: Share) -> Iterator[StoredRow]:
    """Yield every row of a share that a log has when it begins, amendments included, newest first."""
    after = share.before
    while page := store.rows(Query(amendments=True, after=after, limit=_PAGE)):
        for row in page:
            if share.since is not None and isinstance(row.saga_id, str) and row.saga_id < share.since:
                return
            yield row
        after = page[-1].saga_id


def check_share(
    store: LogStore, asked: Asked, share: Share, visitor: Visitor | None, done: Callable[[int], object]
) -> Tally:
    """Check the sagas of a share, with all that concerns one saga alone.

    Args:
        store: the log.
        asked: what it had when verifying began.
        share: which of its sagas.
        visitor: gets each when it is checked.
        done: called with the number of records done, now and then.

    Raises:
        CorruptLog: at the first damage.
    """
    check = _SagaCheck(store, asked)
    seen = 0
    for batch in batches(rows_of(store, share)):
        for stored, view in check.batch(batch):
            seen += stored.count
            if visitor is not None:
                visitor.add(stored, view)
        done(min(seen, asked.last))
    return check.tally


class _SagaCheck:
    def __init__(self, store: LogStore, asked: Asked) -> None:
        self._store, self._asked = store, asked
        self._ranges = store if isinstance(store, ReadsRanges) else None
        self.tally = Tally()

    def batch(self, rows: Sequence[StoredRow]) -> Iterator[tuple[StoredRow, SagaView | None]]:
        """Check some sagas, and yield each with its fold."""
        found: dict[str, Sound] = {}
        facts: dict[str, list[Fact]] | None = None
        astray: Sequence[str] | None = None
        if (ranges := self._ranges) is not None and not alone(rows[0]):
            first, last = rows[-1].saga_id, rows[0].saga_id
            found = check_together(self._store, ranges, rows, self._asked.last, any_pruned=self._asked.facts > 0)
            facts = _by_saga(ranges.facts_between(first, last)) if self._asked.facts else {}
            astray = ranges.keys_astray_between(first, last)
        for read in rows:
            stored, view, at = self._one(read, found.get(read.saga_id))
            self.tally.sagas += 1
            self._facts(stored, view, None if facts is None else facts.get(stored.saga_id, []))
            self._leaf(stored, at)
            if astray is None or stored.saga_id in astray:
                _check_key(self._store, stored)
            if (amends := stored.row.amends) is not None:
                self.tally.amended[amends] = self.tally.amended.get(amends, 0) + stored.count
            yield stored, view

    def _one(self, stored: StoredRow, sound: Sound | None) -> tuple[StoredRow, SagaView | None, int]:
        """Return a saga's row, its fold, and the position that sealed it; count its records.

        A saga that was pruned has no fold, and its row may be another one than when it was read.
        """
        if sound is not None:
            self.tally.there += sound.there
            return stored, sound.view, sound.at
        store, last = self._store, self._asked.last
        at = there = 0
        view: SagaView | None = None
        try:
            for (record, _, _), view in history(store, stored, any_pruned=self._asked.facts > 0):
                there += record.pos <= last and record.saga_id == stored.saga_id
                if at == 0 and view.state in ENDED and row_of(view).sealed:
                    at = record.pos
        except RecordsPruned:
            stored, at = _check_pruned(store, stored.saga_id)
            self.tally.pruned += 1
            # All of its records came before the one that sealed it.
            self.tally.there += stored.count if at <= last else 0
            self.tally.unsure += 0 if at <= last else stored.count
            return stored, None, at
        self.tally.there += there
        return stored, view, at

    def _facts(self, stored: StoredRow, view: SagaView | None, known: list[Fact] | None) -> None:
        """Compare the facts of a saga with its fold, unless the saga has changed meanwhile; count them.

        Args:
            stored: the saga's row.
            view: its fold, amendments included; None for a saga that was pruned, whose facts its digest binds.
            known: its facts as read with those of others, or None. A log that had no fact at all when verifying began
                is not asked; one that came since is counted at the end.
        """
        store = self._store
        if view is None:
            self.tally.facts += len(store.facts_of(stored.saga_id))
            return
        expected = facts_of(view, sealed=stored.row.sealed)
        if not expected and (known == [] or not self._asked.facts):
            return
        found = known
        if found is None or not _same(found, expected):
            found = store.facts_of(stored.saga_id)
        if not _same(found, expected) and store.row(stored.saga_id) == stored:
            odd = min(set(found) ^ expected, key=repr)
            raise CorruptLog(f"its facts differ from its records, at {odd.kind} {odd.name!r}", saga_id=stored.saga_id)
        self.tally.facts += len(found)

    def _leaf(self, stored: StoredRow, at: int) -> None:
        """Keep where the saga of a leaf was sealed; leaves that came after the beginning are not looked at."""
        leaf, last = stored.leaf, self._asked.last
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
        self.tally.leaves.append(leaf)
        self.tally.sealed_at.append(at)


def _by_saga(facts: Sequence[Fact]) -> dict[str, list[Fact]]:
    found: dict[str, list[Fact]] = {}
    for fact in facts:
        found.setdefault(fact.saga_id, []).append(fact)
    return found


def _same(found: Sequence[Fact], expected: frozenset[Fact]) -> bool:
    return len(found) == len(expected) and set(found) == expected


def _check_pruned(store: LogStore, saga_id: str) -> tuple[StoredRow, int]:
    """Check what stays of a pruned saga; return its row, and the position of the record that had sealed it."""
    said = [fact for fact in store.facts(REMOVED, saga_id) if fact.no == 0]
    now = store.row(saga_id)
    if now is None or len(said) != 1 or row_digest(now, store.facts_of(saga_id)) != said[0].value:
        raise CorruptLog("its row or facts are others than when it was pruned", saga_id=saga_id)
    if store.records(saga_id, limit=1):
        raise CorruptLog("a record says that it was pruned, and it has records", saga_id=saga_id)
    return now, said[0].at


def _check_key(store: LogStore, stored: StoredRow) -> None:
    key = stored.row.key
    if key is None:
        return
    newest = store.row_of_key(key)
    if newest is None or newest.row.key != key or newest.row.incarnation < stored.row.incarnation:
        raise CorruptLog(f"key {key!r} does not lead to its newest saga", saga_id=stored.saga_id)
    if newest.row.incarnation == stored.row.incarnation and newest.saga_id != stored.saga_id:
        raise CorruptLog(f"key {key!r} has two sagas of one incarnation", saga_id=stored.saga_id)
