"""What the log in an object store comes to: the sum of its commits, and a batch that is being judged on top of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import astuple, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.errors import CorruptLog, InvariantViolation
from agent_saga.machine.gate import Fact
from agent_saga.machine.row import Row
from agent_saga.model.records import FORMAT, GENESIS, ApprovalConsumed, ApprovalDecided, Intent, Reserved, encode_body
from agent_saga.store.objects.commit import FIRST_AFTER, Core, FactValues, RecordCore, RemovalCore
from agent_saga.store.port import Committed, Stale, StoredRecord, StoredRow
from agent_saga.store.rules import Current, judge, mark_refused, unmet
from agent_saga.store.totals import TOTAL, with_totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent_saga.store.objects.commit import Commit
    from agent_saga.store.port import FactsChange, Item, Removal, Verdict

_MARKED: Final = Intent | Reserved | ApprovalConsumed | ApprovalDecided
_FIELDS: Final = tuple(field.name for field in fields(Row))
_FactKey = tuple[str, str, str, int]


def _values(stored: StoredRow) -> tuple[Any, ...]:
    return (
        stored.saga_id,
        *astuple(stored.row),
        stored.head.hex(),
        stored.count,
        stored.amendments,
        stored.leaf,
    )


def _stored(values: Sequence[Any]) -> StoredRow:
    saga_id, *columns, head, count, amendments, leaf = values
    row = Row(**dict(zip(_FIELDS, columns, strict=True)))
    return StoredRow(saga_id=saga_id, row=row, head=bytes.fromhex(head), count=count, amendments=amendments, leaf=leaf)


class State:
    """The sum of all commits so far."""

    def __init__(self) -> None:
        self.log = ""
        self.no = 0
        self.digest = FIRST_AFTER
        self.starts: list[int] = []  # The first position of each commit.
        self.records: list[StoredRecord | None] = []
        self.chains: dict[str, list[int]] = {}
        self.rows: dict[str, StoredRow] = {}
        self.keys: dict[str, str] = {}
        self.amending: dict[str, list[str]] = {}
        self.unsealed: set[str] = set()
        self.leaves = 0
        self.facts: dict[str, dict[str, dict[tuple[str, int], Fact]]] = {}
        self.replaced: dict[int, list[int]] = {}  # By position: commits that hold a payload which took another's place.
        self.unscrubbed: set[int] = set()

    def facts_of_name(self, kind: str, name: str) -> list[Fact]:
        """See Facts.facts_of_name."""
        return list(self.facts.get(kind, {}).get(name, {}).values())

    def fact(self, kind: str, name: str, saga_id: str, no: int) -> Fact | None:
        """See Facts.fact."""
        return self.facts.get(kind, {}).get(name, {}).get((saga_id, no))

    def all_facts(self) -> Iterator[Fact]:
        """Yield all facts but the running totals of budgets."""
        kinds = (names for kind, names in self.facts.items() if kind != TOTAL)
        return (fact for names in kinds for held in names.values() for fact in held.values())

    def apply(self, core: Core, commit: Commit) -> None:
        """Go on by one commit.

        Raises:
            CorruptLog: it does not follow.
        """
        if core.no != self.no + 1 or core.after != self.digest or (self.log and core.log != self.log):
            raise CorruptLog(f"commit {core.no} does not follow the commit before it")
        heads = {saga_id: self.rows[saga_id].head for saga_id in {one.saga_id for one in core.records} & set(self.rows)}
        self.starts.append(len(self.records) + 1)
        for one, (body, payload) in zip(core.records, commit.texts, strict=True):
            digest = bytes.fromhex(one.hash)
            if body is not None and sha256(heads.get(one.saga_id, GENESIS) + body.encode()).digest() != digest:
                raise CorruptLog(f"commit {core.no}: the hash chain is broken", saga_id=one.saga_id, n=one.n)
            heads[one.saga_id] = digest
            self._add(one, body, payload, digest)
        for values in core.rows:
            self._put(_stored(values))
        self.keys.update(core.keys)
        for removed in core.removed:
            self._drop(Fact(*removed))
        for added in core.added:
            fact = Fact(*added)
            self.facts.setdefault(fact.kind, {}).setdefault(fact.name, {})[fact.saga_id, fact.no] = fact
        self.log, self.no, self.digest = core.log, core.no, commit.digest
        payloads = iter(commit.payloads)
        for removal in core.removals:
            self._remove(removal, [] if removal.numbers is None else next(payloads), core.no)

    def _add(self, one: RecordCore, body: str | None, payload: str | None, digest: bytes) -> None:
        pos = len(self.records) + 1
        record = None
        if body is not None:
            data = None if payload is None else payload.encode()
            record = StoredRecord(pos=pos, saga_id=one.saga_id, n=one.n, body=body.encode(), payload=data, hash=digest)
        self.records.append(record)
        self.chains.setdefault(one.saga_id, []).append(pos)

    def _put(self, stored: StoredRow) -> None:
        saga_id, row = stored.saga_id, stored.row
        if saga_id not in self.rows and row.amends is not None:
            self.amending.setdefault(row.amends, []).append(saga_id)
        self.rows[saga_id] = stored
        self.leaves = max(self.leaves, stored.leaf or 0)
        (self.unsealed.discard if row.sealed else self.unsealed.add)(saga_id)

    def _drop(self, fact: Fact) -> None:
        names = self.facts.get(fact.kind, {})
        held = names.get(fact.name, {})
        held.pop((fact.saga_id, fact.no), None)
        if not held:
            names.pop(fact.name, None)

    def _remove(self, removal: RemovalCore, payloads: list[str | None], no: int) -> None:
        chain = self.chains.get(removal.saga_id, [])
        if removal.records:
            for pos in chain:
                self._replace(pos, None)
        elif removal.numbers is None:
            for pos in chain:
                self._replace_payload(pos, None)
        else:
            for n, payload in zip(removal.numbers, payloads, strict=True):
                self._replace_payload(chain[n - 1], payload)
                self.replaced.setdefault(chain[n - 1], []).append(no)

    def _replace_payload(self, pos: int, payload: str | None) -> None:
        record = self.records[pos - 1]
        if record is not None:
            data = None if payload is None else payload.encode()
            self._replace(pos, msgspec.structs.replace(record, payload=data))

    def _replace(self, pos: int, record: StoredRecord | None) -> None:
        if self.records[pos - 1] != record:
            self.records[pos - 1] = record
            self.unscrubbed |= {self.commit_of(pos), *self.replaced.get(pos, ())}

    def commit_of(self, pos: int) -> int:
        """Return the number of the commit that brought a position."""
        return bisect_right(self.starts, pos)

    def texts_now(self, core: Core) -> tuple[list[tuple[str | None, str | None]], list[list[str | None]]]:
        """Return the texts that a commit's object may still hold: bodies with payloads, and replacing payloads."""
        first = self.starts[core.no - 1]
        texts = [_texts(self.records[pos - 1]) for pos in range(first, first + len(core.records))]
        payloads = [
            [_texts(self.records[self.chains[removal.saga_id][n - 1] - 1])[1] for n in removal.numbers]
            for removal in core.removals
            if removal.numbers is not None
        ]
        return texts, payloads


