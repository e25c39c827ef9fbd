"""A simulated transactional log: the real rules, bodies, payloads and hash chains, on a disk that loses what it may.

An `Image` is what the log holds after one commit, and is never changed; so a crash is a reference to an old image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from agent_saga.errors import LogFailed
from agent_saga.machine.gate import HALTING
from agent_saga.model.records import chain_hash, encode_body
from agent_saga.store.port import Committed, Stale, StoredRecord, StoredRow
from agent_saga.store.rules import Current, judge, mark_refused, unmet
from agent_saga.store.totals import TOTAL, with_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.machine.row import Row
    from agent_saga.model.records import AnyRecord
    from agent_saga.store.port import DeadOwner, FactsChange, Item, Query, Refused, Removal, Verdict

LEASE_S: Final = 30.0
"""In a log shared by machines: how long an owner that does not run counts as alive."""


class Killed(BaseException):
    """The simulated process is dead: nothing that it still does reaches the log or the world."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One saga as the log holds it; `bodies` are the records as written, for the checks only."""

    current: Current
    row: Row
    records: tuple[StoredRecord, ...]
    bodies: tuple[AnyRecord, ...]

    @property
    def stored(self) -> StoredRow:
        """The derived row."""
        c = self.current
        return StoredRow(
            saga_id=c.saga_id, row=self.row, head=c.head, count=c.count, amendments=c.amendments, leaf=c.leaf
        )


@dataclass(frozen=True, slots=True)
class Image:
    """Everything the log holds after a commit."""

    chains: Mapping[str, Chain]
    keys: Mapping[str, str]
    amending: Mapping[str, tuple[str, ...]]
    facts: frozenset[Fact] = frozenset()
    pos: int = 0
    leaves: int = 0

    @property
    def digest(self) -> int:
        """A number that differs between images that differ."""
        return hash(tuple((chain.current.head, chain.current.leaf) for chain in self.chains.values()))


EMPTY: Final = Image({}, {}, {})


class Transaction:
    """The next image in the making; also what the rules look at."""

    def __init__(self, image: Image) -> None:
        self.chains = dict(image.chains)
        self.keys = dict(image.keys)
        self.amending = dict(image.amending)
        self.facts = image.facts
        self.pos, self.leaves = image.pos, image.leaves

    def facts_of_name(self, kind: str, name: str) -> list[Fact]:
        """See rules.Facts.facts_of_name."""
        return sorted(fact for fact in self.facts if (fact.kind, fact.name) == (kind, name))

    def fact(self, kind: str, name: str, saga_id: str, no: int) -> Fact | None:
        """See rules.Facts.fact."""
        return next((fact for fact in self.facts if fact[:4] == (kind, name, saga_id, no)), None)

    def saga(self, saga_id: str) -> Current | None:
        """See rules.Lookup.saga."""
        chain = self.chains.get(saga_id)
        return None if chain is None else chain.current

    def newest(self, key: str) -> Current | None:
        """See rules.Lookup.newest."""
        saga_id = self.keys.get(key)
        return None if saga_id is None else self.chains[saga_id].current

    def apply(self, item: Item) -> Committed | Refused:
        """Append an item that the rules let through."""
        refused = unmet(item, self) if item.requires else None
        if refused is not None:
            mark_refused(item, refused.reason)
        chain = self.chains.get(item.saga_id)
        current = Current(item.saga_id) if chain is None else replace(chain.current)
        made: list[StoredRecord] = []
        for draft in item.drafts:
            body = draft.body
            self.pos += 1
            body.n = current.count = current.count + 1
            body.pos = self.pos
            data = encode_body(body)
            current.head = chain_hash(current.head, data)
            made.append(
                StoredRecord(
                    pos=self.pos, saga_id=item.saga_id, n=body.n, body=data, payload=draft.payload, hash=current.head
                )
            )
        row = item.row if item.row is not None else chain.row if chain is not None else None
        assert row is not None
        if item.row is not None:
            self._take(current, row)
        bodies = tuple(draft.body for draft in item.drafts)
        if chain is None:
            self._opened(row, item.saga_id)
            self.chains[item.saga_id] = Chain(current, row, tuple(made), bodies)
        else:
            self.chains[item.saga_id] = Chain(current, row, chain.records + tuple(made), chain.bodies + bodies)
        if current.amends is not None:
            self._amend(current.amends, len(made), item)
        if refused is None:
            self._change_facts(item.facts)
        return refused or Committed(self.pos, current.head)

    def _change_facts(self, change: FactsChange | None) -> None:
        if change is not None:
            change = with_totals(change, self)
            replaced = {fact[:4] for fact in change.added | change.removed}
            self.facts = frozenset(fact for fact in self.facts if fact[:4] not in replaced) | change.added

    def _take(self, current: Current, row: Row) -> None:
        current.take(row)
        if row.sealed and current.leaf is None:
            self.leaves += 1
            current.leaf = self.leaves

    def _opened(self, row: Row, saga_id: str) -> None:
        if row.key is not None:
            self.keys[row.key] = saga_id
        if row.amends is not None:
            self.amending[row.amends] = (*self.amending.get(row.amends, ()), saga_id)

    def _amend(self, target: str, count: int, item: Item) -> None:
        chain = self.chains[target]
        current = replace(chain.current, amendments=chain.current.amendments + count)
        row = chain.row
        if item.amended is not None:
            row = item.amended.row
            self._take(current, row)
            self._change_facts(item.amended.facts)
        self.chains[target] = Chain(current, row, chain.records, chain.bodies)

    def remove(self, removal: Removal) -> None:
        """Replace the payloads of a saga, or take its records away."""
        chain, swaps = self.chains[removal.row.saga_id], removal.payloads
        records = () if removal.records else chain.records
        kept = tuple(
            structs.replace(one, payload=None if swaps is None else swaps.get(one.n, one.payload)) for one in records
        )
        current, row = chain.current, chain.row
        if removal.records:
            current, row = replace(current, epoch=current.epoch + 1), replace(row, epoch=row.epoch + 1)
        self.chains[removal.row.saga_id] = Chain(current, row, kept, () if removal.records else chain.bodies)

    def image(self) -> Image:
        """Return the image."""
        return Image(self.chains, self.keys, self.amending, self.facts, self.pos, self.leaves)


