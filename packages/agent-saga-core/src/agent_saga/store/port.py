"""The port of a log: what the engine, recovery and readers ask of it.

A log keeps, per saga, a hash chain of records with one writer at a time, and a derived row that always equals the
fold of the chain. Compare-and-set of (epoch, count) is the whole fencing story: an append states the epoch under which
its owner writes and the number of records that it has seen; the store rejects both when they are not current.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Iterator, Mapping, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.machine.row import Row
    from agent_saga.model.records import AnyRecord
    from agent_saga.model.requirements import Requirement


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record on its way into the log: `n` and `pos` of the body are set by the store."""

    body: AnyRecord
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class FactsChange:
    """The change of a saga's facts (`machine.gate.facts_of`) that an item brings.

    Attributes:
        added: these hold now; a fact of the same kind, name, saga and number is replaced.
        removed: these hold no more; one that is not there is passed over.
    """

    added: frozenset[Fact] = frozenset()
    removed: frozenset[Fact] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """The change of another saga's row that an amendment brings, in the same transaction.

    Attributes:
        saga_id: the saga that the amendment names in `amends`.
        epoch, count, amendments: what the writer saw (`amendments` as in `StoredRow`); anything else is `Stale`.
        row: the row after the amendment (its fold, amendments included), also when the saga has a leaf already.
    """

    saga_id: str
    epoch: int
    count: int
    amendments: int
    row: Row
    facts: FactsChange | None = None


