"""Reading a log with every check: nothing that this module returns was taken on trust."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final

from agent_saga.errors import CorruptLog
from agent_saga.machine.fold import amend, apply, begin
from agent_saga.machine.row import row_of
from agent_saga.machine.states import TransitionError
from agent_saga.model.pages import decode_bodies, open_payloads
from agent_saga.model.records import (
    GENESIS,
    AnyRecord,
    SagaOpened,
    chain_hash,
    decode_body,
)
from agent_saga.store.port import StoredRecord, StoredRow
from agent_saga.store.removed import UNTOUCHED, Removed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent_saga.machine.row import Row
    from agent_saga.machine.view import SagaView
    from agent_saga.store.port import LogStore

PAGE: Final = 1000
"""Records that one read takes; no snapshot of the log is held longer than one of them."""
_TOGETHER_BYTES_MAX: Final = 4 << 20
"""Payloads of more bytes are checked one by one, so that checking takes no memory beside them."""

Checked = tuple[StoredRecord, AnyRecord, dict[str, str]]
"""A record as stored, its body, and its value texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A saga as read and checked.

    Attributes:
        view: the fold of its chain and of its amendments.
        row: its stored row, equal to what the fold says.
    """

    view: SagaView
    row: StoredRow


def check_record(stored: StoredRecord, previous: bytes, n: int, removed: Removed = UNTOUCHED) -> Checked:
    """Check one record on its own and against the record before it.

    Args:
        stored: the record.
        previous: hash of the record before it in its saga.
        n: the number that it must have.
        removed: what records say was removed from the payloads of its saga.

    Raises:
        CorruptLog: number, saga, position, chain, body or payload is wrong.
    """
    saga_id = stored.saga_id
    if stored.n != n:
        raise CorruptLog(f"expected record {n}, found {stored.n}: a record is missing or moved", saga_id=saga_id, n=n)
    if not isinstance(stored.body, bytes) or not isinstance(stored.payload, bytes | None):
        raise CorruptLog("body or payload is of another type than it was written", saga_id=saga_id, n=n)
    if chain_hash(previous, stored.body) != stored.hash:
        raise CorruptLog("the hash chain is broken", saga_id=saga_id, n=n)
    try:
        record = decode_body(stored.body)
        values = removed.open(record, stored.payload)
    except ValueError as error:
        raise CorruptLog(str(error), saga_id=saga_id, n=n) from error
    moved = isinstance(stored.pos, int) and stored.pos <= removed.moved_up_to
    if (record.saga, record.n) != (saga_id, n) or (record.pos != stored.pos and not moved):
        raise CorruptLog("the body names another saga, number or position than its row", saga_id=saga_id, n=n)
    return stored, record, values


def check_each(
    page: Sequence[StoredRecord], previous: bytes, n: int, removed: Removed = UNTOUCHED
) -> Iterator[Checked]:
    """Yield records that follow one another, each after its checks; see `check_record`."""
    for number, stored in enumerate(page, start=n):
        yield check_record(stored, previous, number, removed)
        previous = stored.hash


def check_page(
    page: Sequence[StoredRecord], previous: bytes, n: int, removed: Removed = UNTOUCHED
) -> Iterable[Checked]:
    """Return records that follow one another, checked: what can be done for all of them at once is done so.

    Where anything is wrong, `check_each` yields those before it, and says what it is.

    Args:
        page: the records.
        previous: hash of the record before the first.
        n: the number that the first must have.
        removed: see `check_record`.

    Raises:
        CorruptLog: see `check_record`.
    """
    if removed.something:
        return check_each(page, previous, n, removed)
    head, number = previous, n
    payloads = [stored.payload for stored in page]
    try:
        if sum([len(payload) for payload in payloads if payload is not None]) > _TOGETHER_BYTES_MAX:
            return check_each(page, previous, n, removed)
        bodies = [stored.body for stored in page]
        records = decode_bodies(bodies)
        values = open_payloads(records, payloads)
        for stored, body, record in zip(page, bodies, records, strict=True):
            head = sha256(head + body).digest()
            same_place = record.pos == stored.pos or stored.pos <= removed.moved_up_to
            if (
                record.saga != stored.saga_id
                or head != stored.hash
                or not stored.n == record.n == number
                or not same_place
            ):
                return check_each(page, previous, n, removed)
            number += 1
    except (ValueError, TypeError):
        return check_each(page, previous, n, removed)
    return zip(page, records, values, strict=True)


def checked_records(
    store: LogStore, saga_id: str, *, count: int | None = None, removed: Removed | None = None
) -> Iterator[Checked]:
    """Yield the records of one saga, in order, each after its checks; nothing for a saga that does not exist.

    Args:
        store: the log.
        saga_id: the saga.
        count: read so many records and no more, and miss none of them; None reads to the end.
        removed: what records say was removed from its payloads, when the caller has looked already.

    Raises:
        CorruptLog: a record is damaged, or fewer than `count` are there.
        RecordsPruned: its records were removed, and a record says so.
    """
    if removed is None:
        removed = Removed.of(store, saga_id)
    n, head, pos = 0, GENESIS, 0
    while count is None or n < count:
        page = store.records(saga_id, after_n=n, limit=PAGE if count is None else min(PAGE, count - n))
        for checked in check_page(page, head, n + 1, removed):
            stored = checked[0]
            n += 1
            if stored.saga_id != saga_id or stored.pos <= pos:
                raise CorruptLog("the records of the saga are out of order", saga_id=saga_id, n=n)
            head, pos = stored.hash, stored.pos
            yield checked
        if len(page) == 0:
            break
    if count is not None and n < count:
        removed.check_there()
        raise CorruptLog(f"{count} records were committed, {n} are there", saga_id=saga_id, n=n + 1)


def load(store: LogStore, saga_id: str) -> Loaded | None:
    """Return one saga, folded and checked against its stored row; None when the log holds no such saga.

    Concurrency:
        The row is read first, then exactly the records that it counts: those exist for good, so a log that live
        processes write gives the saga as it was when the row was read.

    Raises:
        CorruptLog: a record, the chain or the row is damaged.
        RecordsPruned: its records were removed, and a record says so.
    """
    stored = complete_row(store, saga_id)
    if stored is None:
        if store.records(saga_id, limit=1) and store.row(saga_id) is None:
            raise CorruptLog("it has records and no row", saga_id=saga_id)
        return None
    ((_, view),) = deque(history(store, stored), maxlen=1)
    return Loaded(view=view, row=stored)


def complete_row(store: LogStore, saga_id: str) -> StoredRow | None:
    """Return the row of one saga, which counts at least the amending records that were there before it was read.

    Raises:
        CorruptLog: it misses some.
    """
    amending = [store.row(other) for other in store.amendments(saga_id)]
    there = sum(_counted(other).count for other in amending if other is not None)
    stored = store.row(saga_id)
    if stored is not None and _counted(stored).amendments < there:
        raise CorruptLog(f"its row counts {stored.amendments} amending records, {there} are there", saga_id=saga_id)
    return stored


def history(store: LogStore, stored: StoredRow, *, any_pruned: bool = True) -> Iterator[tuple[Checked, SagaView]]:
    """Yield each record that a row counts, and the view after it (one view, which changes in place).

    Args:
        store: the log.
        stored: a row of it; read before, so that its records are there for good.
        any_pruned: False when it is known that nothing was pruned in this log.

    Raises:
        CorruptLog: a record, the chain or the row is damaged; the row is compared after the last record.
        RecordsPruned: its records were removed, and a record says so.
    """
    saga_id = _counted(stored).saga_id
    others = store.amendments(saga_id) if stored.amendments else []
    removed = Removed.of(store, saga_id, amending=others, any_pruned=any_pruned)
    removed.check_there(look=False)
    records = checked_records(store, saga_id, count=stored.count, removed=removed)
    amending: frozenset[str] = frozenset()
    if stored.amendments:
        facts = heapq.merge(*(checked_records(store, other) for other in others), key=_position)
        records = heapq.merge(records, islice(facts, stored.amendments), key=_position)
        amending = frozenset(others)
    try:
        yield from _folded(saga_id, stored, records, amending)
    except CorruptLog:
        removed.check_there()  # Pruned while it was read: what is missing is no damage.
        raise


def _folded(
    saga_id: str, stored: StoredRow, records: Iterator[Checked], amending: frozenset[str]
) -> Iterator[tuple[Checked, SagaView]]:
    """Fold the records of a saga and of those that amend it, and compare the row after the last one."""
    view: SagaView | None = None
    head = GENESIS
    for checked in records:
        as_stored, record, record_values = checked
        if amending and record.saga in amending:
            view = _advance_amended(view, record, record_values, saga_id)
        elif view is None:
            view, head = advance(view, record, record_values), as_stored.hash
        else:
            try:
                apply(view, record, record_values)
            except TransitionError as error:
                raise CorruptLog(str(error), saga_id=record.saga, n=record.n) from error
            head = as_stored.hash
        yield checked, view
    if view is None:
        raise CorruptLog("it has a row and no records", saga_id=saga_id)
    check_row(view, head, stored)


def _counted(stored: StoredRow) -> StoredRow:
    """Return a row by whose numbers records can be counted; all else in it is compared with the fold."""
    if not (isinstance(stored.count, int) and isinstance(stored.amendments, int) and stored.amendments >= 0):
        raise CorruptLog("its row counts records by what is no number of records", saga_id=stored.saga_id)
    return stored


def _position(checked: Checked) -> int:
    return checked[0].pos


def advance(view: SagaView | None, record: AnyRecord, values: Mapping[str, str]) -> SagaView:
    """Fold one record of a saga's own chain into its view; the first one begins it.

    Raises:
        CorruptLog: the record cannot follow.
    """
    try:
        if view is not None:
            apply(view, record, values)
            return view
        if isinstance(record, SagaOpened):
            return begin(record)
    except TransitionError as error:
        raise CorruptLog(str(error), saga_id=record.saga, n=record.n) from error
    raise CorruptLog("the first record is not `saga_opened`", saga_id=record.saga, n=record.n)


def _advance_amended(view: SagaView | None, record: AnyRecord, values: Mapping[str, str], saga_id: str) -> SagaView:
    if isinstance(record, SagaOpened) and record.amends != saga_id:
        raise CorruptLog(f"its row says that it amends {saga_id!r}, its records do not", saga_id=record.saga, n=1)
    if view is None:
        raise CorruptLog("it amends a saga that was not opened before it", saga_id=record.saga, n=record.n)
    try:
        amend(view, record, values)
    except TransitionError as error:
        raise CorruptLog(f"as an amendment of {view.id!r}: {error}", saga_id=record.saga, n=record.n) from error
    return view


def check_row(view: SagaView, head: bytes, stored: StoredRow, *, expected: Row | None = None) -> None:
    """Compare a stored row with the fold.

    Args:
        view: the fold.
        head: hash of the last record of the chain.
        stored: the row.
        expected: what `row_of` says of the view, where that is known.

    Raises:
        CorruptLog: they differ.
    """
    expected = expected or row_of(view)
    if stored.row != expected:
        names = [name for name in expected.__slots__ if getattr(expected, name) != getattr(stored.row, name)]
        raise CorruptLog(f"its row differs from its records in {', '.join(names)}", saga_id=view.id)
    if (stored.head, stored.count, stored.amendments) != (head, view.count, view.amended):
        raise CorruptLog("its row differs from its records in head, count or amendments", saga_id=view.id)
    if expected.sealed and stored.leaf is None:
        raise CorruptLog("it is sealed and has no leaf", saga_id=view.id)
