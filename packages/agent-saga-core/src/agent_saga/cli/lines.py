"""Records as JSON lines, each checked against its chain before it is given out."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.errors import CorruptLog
from agent_saga.model.records import GENESIS, payload_entries
from agent_saga.store.merged import merged_of
from agent_saga.store.reader import check_record, history
from agent_saga.store.removed import REMOVED, Removed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_saga.store.port import LogStore, StoredRecord

PAGE: Final = 500
HEADS_MAX: Final = 50_000
"""Ends of chains that are kept in memory; those of other sagas are read again when their next record comes."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def log_lines(store: LogStore) -> Iterator[bytes]:
    """Yield every record that a log has when it begins, in order of position.

    Raises:
        CorruptLog: a record, a chain or a position is damaged; nothing after it is given.
    """
    heads = _Heads(store)
    after, last, missing = 0, None, 0
    pruned = _pruned_records(store) + merged_of(store).skipped
    while page := store.tail(after_pos=after, limit=PAGE):
        if last is None:
            last = _last_position(store)
        for stored in page:
            if stored.pos > last:
                return
            missing += stored.pos - after - 1
            if missing > pruned:
                raise CorruptLog(f"position {after + 1} is missing, the next one is {stored.pos}")
            yield _line(stored, heads.check(stored))
            after = stored.pos


def _pruned_records(store: LogStore) -> int:
    """Return how many records were removed, and a record says so."""
    rows = (store.row(fact.name) for fact in store.facts(REMOVED) if fact.no == 0)
    return sum(row.count for row in rows if row is not None)


def _last_position(store: LogStore) -> int:
    from agent_saga.store.verify import last_position

    return last_position(store)


class _Heads:
    """Where each chain ends so far."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._known: OrderedDict[str, tuple[int, bytes, Removed]] = OrderedDict()

    def check(self, stored: StoredRecord) -> Mapping[str, str]:
        """Check a record against the end of its chain, and return its values."""
        n, head, removed = self._known.pop(stored.saga_id) if stored.saga_id in self._known else self._read(stored)
        _, _, values = check_record(stored, head, n + 1, removed)
        self._known[stored.saga_id] = (stored.n, stored.hash, removed)
        if len(self._known) > HEADS_MAX:
            self._known.popitem(last=False)
        return values

    def _read(self, stored: StoredRecord) -> tuple[int, bytes, Removed]:
        """Return the end of a chain that is not in memory: it was checked when it passed."""
        removed = Removed.of(self._store, stored.saga_id)
        if not isinstance(stored.n, int) or stored.n <= 1:
            return 0, GENESIS, removed
        before = self._store.records(stored.saga_id, after_n=stored.n - 2, limit=1)
        if not before or before[0].n != stored.n - 1 or before[0].pos >= stored.pos:
            raise CorruptLog("the record before it is missing or moved", saga_id=stored.saga_id, n=stored.n)
        return before[0].n, before[0].hash, removed


def saga_lines(store: LogStore, saga_id: str) -> Iterator[bytes]:
    """Yield the records of one saga and of its amendments, in order of position.

    Raises:
        CorruptLog: a record, a chain or the saga's row is damaged.
    """
    row = store.row(saga_id)
    if row is None:
        raise CorruptLog("it has records and no row", saga_id=saga_id)
    for (stored, _, values), _ in history(store, row):
        yield _line(stored, values)


def _line(stored: StoredRecord, values: Mapping[str, str]) -> bytes:
    body: dict[str, Any] = _decode(stored.body)
    commitments = body.pop("values", None)
    line = {"schema": "agent-saga/record/1", **body}
    if commitments is not None:
        payload = payload_entries(stored.payload)
        line["values"] = {name: _value(stored, name, text) for name, text in values.items()}
        line["salts"] = {name: salt for name, (salt, _) in payload.items()}
        line["commitments"] = commitments
    line["hash"] = stored.hash.hex()
    return _encode(line) + b"\n"


def _value(stored: StoredRecord, name: str, text: str) -> Any:
    try:
        return _decode(text)
    except msgspec.DecodeError as error:
        raise CorruptLog(f"its value {name!r} is no JSON: {error}", saga_id=stored.saga_id, n=stored.n) from error
