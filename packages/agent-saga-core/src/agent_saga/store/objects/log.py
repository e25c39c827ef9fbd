"""A log in an object store; docs/object-stores.md says what the store must do, and what the objects hold."""

from __future__ import annotations

import os
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.errors import CorruptLog, InvariantViolation, LogFailed, LogMissing, LogUnusable
from agent_saga.machine.gate import HALTING
from agent_saga.store.objects.commit import name_of, parse, spell
from agent_saga.store.objects.leases import Leases
from agent_saga.store.objects.link import READS_AT_ONCE, Link
from agent_saga.store.objects.sink import SinkLost, SinkRefused
from agent_saga.store.objects.state import Batch, State
from agent_saga.store.port import Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.machine.row import Row
    from agent_saga.store.objects.leases import DeadLease
    from agent_saga.store.objects.sink import AsyncSink
    from agent_saga.store.port import Item, LogStore, Query, Removal, StoredRecord, StoredRow, Verdict

LEASE_TTL_S: Final = 15.0
WAIT_S: Final = 30.0
_ROUNDS_MAX: Final = 1000
"""Rounds of one append: another one is needed whenever another process committed first."""
_SCRUBS_MAX: Final = 20


class ObjectLog:
    """See LogStore.

    A commit is one object that is created under the next number: whoever creates it has committed. `durable` makes no
    difference: what the store has answered for is durable. Each read looks for new commits first.

    Args:
        sink: the object store, or a part of one that holds nothing else.
        create: make the log when it is missing, with the first record; until then it reads as empty.
        lease_ttl_s: how long this process counts as alive after it was last heard of.
        wait_s: how long a call waits for a store that does not answer.
        drive: see `Link`.

    Limits:
        The whole log is in memory, and is read when it is opened, 64 objects at a time: for logs of a device or a
        worker, pruned now and then, not for the log of a fleet.
    """

    def __init__(
        self,
        sink: AsyncSink,
        *,
        create: bool = True,
        lease_ttl_s: float = LEASE_TTL_S,
        wait_s: float = WAIT_S,
        drive: Callable[[Any], Any] | None = None,
    ) -> None:
        self.location = sink.location
        self._sink, self._create, self._ttl_s, self._wait_s, self._drive = sink, create, lease_ttl_s, wait_s, drive
        self._closed = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._failed: LogFailed | None = None
        self._state = State()
        self._link = Link(self._sink, wait_s=self._wait_s, drive=self._drive)
        self._leases = Leases(self._link, ttl_s=self._ttl_s)

    def _here(self) -> None:
        """A forked child has no threads: it begins anew, and its parent's lease stays its parent's."""
        if self._pid != os.getpid():
            self._start_afresh()

    # -- writing --------------------------------------------------------------------------------------------------

    def append(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        """See LogStore.append."""

        def judged(batch: Batch) -> list[Verdict]:
            return [batch.take(item) for item in items]

        return self._commit(judged)

    def rewrite(self, item: Item, removals: Sequence[Removal]) -> Verdict:
        """See LogStore.rewrite."""

        def judged(batch: Batch) -> list[Verdict]:
            refusal: Verdict | None = batch.misfit(removals)
            verdict = refusal or batch.take(item)
            if isinstance(verdict, Committed):
                batch.remove(removals)
            return [verdict]

        (verdict,) = self._commit(judged)
        if isinstance(verdict, Committed):
            self.scrub()
        return verdict

    def _commit(self, judged: Callable[[Batch], list[Verdict]]) -> list[Verdict]:
        self._here()
        with self._lock:
            self._check_usable()
            try:
                if not self._create and not self._state.no:
                    self._catch_up()
                for _ in range(_ROUNDS_MAX):
                    self._leases.check()
                    batch = Batch(self._state)
                    verdicts = judged(batch)
                    # What does not fit may fit what others have committed meanwhile.
                    if any(not isinstance(one, Committed) for one in verdicts) and self._catch_up():
                        continue
                    if not batch.records or self._write(batch):
                        return verdicts
                    self._catch_up()
            except LogFailed as failure:
                self._failed = failure
                raise
            self._failed = LogFailed(f"the log {self.location} is too busy: {_ROUNDS_MAX} commits of others came first")
            raise self._failed

    def _write(self, batch: Batch) -> bool:
        """Commit, and tell whether it was this commit that got the number."""
        state = self._state
        core = batch.core(log=state.log or secrets.token_hex(16), by=secrets.token_hex(8))
        try:
            data = spell(core, batch.texts, batch.payloads)
        except (msgspec.MsgspecError, UnicodeError, TypeError, ValueError) as error:
            raise InvariantViolation(f"a commit cannot be encoded, nothing was written: {error}") from error
        try:
            etag = self._link.replace(name_of(core.no), data, expected=None)
        except SinkRefused as error:
            raise LogFailed(f"a commit to the log {self.location} was refused: {error}") from error
        except SinkLost as error:
            raise LogFailed(
                f"the store of the log {self.location} does not answer ({error}); what was on its way may be in the "
                "log or not"
            ) from error
        except BaseException as error:  # Interrupted while it was on its way.
            self._failed = LogFailed(f"a commit to the log {self.location} was interrupted: {error!r}")
            raise
        if etag is not None:
            state.apply(*parse(data, no=core.no))
        return etag is not None

    def scrub(self) -> None:
        """See LogStore.scrub: each object that holds something that was removed is replaced by one without it."""
        self._here()
        with self._lock:
            self._catch_up()
            for no in sorted(self._state.unscrubbed):
                try:
                    self._scrub(no)
                except (SinkLost, SinkRefused) as error:
                    raise LogUnusable(
                        f"what was removed from {self.location} may still be in its objects ({error}): give the same "
                        "command again"
                    ) from error
                self._state.unscrubbed.discard(no)

    def _scrub(self, no: int) -> None:
        for _ in range(_SCRUBS_MAX):
            found = self._link.read(name_of(no))
            if found is None:
                raise CorruptLog(f"commit {no} is missing")
            core, commit = parse(found.data, no=no)
            texts, payloads = self._state.texts_now(core)
            if (commit.texts, commit.payloads) == (texts, payloads):
                return
            if self._link.replace(name_of(no), spell(core, texts, payloads), expected=found.etag) is not None:
                return
        raise SinkLost(f"{name_of(no)} changes all the time")

    def sync(self) -> None:
        """See LogStore.sync: nothing is behind."""

    def _check_usable(self) -> None:
        if self._closed:
            raise LogFailed(f"the log {self.location} was closed")
        if self._failed is not None:
            raise LogFailed(f"the log {self.location} takes no records since: {self._failed}")

    def owner(self) -> str:
        """See LogStore.owner."""
        self._here()
        with self._lock:
            self._check_usable()
            return self._leases.publish()

    def prove_dead(self, owner: str) -> DeadLease | None:
        """See LogStore.prove_dead."""
        self._here()
        with self._lock:
            return self._leases.prove_dead(owner)

    # -- reading --------------------------------------------------------------------------------------------------

    def _catch_up(self) -> bool:
        """Read what was committed since; tell whether anything was.

        Raises:
            LogMissing: there is no log, and it may not be made.
            LogFailed: the store does not answer.
            CorruptLog: a commit is missing or does not follow.
        """
        if self._closed:
            raise LogFailed(f"the log {self.location} was closed")
        before = self._state.no
        try:
            if not before:
                self._read_listed()
            while (found := self._link.read(name_of(self._state.no + 1))) is not None:
                self._state.apply(*parse(found.data, no=self._state.no + 1))
        except (SinkLost, SinkRefused) as error:
            raise LogFailed(f"the log {self.location} cannot be read: {error}") from error
        if not self._create and not self._state.no:
            raise LogMissing(f"there is no log at {self.location}")
        return self._state.no > before

    def _read_listed(self) -> None:
        """Read all commits that a list shows, many at a time; it may be behind, and may not have holes."""
        names = self._link.names("commits/", after="")
        for first in range(0, len(names), READS_AT_ONCE):
            for name, found in zip(names[first:], self._link.read_many(names[first : first + READS_AT_ONCE])):  # noqa: B905
                no = self._state.no + 1
                if found is None or name != name_of(no):
                    raise CorruptLog(f"commit {no} is missing, and {name} is there")
                self._state.apply(*parse(found.data, no=no))

    def _now(self) -> State:
        self._here()
        self._catch_up()
        return self._state

    def open_now(self) -> None:
        """Read the log now instead of at the first use.

        Raises:
            StoreError: it cannot be reached, or is no log.
        """
        with self._lock:
            try:
                self._now()
            except LogFailed as error:
                raise LogUnusable(str(error)) from error

    def log_id(self) -> str:
        """See LogStore.log_id."""
        with self._lock:
            return self._now().log

    def row(self, saga_id: str) -> StoredRow | None:
        """See LogStore.row."""
        with self._lock:
            return self._now().rows.get(saga_id)

    def row_of_key(self, key: str) -> StoredRow | None:
        """See LogStore.row_of_key."""
        with self._lock:
            state = self._now()
            saga_id = state.keys.get(key)
            return None if saga_id is None else state.rows.get(saga_id)

    def rows(self, query: Query) -> list[StoredRow]:
        """See LogStore.rows."""
        with self._lock:
            state = self._now()
            ids = sorted(state.unsealed if query.unsealed else state.rows, reverse=not query.unsealed)
            found: list[StoredRow] = []
            for saga_id in ids:
                if len(found) == query.limit:
                    break
                after = query.after is None or (saga_id > query.after if query.unsealed else saga_id < query.after)
                if after and _matches(state.rows[saga_id].row, query):
                    found.append(state.rows[saga_id])
            return found

    def records(self, saga_id: str, *, after_n: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.records."""
        with self._lock:
            state = self._now()
            some = state.chains.get(saga_id, [])[after_n : after_n + limit]
            return [record for pos in some if (record := state.records[pos - 1]) is not None]

    def tail(self, *, after_pos: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.tail."""
        with self._lock:
            found: list[StoredRecord] = []
            records = self._now().records
            for pos in range(after_pos, len(records)):
                if len(found) == limit:
                    break
                record = records[pos]
                if record is not None:
                    found.append(record)
            return found

    def facts(self, kind: str, name: str | None = None) -> list[Fact]:
        """See LogStore.facts."""
        with self._lock:
            state = self._now()
            if name is not None:
                return sorted(state.facts_of_name(kind, name))
            return sorted(fact for held in state.facts.get(kind, {}).values() for fact in held.values())

    def halts(self) -> list[Fact]:
        """See LogStore.halts."""
        with self._lock:
            facts = self._now().facts
            return sorted(fact for kind in HALTING for held in facts.get(kind, {}).values() for fact in held.values())

    def facts_of(self, saga_id: str) -> list[Fact]:
        """See LogStore.facts_of."""
        with self._lock:
            return sorted(fact for fact in self._now().all_facts() if fact.saga_id == saga_id)

    def count_facts(self) -> int:
        """See LogStore.count_facts."""
        with self._lock:
            return sum(1 for _ in self._now().all_facts())

    def amendments(self, saga_id: str) -> list[str]:
        """See LogStore.amendments."""
        with self._lock:
            return list(self._now().amending.get(saga_id, ()))

    def verify(self) -> Iterator[str]:
        """See LogStore.verify: all objects are read again, and must come to what this process holds."""
        with self._lock:
            held = self._now()
            again = ObjectLog(self._sink, create=True, wait_s=self._wait_s, drive=self._drive)
            try:
                found = again._now()
                if (found.no, found.digest) != (held.no, held.digest) and not self._catch_up():
                    raise CorruptLog(f"the objects end at commit {found.no}, and this process has seen {held.no}")
                stray = next((key for key, saga_id in found.keys.items() if _key(found, saga_id) != key), None)
                unscrubbed = bool(found.unscrubbed)
            finally:
                again.close()
        if stray is not None:
            raise CorruptLog(f"key {stray!r} is not the key of the saga that it names")
        yield "commits: each is there, follows the one before it, and has its digest"
        yield "keys: each names a saga that has it"
        if unscrubbed:
            yield "not checked: objects still hold what was removed: give the command that removed it again"
        yield "not checked: commits cut off the end: keep a checkpoint elsewhere (--anchor)"

    def close(self) -> None:
        """See LogStore.close."""
        self._here()
        with self._lock:
            if not self._closed:
                self._leases.close()
                self._closed = True
                self._link.close()


def _key(state: State, saga_id: str) -> str | None:
    stored = state.rows.get(saga_id)
    return None if stored is None else stored.row.key


def _matches(row: Row, query: Query) -> bool:
    return (
        (query.states is None or row.state in query.states)
        and (query.name is None or row.name == query.name)
        and (not query.needs_human or row.human > 0)
        and (query.amendments or row.amends is None)
    )


if TYPE_CHECKING:  # The type checker compares the whole port.
    _port: type[LogStore] = ObjectLog