class Disk:
    """What survives: the images since the last durable one, and who is alive.

    Attributes:
        image: what a reader sees now, and what is left after `kill -9`.
        durable: what is left at least after a loss of power.
        written: the images between the two; a loss of power leaves any of them.
        proved: who holds the proof of whose death; a death frees what the dead one held.
        leases: when owners that do not run are taken for dead; None on one machine, where the kernel proves a death.
            Who was proved dead cannot renew its lease any more.
    """

    def __init__(self, image: Image = EMPTY) -> None:
        self.image = self.durable = image
        self.written: list[Image] = []
        self.alive: set[str] = set()
        self.proved: dict[str, str] = {}
        self.leases: dict[str, int] | None = None
        self.fenced: set[str] = set()

    def commit(self, image: Image, *, durable: bool) -> None:
        """Make an image the current one."""
        self.image = image
        if durable:
            self.durable = image
            self.written.clear()
        else:
            self.written.append(image)

    def cuts(self) -> Iterator[Image]:
        """Yield what a loss of power may leave now, besides the current image."""
        if self.written:
            yield self.durable
            yield from self.written[:-1]

    def bury(self, owner: str) -> None:
        """Take note of a death: the kernel lets go of what the process held."""
        self.alive.discard(owner)
        self.proved = {dead: holder for dead, holder in self.proved.items() if holder != owner}

    def lives(self, owner: str, now_ns: int) -> bool:
        """Tell whether an owner counts as alive."""
        if self.leases is None:
            return owner in self.alive
        return self.leases.get(owner, 0) > now_ns


