"""Checking many sagas at once: the same checks as one by one, in fewer calls.

What passes here is sound. What does not was not judged: it is read again, alone, by `reader.history`, which tells
what is wrong, or that the log has only changed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import CorruptLog
from agent_saga.machine.fold import apply, begin
from agent_saga.machine.row import row_of
from agent_saga.machine.states import ENDED, TransitionError
from agent_saga.model.pages import check_payloads, decode_bodies
from agent_saga.model.records import GENESIS, SagaOpened
from agent_saga.store.merged import merged_of
from agent_saga.store.port import ReadsRanges
from agent_saga.store.reader import PAGE, check_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent_saga.machine.row import Row
    from agent_saga.machine.view import SagaView
    from agent_saga.model.records import AnyRecord
    from agent_saga.store.port import LogStore, StoredRecord, StoredRow

_TOGETHER: Final = PAGE
"""Records that are read and decoded together."""
_SLACK: Final = 200
"""Records more, which live processes may have added to these sagas since their rows were read."""
_TOGETHER_BYTES_MAX: Final = 4 << 20
_NO_VALUES: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Sound:
    """A saga whose records, chain, payloads and row were checked.

    Attributes:
        view: its fold, without values: rows and facts do not depend on them. Errors are there.
        at: the position of the record that sealed it, or 0.
        there: how many of its records are up to the position that was asked for.
    """

    view: SagaView
    at: int
    there: int


def alone(row: StoredRow) -> bool:
    """Tell whether a saga is to be read by `reader.history` only: it is amended, or its row makes no sense."""
    numbers = isinstance(row.saga_id, str) and isinstance(row.count, int)
    return not numbers or row.amendments != 0 or row.count < 1


def batches(rows: Iterable[StoredRow]) -> Iterator[list[StoredRow]]:
    """Divide rows, which follow one another by id, into ranges worth one read; one that is `alone` is a batch."""
    batch: list[StoredRow] = []
    size = 0
    for row in rows:
        single = alone(row)
        if batch and (single or size + row.count > _TOGETHER):
            yield batch
            batch, size = [], 0
        if single:
            yield [row]
        else:
            batch.append(row)
            size += row.count
    if batch:
        yield batch


def check_together(
    store: LogStore, ranges: ReadsRanges, rows: Sequence[StoredRow], last: int, *, any_pruned: bool
) -> dict[str, Sound]:
    """Return what was found of those sagas of a batch in which everything is as it must be.

    Args:
        store, ranges: the log.
        rows: a batch, newest first, see `batches`.
        last: the position up to which records are counted.
        any_pruned: False when it is known that nothing was pruned in this log.
    """
    first, end = rows[-1].saga_id, rows[0].saga_id
    touched = set(ranges.removed_between(first, end)) if any_pruned else set()
    check = _Check({row.saga_id: row for row in rows if row.saga_id not in touched}, last, merged_of(store).last)
    try:
        for page in _pages(store, ranges, rows, first, end):
            check.take(page)
        check.finish()
    except (_OddError, CorruptLog, TransitionError, ValueError, TypeError, LookupError):
        pass  # Whoever asks reads each saga that is not in the answer alone, and names the damage.
    return check.sound


def quick_fold(store: LogStore, row: StoredRow) -> SagaView | None:
    """Return the fold of one saga, checked and without its values; None where only `reader.history` can tell.

    Args:
        store: the log.
        row: the saga's row.
    """
    if not isinstance(store, ReadsRanges) or alone(row):
        return None
    sound = check_together(store, store, [row], 0, any_pruned=True).get(row.saga_id)
    return None if sound is None else sound.view


def _pages(
    store: LogStore, ranges: ReadsRanges, rows: Sequence[StoredRow], first: str, end: str
) -> Iterator[Sequence[StoredRecord]]:
    total = sum(row.count for row in rows)
    if total <= _TOGETHER:
        yield ranges.records_between(first, end, limit=total + _SLACK)
        return
    after = 0
    while after < total:
        page = store.records(first, after_n=after, limit=min(PAGE, total - after))
        if not page:
            return
        yield page
        after += len(page)


class _OddError(Exception):
    """Something is not as it must be."""


class _Check:
    """Goes through the records of some sagas.

    Args:
        rows: of the sagas to check, by id; records of others are passed over.
        last: see `check_together`.
        moved: see `Removed.moved_up_to`.
    """

    def __init__(self, rows: Mapping[str, StoredRow], last: int, moved: int) -> None:
        self._rows, self._last, self._moved = rows, last, moved
        self._chain: _Chain | None = None
        self.sound: dict[str, Sound] = {}

    def take(self, records: Sequence[StoredRecord]) -> None:
        """Check the next records.

        Raises:
            _OddError, CorruptLog, TransitionError, ValueError, TypeError, LookupError: something is not as it must be.
        """
        rows = self._rows
        page = [stored for stored in records if (row := rows.get(stored.saga_id)) is not None and stored.n <= row.count]
        payloads = [stored.payload for stored in page]
        if not page or sum([len(payload) for payload in payloads if payload is not None]) > _TOGETHER_BYTES_MAX:
            raise _OddError
        bodies = [stored.body for stored in page]
        decoded = decode_bodies(bodies)
        values = iter(check_payloads(decoded, payloads))
        start = 0
        while start < len(page):
            chain = self._chain_of(page[start].saga_id)
            end = start + chain.left
            chain.take(page[start:end], bodies[start:end], decoded[start:end], values)
            start = end

    def _chain_of(self, saga_id: str) -> _Chain:
        """Return the chain of the saga that was begun, or the next one."""
        chain = self._chain
        if chain is None or chain.left == 0:
            self.finish()
            chain = self._chain = _Chain(self._rows[saga_id], self._last, self._moved)
        return chain

    def finish(self) -> None:
        """Check that the saga is complete, and its row."""
        if self._chain is not None:
            self.sound[self._chain.saga_id] = self._chain.finish()


class _Chain:
    """The records of one saga.

    Attributes:
        left: how many are still to come.
    """

    def __init__(self, row: StoredRow, last: int, moved: int) -> None:
        self._stored, self._last, self._moved = row, last, moved
        self.saga_id, self.left = row.saga_id, row.count
        self._head, self._pos, self._there = GENESIS, 0, 0
        self._view: SagaView | None = None
        self._row: Row | None = None
        self._at = 0

    def take(
        self,
        page: Sequence[StoredRecord],
        bodies: Sequence[bytes],
        records: Sequence[AnyRecord],
        values: Iterator[dict[str, tuple[str, str]]],
    ) -> None:
        """Check records that follow."""
        saga_id, head, pos, n = self.saga_id, self._head, self._pos, self._stored.count - self.left
        there, last, view, row, moved = self._there, self._last, self._view, None, self._moved
        for stored, body, record in zip(page, bodies, records, strict=True):
            n += 1
            head = sha256(head + body).digest()
            if (
                head != stored.hash
                or not stored.n == record.n == n
                or not pos < stored.pos
                or (stored.pos != record.pos and stored.pos > moved)
                or not record.saga == stored.saga_id == saga_id
            ):
                raise _OddError
            pos = stored.pos
            if pos <= last:
                there += 1
            named = next(values) if record.values else _NO_VALUES
            if view is None:
                view = _opened(record)
                continue
            apply(view, record, {"error": named["error"][1]} if "error" in named else _NO_VALUES)
            if view.state in ENDED and not self._at:
                row = row_of(view)
                self._at = pos if row.sealed else 0
            else:
                row = None
        self._head, self._pos, self._there, self._view, self._row = head, pos, there, view, row
        self.left -= len(page)

    def finish(self) -> Sound:
        """Compare the row with the fold."""
        if self._view is None:
            raise _OddError
        check_row(self._view, self._head, self._stored, expected=self._row)
        return Sound(view=self._view, at=self._at, there=self._there)


def _opened(record: object) -> SagaView:
    if not isinstance(record, SagaOpened):
        raise _OddError
    return begin(record)
