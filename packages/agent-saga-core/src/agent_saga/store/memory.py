"""A log in memory: lives and dies with the process; also the reference model of a log."""

from __future__ import annotations

import os
import secrets
import threading
from bisect import bisect_right
from dataclasses import replace
from hashlib import sha256
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.errors import InvariantViolation
from agent_saga.machine.gate import HALTING
from agent_saga.model.records import GENESIS, AnyRecord, encode_body
from agent_saga.store.port import Committed, DeadOwner, Query, Stale, StoredRecord, StoredRow
from agent_saga.store.rules import Current, judge, mark_refused, unmet
from agent_saga.store.totals import TOTAL, with_totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.machine.row import Row
    from agent_saga.store.port import FactsChange, Item, Refused, Removal, Verdict

_Entry = tuple[int, str, int, bytes, "bytes | None", bytes]
_position: Final = itemgetter(0)


class _State:
    """Everything the log holds; also what the rules look at."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.chains: dict[str, list[_Entry]] = {}
        self.currents: dict[str, Current] = {}
        self.stored_rows: dict[str, Row] = {}
        self.keys: dict[str, str] = {}
        self.amending: dict[str, list[str]] = {}
        self.unsealed: dict[str, None] = {}
        self.leaves = 0
        self.facts: dict[str, dict[str, dict[tuple[str, int], Fact]]] = {}

    def saga(self, saga_id: str) -> Current | None:
        return self.currents.get(saga_id)

    def newest(self, key: str) -> Current | None:
        saga_id = self.keys.get(key)
        return None if saga_id is None else self.currents[saga_id]

    def facts_of_name(self, kind: str, name: str) -> list[Fact]:
        return list(self.facts.get(kind, {}).get(name, {}).values())

    def fact(self, kind: str, name: str, saga_id: str, no: int) -> Fact | None:
        return self.facts.get(kind, {}).get(name, {}).get((saga_id, no))

    def remove(self, removal: Removal) -> None:
        """Replace the payloads of a saga, or take its records away."""
        saga_id = removal.row.saga_id
        made: list[_Entry] = []
        for pos, _, n, body, payload, digest in [] if removal.records else self.chains[saga_id]:
            now = None if removal.payloads is None else removal.payloads.get(n, payload)
            made.append((pos, saga_id, n, body, now, digest))
        kept = {entry[0]: entry for entry in made}
        self.chains[saga_id] = made
        self.entries = [kept.get(e[0], e) for e in self.entries if e[1] != saga_id or not removal.records]
        if removal.records:
            self.stored_rows[saga_id] = replace(removal.row.row, epoch=removal.row.row.epoch + 1)
            self.currents[saga_id].epoch += 1

    def all_facts(self) -> Iterator[Fact]:
        kinds = (names for kind, names in self.facts.items() if kind != TOTAL)
        return (fact for names in kinds for facts in names.values() for fact in facts.values())

    def change_facts(self, change: FactsChange | None) -> None:
        if change is None:
            return
        change = with_totals(change, self)
        for fact in change.removed:
            names = self.facts.get(fact.kind, {})
            facts = names.get(fact.name, {})
            facts.pop((fact.saga_id, fact.no), None)
            if not facts:
                names.pop(fact.name, None)
        for fact in change.added:
            self.facts.setdefault(fact.kind, {}).setdefault(fact.name, {})[fact.saga_id, fact.no] = fact


class MemoryLog:
    """See LogStore. `durable` and `sync` mean nothing here: nothing survives the process.

    An item that raises `InvariantViolation` leaves the items before it in the log (SQLite then takes none of a batch).
    """

    def __init__(self) -> None:
        self.location = "memory:"
        self._lock = threading.Lock()
        self._state = _State()
        self._owner = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._proved: set[str] = set()
        self._log_id = secrets.token_hex(16)

    def log_id(self) -> str:
        """See LogStore.log_id."""
        return self._log_id

    def append(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        """See LogStore.append."""
        with self._lock:
            return [judge(item, self._state) or self._apply(item) for item in items]

    def rewrite(self, item: Item, removals: Sequence[Removal]) -> Verdict:
        """See LogStore.rewrite."""
        with self._lock:
            for removal in removals:
                saga_id = removal.row.saga_id
                if saga_id not in self._state.currents or self._stored(saga_id) != removal.row:
                    return Stale(f"saga {saga_id!r} has changed since the writer saw it")
            refusal = judge(item, self._state)
            if refusal is not None:
                return refusal
            verdict = self._apply(item)  # First, so that no position is used twice.
            for removal in removals:
                self._state.remove(removal)
            return verdict

    def scrub(self) -> None:
        """See LogStore.scrub: a memory log holds no copies."""

    def _apply(self, item: Item) -> Committed | Refused:
        state, saga_id = self._state, item.saga_id
        refused = unmet(item, state) if item.requires else None
        if refused is not None:
            mark_refused(item, refused.reason)
        current = state.currents.get(saga_id)
        count, head = (0, GENESIS) if current is None else (current.count, current.head)
        pos = state.entries[-1][0] if state.entries else 0
        made: list[_Entry] = []
        for draft in item.drafts:
            body, pos, count = draft.body, pos + 1, count + 1
            body.n, body.pos = count, pos
            data = _encoded(body)
            head = sha256(head + data).digest()
            made.append((pos, saga_id, count, data, draft.payload, head))
        # Nothing is changed before every body of the item is encoded: an error leaves the log as it was.
        if current is None:
            current = self._open(item)
        state.entries += made
        state.chains[saga_id] += made
        current.count, current.head = count, head
        if current.amends is not None:
            state.currents[current.amends].amendments += len(made)
        if item.amended is not None:
            self._put_row(state.currents[item.amended.saga_id], item.amended.row)
            state.change_facts(item.amended.facts)
        if item.row is not None:
            self._put_row(current, item.row)
        if refused is None and item.facts is not None:
            state.change_facts(item.facts)
        return refused or Committed(pos, head)

    def _open(self, item: Item) -> Current:
        state, row = self._state, item.row
        assert row is not None
        current = state.currents[item.saga_id] = Current(item.saga_id)
        current.take(row)
        state.chains[item.saga_id] = []
        if row.key is not None:
            state.keys[row.key] = item.saga_id
        if row.amends is not None:
            state.amending.setdefault(row.amends, []).append(item.saga_id)
        return current

    def _put_row(self, current: Current, row: Row) -> None:
        state = self._state
        state.stored_rows[current.saga_id] = row
        current.take(row)
        if not row.sealed:
            state.unsealed[current.saga_id] = None
            return
        state.unsealed.pop(current.saga_id, None)
        if current.leaf is None:
            state.leaves += 1
            current.leaf = state.leaves

    def sync(self) -> None:
        """See LogStore.sync."""

    def owner(self) -> str:
        """See LogStore.owner."""
        return self._owner

    def prove_dead(self, owner: str) -> DeadOwner | None:
        """See LogStore.prove_dead. Only this process can own a saga here, so any other token is a dead one's."""
        with self._lock:
            if owner == self._owner or owner in self._proved:
                return None
            self._proved.add(owner)
        return _Proof(self._proved, owner)

    def row(self, saga_id: str) -> StoredRow | None:
        """See LogStore.row."""
        with self._lock:
            return self._stored(saga_id) if saga_id in self._state.currents else None

    def row_of_key(self, key: str) -> StoredRow | None:
        """See LogStore.row_of_key."""
        with self._lock:
            saga_id = self._state.keys.get(key)
            return None if saga_id is None else self._stored(saga_id)

    def rows(self, query: Query) -> list[StoredRow]:
        """See LogStore.rows."""
        with self._lock:
            ids = sorted(self._state.unsealed if query.unsealed else self._state.currents, reverse=not query.unsealed)
            if query.after is not None:
                ids = [i for i in ids if (i > query.after if query.unsealed else i < query.after)]
            found: list[StoredRow] = []
            for saga_id in ids:
                if len(found) == query.limit:
                    break
                if _matches(self._state.stored_rows[saga_id], query):
                    found.append(self._stored(saga_id))
            return found

    def _stored(self, saga_id: str) -> StoredRow:
        current = self._state.currents[saga_id]
        return StoredRow(
            saga_id=saga_id,
            row=self._state.stored_rows[saga_id],
            head=current.head,
            count=current.count,
            amendments=current.amendments,
            leaf=current.leaf,
        )

    def records(self, saga_id: str, *, after_n: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.records."""
        with self._lock:
            return [_stored_record(entry) for entry in self._state.chains.get(saga_id, [])[after_n : after_n + limit]]

    def tail(self, *, after_pos: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.tail."""
        with self._lock:
            entries = self._state.entries
            first = bisect_right(entries, after_pos, key=_position)
            return [_stored_record(entry) for entry in entries[first : first + limit]]

    def facts(self, kind: str, name: str | None = None) -> list[Fact]:
        """See LogStore.facts."""
        with self._lock:
            if name is not None:
                return sorted(self._state.facts_of_name(kind, name))
            return sorted(fact for facts in self._state.facts.get(kind, {}).values() for fact in facts.values())

    def halts(self) -> list[Fact]:
        """See LogStore.halts."""
        if not any(map(self._state.facts.get, HALTING)):  # No lock: a halt that is being written is not there yet.
            return []
        return sorted(fact for kind in HALTING for fact in self.facts(kind))

    def facts_of(self, saga_id: str) -> list[Fact]:
        """See LogStore.facts_of."""
        with self._lock:
            return sorted(fact for fact in self._state.all_facts() if fact.saga_id == saga_id)

    def count_facts(self) -> int:
        """See LogStore.count_facts."""
        with self._lock:
            return sum(1 for _ in self._state.all_facts())

    def amendments(self, saga_id: str) -> list[str]:
        """See LogStore.amendments."""
        with self._lock:
            return list(self._state.amending.get(saga_id, ()))

    def verify(self) -> Iterator[str]:
        """See LogStore.verify."""
        yield "the file: there is none, the log is in memory"

    def close(self) -> None:
        """See LogStore.close."""


class _Proof:
    """See DeadOwner."""

    def __init__(self, proved: set[str], owner: str) -> None:
        self._proved, self._owner = proved, owner

    def forget(self) -> None:
        """See DeadOwner.forget."""
        self.close()

    def close(self) -> None:
        """See DeadOwner.close."""
        self._proved.discard(self._owner)


def _encoded(body: AnyRecord) -> bytes:
    try:
        return encode_body(body)
    except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError, OverflowError) as error:
        raise InvariantViolation(f"a record cannot be encoded, nothing was written: {error}") from error


def _matches(row: Row, query: Query) -> bool:
    return (
        (query.states is None or row.state in query.states)
        and (query.name is None or row.name == query.name)
        and (not query.needs_human or row.human > 0)
        and (query.amendments or row.amends is None)
    )


def _stored_record(entry: _Entry) -> StoredRecord:
    pos, saga_id, n, body, payload, digest = entry
    return StoredRecord(pos=pos, saga_id=saga_id, n=n, body=body, payload=payload, hash=digest)