class SimLog:
    """A process's connection to the disk. See LogStore.

    Attributes:
        token: the process as an owner.
        faults: what happens to the n-th commit of this process: `lost` or `kept`, and its caller is told `LogFailed`;
            or seconds for which it waits for the lock of another process.
    """

    location = "memory:"

    def log_id(self) -> str:
        return "0" * 32

    def __init__(
        self,
        disk: Disk,
        token: str,
        *,
        now_ns: Callable[[], int],
        committed: Callable[[SimLog, Image, Sequence[Item], Sequence[Verdict]], None],
        waits: Callable[[float], None],
    ) -> None:
        self.disk, self.token = disk, token
        self.faults: dict[int, str | float] = {}
        self.commits = 0
        self.failed = self.dead = False
        self.failed_at = 0
        self._now_ns, self._committed, self._waits = now_ns, committed, waits

    def append(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        """See LogStore.append."""
        self._check()
        self.commits += 1
        fault = self.faults.get(self.commits)
        if isinstance(fault, float):
            self._waits(fault)
            self._check()
        transaction = Transaction(self.disk.image)
        verdicts: list[Verdict] = [judge(item, transaction) or transaction.apply(item) for item in items]
        changed = transaction.pos != self.disk.image.pos
        if fault in {"lost", "kept"}:
            self.failed, self.failed_at = True, self.disk.durable.pos
            if fault == "kept" and changed:
                self._commit(transaction, items, verdicts, durable=durable)
            raise LogFailed(f"simulated: the commit was {fault}, and its caller cannot know")
        if changed:
            self._commit(transaction, items, verdicts, durable=durable)
        return verdicts

    def rewrite(self, item: Item, removals: Sequence[Removal]) -> Verdict:
        """See LogStore.rewrite."""
        self._check()
        if any(self.row(removal.row.saga_id) != removal.row for removal in removals):
            return Stale("a saga has changed since the writer saw it")
        transaction = Transaction(self.disk.image)
        refusal = judge(item, transaction)
        if refusal is not None:
            return refusal
        verdict = transaction.apply(item)
        for removal in removals:
            transaction.remove(removal)
        self._commit(transaction, [item], [verdict], durable=True)
        return verdict

    def scrub(self) -> None:
        """See LogStore.scrub."""

    def _commit(
        self, transaction: Transaction, items: Sequence[Item], verdicts: Sequence[Verdict], *, durable: bool
    ) -> None:
        before = self.disk.image
        self.disk.commit(transaction.image(), durable=durable)
        self._committed(self, before, items, verdicts)

    def _check(self) -> None:
        if self.dead:
            raise Killed
        if self.failed:
            raise LogFailed("simulated: a commit of this process failed before")

    def sync(self) -> None:
        """See LogStore.sync."""
        self._check()
        self.disk.commit(self.disk.image, durable=True)

    def owner(self) -> str:
        """See LogStore.owner."""
        self.disk.alive.add(self.token)
        self.renew()
        return self.token

    def renew(self) -> None:
        """In a log shared by machines: say that this process runs."""
        if self.disk.leases is not None and not self.dead and self.token not in self.disk.fenced:
            self.disk.leases[self.token] = self._now_ns() + int(LEASE_S * 1e9)

    def prove_dead(self, owner: str) -> DeadOwner | None:
        """See LogStore.prove_dead."""
        disk = self.disk
        if disk.lives(owner, self._now_ns()) or owner in disk.proved:
            return None
        disk.proved[owner] = self.token
        disk.fenced.add(owner)
        return _Proof(disk, owner)

    def row(self, saga_id: str) -> StoredRow | None:
        """See LogStore.row."""
        chain = self.disk.image.chains.get(saga_id)
        return None if chain is None else chain.stored

    def row_of_key(self, key: str) -> StoredRow | None:
        """See LogStore.row_of_key."""
        saga_id = self.disk.image.keys.get(key)
        return None if saga_id is None else self.row(saga_id)

    def rows(self, query: Query) -> list[StoredRow]:
        """See LogStore.rows."""
        chains = self.disk.image.chains
        ids = sorted(chains, reverse=not query.unsealed)
        if query.after is not None:
            ids = [i for i in ids if (i > query.after if query.unsealed else i < query.after)]
        return [chains[i].stored for i in ids if _matches(chains[i], query)][: query.limit]

    def records(self, saga_id: str, *, after_n: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.records."""
        chain = self.disk.image.chains.get(saga_id)
        return [] if chain is None else list(chain.records[after_n : after_n + limit])

    def tail(self, *, after_pos: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.tail."""
        found = [r for chain in self.disk.image.chains.values() for r in chain.records if r.pos > after_pos]
        return sorted(found, key=lambda record: record.pos)[:limit]

    def facts(self, kind: str, name: str | None = None) -> list[Fact]:
        """See LogStore.facts."""
        return sorted(f for f in self.disk.image.facts if f.kind == kind and (name is None or f.name == name))

    def halts(self) -> list[Fact]:
        """See LogStore.halts."""
        facts = self.disk.image.facts
        return sorted(fact for fact in facts if fact.kind in HALTING) if facts else []

    def facts_of(self, saga_id: str) -> list[Fact]:
        """See LogStore.facts_of."""
        return sorted(fact for fact in self.disk.image.facts if fact.saga_id == saga_id)

    def count_facts(self) -> int:
        """See LogStore.count_facts."""
        return sum(fact.kind != TOTAL for fact in self.disk.image.facts)

    def amendments(self, saga_id: str) -> list[str]:
        """See LogStore.amendments."""
        return list(self.disk.image.amending.get(saga_id, ()))

    def verify(self) -> Iterator[str]:
        """See LogStore.verify."""
        yield "the file: there is none, the log is simulated"

    def close(self) -> None:
        """See LogStore.close."""
        self.disk.alive.discard(self.token)
        if self.disk.leases is not None:
            self.disk.leases.pop(self.token, None)


class _Proof:
    """See DeadOwner."""

    def __init__(self, disk: Disk, owner: str) -> None:
        self._disk, self._owner = disk, owner

    def forget(self) -> None:
        """See DeadOwner.forget."""
        self.close()

    def close(self) -> None:
        """See DeadOwner.close."""
        self._disk.proved.pop(self._owner, None)


def _matches(chain: Chain, query: Query) -> bool:
    row = chain.row
    return (
        not (query.unsealed and row.sealed)
        and (query.states is None or row.state in query.states)
        and (query.name is None or row.name == query.name)
        and (not query.needs_human or row.human > 0)
        and (query.amendments or row.amends is None)
    )