def _texts(record: StoredRecord | None) -> tuple[str | None, str | None]:
    if record is None:
        return None, None
    return record.body.decode(), None if record.payload is None else record.payload.decode()


class Batch:
    """Items that are judged one after the other on top of a state, which they leave as it is. See rules.Lookup."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._currents: dict[str, Current] = {}
        self._rows: dict[str, StoredRow] = {}
        self._keys: dict[str, str] = {}
        self._facts: dict[_FactKey, Fact | None] = {}
        self._pos, self._leaves = len(state.records), state.leaves
        self.records: list[RecordCore] = []
        self.texts: list[tuple[str | None, str | None]] = []
        self.removals: list[RemovalCore] = []
        self.payloads: list[list[str | None]] = []

    def saga(self, saga_id: str) -> Current | None:
        """See rules.Lookup.saga."""
        known = self._currents.get(saga_id)
        if known is None and (stored := self.row(saga_id)) is not None:
            known = self._currents[saga_id] = _current(stored)
        return known

    def newest(self, key: str) -> Current | None:
        """See rules.Lookup.newest."""
        saga_id = self._keys.get(key) or self._state.keys.get(key)
        return None if saga_id is None else self.saga(saga_id)

    def row(self, saga_id: str) -> StoredRow | None:
        """Return a row as it is after the items so far."""
        return self._rows.get(saga_id) or self._state.rows.get(saga_id)

    def facts_of_name(self, kind: str, name: str) -> list[Fact]:
        """See Facts.facts_of_name."""
        held = {(kind, *fact[1:4]): fact for fact in self._state.facts_of_name(kind, name)}
        held |= {key: fact for key, fact in self._facts.items() if key[:2] == (kind, name)}  # type: ignore[misc]
        return [fact for fact in held.values() if fact is not None]

    def fact(self, kind: str, name: str, saga_id: str, no: int) -> Fact | None:
        """See Facts.fact."""
        key = (kind, name, saga_id, no)
        return self._facts[key] if key in self._facts else self._state.fact(*key)

    def take(self, item: Item) -> Verdict:
        """Judge an item, and add it when it fits."""
        _unmark(item)
        refusal = judge(item, self)
        if refusal is not None:
            return refusal
        refused = unmet(item, self) if item.requires else None
        if refused is not None:
            mark_refused(item, refused.reason)
        committed = self._add(item)
        if refused is None:
            self._change(item.facts)
        return refused or committed

    def _add(self, item: Item) -> Committed:
        saga_id, before = item.saga_id, self.row(item.saga_id)
        number, head, pos = (0, GENESIS, self._pos) if before is None else (before.count, before.head, self._pos)
        made: list[tuple[RecordCore, tuple[str | None, str | None]]] = []
        for draft in item.drafts:
            number, pos = number + 1, pos + 1
            draft.body.n, draft.body.pos = number, pos
            body = _encoded(draft.body)
            head = sha256(head + body).digest()
            payload = None if draft.payload is None else draft.payload.decode()
            made.append((RecordCore(saga_id, number, head.hex()), (body.decode(), payload)))
        # Nothing is changed before every body of the item is encoded: an error leaves the batch as it was.
        self._pos = pos
        self.records += [core for core, _ in made]
        self.texts += [texts for _, texts in made]
        if before is None:
            assert item.row is not None
            before = StoredRow(saga_id=saga_id, row=item.row, head=head, count=0, amendments=0, leaf=None)
            if item.row.key is not None:
                self._keys[item.row.key] = saga_id
        self._keep(msgspec.structs.replace(before, head=head, count=number))
        if before.row.amends is not None:
            target = self.row(before.row.amends)
            assert target is not None
            self._keep(msgspec.structs.replace(target, amendments=target.amendments + len(made)))
        if item.amended is not None:
            self._put_row(item.amended.saga_id, item.amended.row)
            self._change(item.amended.facts)
        if item.row is not None:
            self._put_row(saga_id, item.row)
        return Committed(pos, head)

    def _put_row(self, saga_id: str, row: Row) -> None:
        stored = self.row(saga_id)
        assert stored is not None
        leaf = stored.leaf
        if leaf is None and row.sealed:
            self._leaves += 1
            leaf = self._leaves
        self._keep(msgspec.structs.replace(stored, row=row, leaf=leaf))

    def _keep(self, stored: StoredRow) -> None:
        self._rows[stored.saga_id] = stored
        self._currents.pop(stored.saga_id, None)

    def _change(self, change: FactsChange | None) -> None:
        if change is None:
            return
        change = with_totals(change, self)
        self._facts |= {(fact.kind, fact.name, fact.saga_id, fact.no): None for fact in change.removed}
        self._facts |= {(fact.kind, fact.name, fact.saga_id, fact.no): fact for fact in change.added}

    def remove(self, removals: Iterable[Removal]) -> None:
        """Add what is removed, after the item that says so."""
        for removal in removals:
            saga_id, stored = removal.row.saga_id, self.row(removal.row.saga_id)
            assert stored is not None
            if removal.records:
                self._keep(
                    msgspec.structs.replace(stored, row=replace(removal.row.row, epoch=removal.row.row.epoch + 1))
                )
                self.removals.append(RemovalCore(saga_id, records=True))
            elif removal.payloads is None:
                self.removals.append(RemovalCore(saga_id, records=False))
            else:
                self.removals.append(RemovalCore(saga_id, records=False, numbers=list(removal.payloads)))
                self.payloads.append([payload.decode() for payload in removal.payloads.values()])

    def misfit(self, removals: Iterable[Removal]) -> Stale | None:
        """Return why removals do not fit, or None when they do."""
        for removal in removals:
            if self.row(removal.row.saga_id) != removal.row:
                return Stale(f"saga {removal.row.saga_id!r} has changed since the writer saw it")
        return None

    def core(self, *, log: str, by: str) -> Core:
        """Return the commit of these items."""
        state = self._state
        return Core(
            format=FORMAT,
            log=log,
            no=state.no + 1,
            after=state.digest,
            by=by,
            records=self.records,
            rows=[_values(stored) for stored in self._rows.values()],
            keys=self._keys,
            removed=[_gone(key) for key, fact in self._facts.items() if fact is None],
            added=[fact[:] for fact in self._facts.values() if fact is not None],
            removals=self.removals,
        )


def _gone(key: _FactKey) -> FactValues:
    return (*key, "", 0)


def _encoded(body: Any) -> bytes:
    try:
        return encode_body(body)
    except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError, OverflowError) as error:
        raise InvariantViolation(f"a record cannot be encoded, nothing was written: {error}") from error


def _unmark(item: Item) -> None:
    """Forget an earlier judgement: another process committed first, and the item is judged anew."""
    if item.requires:
        for draft in item.drafts:
            if isinstance(draft.body, _MARKED):
                draft.body.refused = None


def _current(stored: StoredRow) -> Current:
    made = Current(stored.saga_id, count=stored.count, head=stored.head, amendments=stored.amendments, leaf=stored.leaf)
    made.take(stored.row)
    return made