class Item(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Records of one saga that are committed together or not at all.

    Attributes:
        saga_id: the saga.
        epoch: the epoch under which the owner writes; for a claim, the new one.
        count: records of this saga in the log before the first draft; 0 opens the saga.
        drafts: the records, in order; may not be empty.
        row: the derived row after them, or None when it does not change (`head` and `count` always follow).
        claims: the first draft is `claimed`: the stored epoch must be `epoch - 1`.
        amended: set when this saga amends another one and changes its row.
        requires: what must hold for the intent among the drafts to start. When it does not, the drafts are committed
            all the same, with `refused` set in the bodies that have it, and `facts` is left out: the verdict is
            `Refused`, and the numbers of later records stay what their writers assume.
        facts: the change of this saga's facts.
        data_key: the wrapped key under which payloads of this saga are sealed, with the first of them; see
            `store.sealing`.
    """

    saga_id: str
    epoch: int
    count: int
    drafts: Sequence[Draft]
    row: Row | None = None
    claims: bool = False
    amended: Amended | None = None
    requires: tuple[Requirement, ...] = ()
    facts: FactsChange | None = None
    data_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What leaves the log, of one sealed saga.

    Attributes:
        row: the row of the saga as the writer saw it; anything else is `Stale`.
        payloads: payloads that take the place of others, by number of the record. `None`: all payloads of the saga go,
            and its data key.
        records: all records go. The row stays, with an `epoch` one larger: who read the saga before cannot amend it.
    """

    row: StoredRow
    payloads: Mapping[int, bytes] | None = None
    records: bool = False


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The item is in the log.

    Attributes:
        pos: position of the last record.
        head: hash of the last record.
    """

    pos: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Stale:
    """Another owner, or this one by another path, wrote since: nothing of the item is in the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Taken:
    """The saga's key is held by another saga: nothing of the item is in the log."""

    saga_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The item is in the log, its intent marked as refused: what it requires does not hold.

    Attributes:
        reason: for people, naming who holds or what is left.
        holder: the saga that holds a resource, or None.
    """

    reason: str
    holder: str | None = None


Verdict = Committed | Stale | Taken | Refused


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as stored: nothing in it has been checked yet."""

    pos: int
    saga_id: str
    n: int
    body: bytes
    payload: bytes | None
    hash: bytes


class StoredRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The derived row of one saga, with what the store itself maintains.

    Attributes:
        head: hash of the last record.
        count: number of records in the chain.
        amendments: number of records in the sagas that amend this one (`SagaView.amended` of its fold); the row is the
            fold of the first `count` records of the chain and the first `amendments` of those, in order of position.
        leaf: place in the sealing order from 1, given when the row is first `sealed` and kept for good; from then on
            the chain (`head`, `count`) takes no more records, and what comes later is an amendment.
    """

    saga_id: str
    row: Row
    head: bytes
    count: int
    amendments: int
    leaf: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which rows to list, newest first; None means any.

    Attributes:
        states: these states of `SagaState`.
        name: this saga name.
        unsealed: only sagas that are not sealed (what a recovery sweep looks at), oldest first.
        needs_human: only sagas with a work item that no retry can settle.
        amendments: include the small sagas that amend others.
        after: continue after this saga id (a page's last).
    """

    states: tuple[str, ...] | None = None
    name: str | None = None
    unsealed: bool = False
    needs_human: bool = False
    amendments: bool = False
    after: str | None = None
    limit: int = 200


class DeadOwner(Protocol):
    """Proof of an owner's death, held while its sagas are claimed."""

    def forget(self) -> None:
        """Remove the owner's mark: it owns no saga any more."""

    def close(self) -> None:
        """Give the proof up."""


class LogStore(Protocol):
    """A log. Every method may be called from any thread; none is called from a forked child of the opener."""

    location: str
    """What to print for people: the absolute path, or `memory:`."""

    def append(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        """Commit the items in one transaction, each judged on its own.

        Args:
            items: in order; several items of one saga follow one another.
            durable: on return the commit survives loss of power; else it survives the death of the process.

        Raises:
            LogFailed: the commit failed, or its fate is unknown. The log accepts nothing more in this process.
        """

    def rewrite(self, item: Item, removals: Sequence[Removal]) -> Verdict:
        """Commit an item that says what is removed, and remove it, in one durable transaction; then `scrub`.

        The item opens its saga, and neither requires anything nor concerns a budget.

        Raises:
            LogFailed: the commit failed, or its fate is unknown. The log accepts nothing more in this process.
            LogUnusable: it was committed, and `scrub` failed.
        """

    def scrub(self) -> None:
        """Leave nothing of what was removed in the store's files, as far as the store can tell.

        Raises:
            LogUnusable: somebody else uses what must be overwritten, for too long; do it again later.
        """

    def sync(self) -> None:
        """Make all that was committed without `durable` durable."""

    def log_id(self) -> str:
        """Return the id of the log (32 hex digits), given when it was made; empty while it is not made yet."""

    def owner(self) -> str:
        """Return the token of this process as an owner; the first call publishes its proof of life."""

    def prove_dead(self, owner: str) -> DeadOwner | None:
        """Return a proof that `owner` is dead, or None while it lives. Only one process at a time holds it."""

    def row(self, saga_id: str) -> StoredRow | None:
        """Return the derived row of one saga."""

    def row_of_key(self, key: str) -> StoredRow | None:
        """Return the row of the newest saga with this key."""

    def rows(self, query: Query) -> list[StoredRow]:
        """Return one page of rows."""

    def records(self, saga_id: str, *, after_n: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """Return one page of the records of one saga, in order."""

    def tail(self, *, after_pos: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """Return one page of all records, in order of position."""

    def facts(self, kind: str, name: str | None = None) -> list[Fact]:
        """Return the facts of a kind that hold now, of one name or of all. Cheap where there are none."""

    def halts(self) -> list[Fact]:
        """Return the facts of kind `halt`, `drain` and `quarantine`; asked before each intent, so it must be quick."""

    def facts_of(self, saga_id: str) -> list[Fact]:
        """Return the facts of one saga."""

    def count_facts(self) -> int:
        """Return how many facts the log holds, the running totals of budgets not counted."""

    def amendments(self, saga_id: str) -> list[str]:
        """Return the ids of the sagas that amend this one, in order of opening."""

    def verify(self) -> Iterator[str]:
        """Check what only this store can check (its file, its schema); yields a line per thing checked.

        A line that begins with `not checked: ` says what could not be checked.

        Raises:
            CorruptLog: at the first damage.
        """

    def close(self) -> None:
        """Close connections and give the owner's mark back. Committed records are durable afterwards."""


@runtime_checkable
class Announces(Protocol):
    """A log that hears what other processes append, so that who waits for it need not look all the time."""

    def news(self, about: str) -> concurrent.futures.Future[None] | None:
        """Return a future that is done when a saga may have been amended since this call, or None: look now and then.

        It may be done without a reason, and, where a connection is lost, late: whoever waits looks now and then, too.
        """


@runtime_checkable
class ReadsRanges(Protocol):
    """A log that reads many sagas at once, so that checking all of them costs no query for each.

    A range are the sagas with ids from `first` to `last`, both included. Who reads one checks what it got as if each
    saga had been read alone, and looks again, saga by saga, where anything is odd.
    """

    def records_between(self, first: str, last: str, *, limit: int) -> list[StoredRecord]:
        """Return the first `limit` records of the sagas of a range, saga by saga in order of id, each in its order."""

    def facts_between(self, first: str, last: str) -> list[Fact]:
        """Return the facts of the sagas of a range."""

    def removed_between(self, first: str, last: str) -> list[str]:
        """Return the sagas of a range that facts of kind `removed` name."""

    def keys_astray_between(self, first: str, last: str) -> list[str]:
        """Return the sagas of a range whose key does not lead to the newest saga of that key."""
