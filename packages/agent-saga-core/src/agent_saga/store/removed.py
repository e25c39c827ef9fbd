"""What was removed from a log on purpose: values that were redacted, payloads and sagas that were pruned.

A payload that lacks values, or a saga that lacks records, is damage unless a record says so: `redacted` in a saga that
amends the one concerned, or `pruned` in a saga of its own, which also leaves a fact of kind `removed` for each saga.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import TYPE_CHECKING, Final

from agent_saga.errors import CorruptLog, RecordsPruned
from agent_saga.model.records import (
    GENESIS,
    SEALED,
    LateOutcome,
    Outcome,
    Probed,
    Pruned,
    Record,
    Redacted,
    chain_hash,
    decode_body,
    encode_body,
    open_payload,
)
from agent_saga.model.values import encrypted, redacted_as
from agent_saga.store.merged import merged_of
from agent_saga.store.sealing import KeepsDataKeys, key_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.store.port import LogStore, StoredRow

REMOVED: Final = "removed"
"""Kind of the facts that say what was pruned: no 0 for a whole saga, 1 for its payloads."""
PRUNED_TEXT: Final = '{"$redacted":"pruned"}'
_PAGE: Final = 1000
_LOOKS: Final = 5


class Removed:
    """What records say was removed from one saga.

    Attributes:
        moved_up_to: the position up to which the log is a merged one: bodies name the positions of other logs there.

    Readers and `rewrite` do not wait for one another: what does not fit is looked at again, together with what records
    say now, before it is called damage.
    """

    def __init__(self, store: LogStore | None, saga_id: str) -> None:
        self._store, self._saga_id = store, saga_id
        self._replaced: dict[int, dict[str, str]] = {}
        self._payloads = self._records = False
        self._gone_text = PRUNED_TEXT
        self.moved_up_to = 0 if store is None else merged_of(store).last

    @classmethod
    def of(
        cls, store: LogStore, saga_id: str, *, amending: Sequence[str] | None = None, any_pruned: bool = True
    ) -> Removed:
        """Return what records say was removed from a saga.

        Args:
            store: the log.
            saga_id: the saga.
            amending: the sagas that amend it, when the caller knows them.
            any_pruned: False when it is known that nothing was pruned in this log.
        """
        found = cls(store, saga_id)
        found._read(store.amendments(saga_id) if amending is None else amending, any_pruned=any_pruned)
        return found

    @property
    def something(self) -> bool:
        """Whether a payload may be another one than its body says."""
        return bool(self._replaced) or self._payloads

    def check_there(self, *, look: bool = True) -> None:
        """Check that the records of the saga were not pruned.

        Args:
            look: look again first.

        Raises:
            RecordsPruned: they were.
        """
        if look and self._store is not None:
            self._read(self._store.amendments(self._saga_id), any_pruned=True)
        if self._records:
            raise RecordsPruned(
                f"the records of saga {self._saga_id!r} were pruned: its row, key and leaf are in the log, and no more"
            )

    def replaced(self, n: int) -> dict[str, str]:
        """Return the commitments that took the place of those of a record."""
        return self._replaced.get(n, {})

    def open(self, record: Record, payload: bytes | None) -> dict[str, str]:
        """Return the value texts of a record, checked; see `records.open_payload`.

        Raises:
            ValueError: they differ from what the records say.
        """
        for _ in range(_LOOKS):
            try:
                return self._open(record, payload)
            except ValueError:
                if self._store is None:
                    raise
                before = (payload, self.replaced(record.n), self._payloads)
                self._read(self._store.amendments(self._saga_id), any_pruned=True)
                again = self._store.records(self._saga_id, after_n=record.n - 1, limit=1)
                payload = again[0].payload if again else payload
                if (payload, self.replaced(record.n), self._payloads) == before:
                    raise
        return self._open(record, payload)

    def _open(self, record: Record, payload: bytes | None) -> dict[str, str]:
        if self._payloads and record.values:
            if payload is not None:
                raise ValueError("its payload is there, and a record says that it was pruned")
            return _inexact(record, dict.fromkeys(record.values, self._gone_text), record.values)
        replaced = self._replaced.get(record.n)
        if payload is not None and payload.startswith(SEALED):
            return self._locked(record)
        if replaced is None:
            return open_payload(record, payload)
        if not replaced.keys() <= record.values.keys():
            raise ValueError("a record says that values were redacted which it does not have")
        return _inexact(record, open_payload(record, payload, replaced), replaced)

    def _locked(self, record: Record) -> dict[str, str]:
        """Return what stands for values whose key is not here; their chain is checked all the same."""
        store: object = self._store
        data_key = store.data_key(self._saga_id) if isinstance(store, KeepsDataKeys) else None
        if data_key is None:
            raise ValueError("its payload is encrypted, its key is gone, and no record says that it was shredded")
        if not record.values:
            raise ValueError("it has an encrypted payload and no values")
        return _inexact(record, dict.fromkeys(record.values, encrypted(key_id_of(data_key))), record.values)

    def _read(self, amending: Iterable[str], *, any_pruned: bool) -> None:
        store = self._store
        replaced: dict[int, dict[str, str]] = {}
        if store is None:
            return
        for other in amending:
            for record in _said(store, other):
                if isinstance(record, Redacted):
                    replaced[record.record] = {**replaced.get(record.record, {}), **record.replaced}
        facts = store.facts(REMOVED, self._saga_id) if any_pruned else []
        for fact in facts:
            said = [
                record for record in _said(store, fact.saga_id) if isinstance(record, Pruned) and _names(record, fact)
            ]
            if not said:
                raise CorruptLog("a fact says that it was pruned, and no record does", saga_id=self._saga_id)
            if said[0].shredded:
                self._gone_text = redacted_as(f"shredded by {said[0].by} at {_moment(said[0].at)}")
        self._replaced = replaced
        self._records = any(fact.no == 0 for fact in facts)
        self._payloads = any(fact.no == 1 for fact in facts)


UNTOUCHED: Final = Removed(None, "")
"""Nothing was removed, and nobody looks whether something was."""


def _inexact(record: Record, texts: dict[str, str], gone: Iterable[str]) -> dict[str, str]:
    """Mark a record whose result is not what was returned: it cannot be replayed."""
    if isinstance(record, Outcome | LateOutcome | Probed) and "result" in gone:
        record.exact = False
    return texts


def _moment(at: int) -> str:
    return dt.datetime.fromtimestamp(at // 10**9, tz=dt.UTC).isoformat()


def _names(record: Pruned, fact: Fact) -> bool:
    return int(record.payloads_only) == fact.no and (fact.name, fact.at, fact.value) in record.sagas


def _said(store: LogStore, saga_id: str) -> Iterable[Redacted | Pruned]:
    """Yield what a saga says was removed; its chain is checked, its own payloads are not looked at."""
    n, head = 0, GENESIS
    while page := store.records(saga_id, after_n=n, limit=_PAGE):
        for stored in page:
            n += 1
            try:
                record = decode_body(stored.body)
            except (ValueError, TypeError) as error:
                raise CorruptLog(str(error), saga_id=saga_id, n=n) from error
            if stored.n != n or chain_hash(head, stored.body) != stored.hash:
                raise CorruptLog("the hash chain is broken", saga_id=saga_id, n=n)
            head = stored.hash
            if isinstance(record, Redacted | Pruned):
                yield record


def row_digest(stored: StoredRow, facts: Iterable[Fact]) -> str:
    """Return the digest of what stays of a pruned saga: hex SHA-256 of its row and facts as compact JSON."""
    row = stored.row
    values = [stored.saga_id, row.name, row.key, row.incarnation, row.state, row.owner, row.epoch, row.on_crash]
    values += [row.opened_at, row.due_at, row.work, row.human, int(row.sealed), row.amends, stored.head.hex()]
    values += [stored.count, stored.amendments, stored.leaf]
    held = sorted([fact.kind, fact.name, fact.no, fact.value, fact.at] for fact in facts)
    return hashlib.sha256(encode_body([*values, held])).hexdigest()
