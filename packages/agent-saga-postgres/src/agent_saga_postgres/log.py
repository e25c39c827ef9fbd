"""A log in PostgreSQL, for sagas on many machines; docs/log-format.md describes what it holds."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import CorruptLog, LogFailed, LogMissing, LogUnusable
from agent_saga.store.port import Committed
from agent_saga_postgres.batch import restored, stored
from agent_saga_postgres.damage import damage
from agent_saga_postgres.link import Gone, Reader, Refused, Server
from agent_saga_postgres.owners import Desk, Keeper
from agent_saga_postgres.removal import scrub
from agent_saga_postgres.rows import ROW_COLUMNS, facts, rows_query, stored_record, stored_row
from agent_saga_postgres.schema import look
from agent_saga_postgres.stops import Stops, changes_stops
from agent_saga_postgres.target import parse
from agent_saga_postgres.writer import PostgresWriter

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Iterator, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.store.port import Item, LogStore, Query, Removal, StoredRecord, StoredRow, Verdict
    from agent_saga_postgres.link import Rows
    from agent_saga_postgres.owners import DeadLease
    from agent_saga_postgres.schema import Found

_SELECT_ROW: Final = f"SELECT {ROW_COLUMNS} FROM sagas WHERE saga = $1"  # noqa: S608 - constant.
_SELECT_KEY: Final = f"SELECT {ROW_COLUMNS} FROM sagas WHERE saga = (SELECT saga FROM keys WHERE key = $1)"  # noqa: S608
_SELECT_CHAIN: Final = (
    "SELECT pos, saga, n, body, payload, hash FROM records WHERE saga = $1 AND n > $2 ORDER BY n LIMIT $3"
)
_SELECT_TAIL: Final = "SELECT pos, saga, n, body, payload, hash FROM records WHERE pos > $1 ORDER BY pos LIMIT $2"
_SELECT_AMENDING: Final = (
    "SELECT sagas.saga FROM sagas LEFT JOIN records ON records.saga = sagas.saga AND records.n = 1 "
    "WHERE sagas.amends = $1 ORDER BY records.pos, sagas.saga"
)
_FACTS: Final = "SELECT kind, name, saga, no, value, at FROM facts"
_SELECT_FACTS: Final = _FACTS + " WHERE kind = $1 ORDER BY name, saga, no"
_SELECT_FACTS_OF_NAME: Final = _FACTS + " WHERE kind = $1 AND name = $2 ORDER BY saga, no"
_SELECT_FACTS_OF_SAGA: Final = _FACTS + " WHERE saga = $1 ORDER BY kind, name, saga, no"
_SELECT_HALTS: Final = _FACTS + " WHERE kind IN ('drain', 'halt', 'quarantine') ORDER BY kind, name, saga, no"

_open_logs: Final[weakref.WeakSet[PostgresLog]] = weakref.WeakSet()
_inherited: Final[list[object]] = []


def open_log(url: str, *, create: bool) -> PostgresLog:
    """Return the log that a `postgresql://` URL names; the entry point of `AgentKit(log=...)` and `--log`.

    Args:
        url: see `target.parse`.
        create: when there is no log, make its schema with the first record; until then nothing is connected.
            Else it must exist, and is connected now.

    Raises:
        LogMissing: `create` is false and there is no log.
        LogUnusable: the URL, the server or the schema cannot be used.
    """
    log = PostgresLog(url, create=create)
    if not create:
        try:
            log.open_now()
        except BaseException:
            log.close()
            raise
    return log


class PostgresLog:
    """See LogStore.

    Reads, commits, the lease and each proof of a death have a connection each, opened when they are first needed.

    Args:
        url: where it is, and `schema`, `lease_ttl_s`, `wait_s`.
        create: make it when it is missing, with the first record; until then the log reads as empty.
    """

    def __init__(self, url: str, *, create: bool) -> None:
        self._target = parse(url)
        self._create = create
        self.location = self._target.location
        self._closed = False
        self._start_afresh()
        _open_logs.add(self)

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._failed: LogFailed | None = None
        self._writer: PostgresWriter | None = None
        self._keeper: Keeper | None = None
        self._server = Server(self._target)
        self._reader = Reader(self._server)
        self._found: Found | None = None
        self._desk = Desk(self._server)
        self._stops = Stops(lambda: facts(self._read(_SELECT_HALTS)))
        self._write_lock = threading.Lock()

    def leave_to_parent(self) -> None:
        """In a forked child: keep what was inherited referenced and untouched; the next use connects anew."""
        parts = (self._writer, self._keeper, self._reader, self._desk)
        kept = [part.inherited() for part in parts if part is not None]
        _inherited.append((parts, kept))
        _immortal(_inherited[-1])
        for thing in kept:
            _immortal(thing)
        self._start_afresh()

    @property
    def is_open(self) -> bool:
        """Whether this process has connections to the log."""
        return self._writer is not None or self._found is not None or self._keeper is not None

    # -- writing --------------------------------------------------------------------------------------------------

    def append(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        """See LogStore.append."""
        with self._write_lock:
            writer = self._writer or self._open_writer()
            try:
                verdicts = writer.append(
                    items, durable=durable, owner=None if self._keeper is None else self._keeper.token
                )
            except LogFailed as failure:
                self._failed = failure
                raise
        if changes_stops(items):
            self._stops.wait_for_others()
        return verdicts

    def rewrite(self, item: Item, removals: Sequence[Removal]) -> Verdict:
        """See LogStore.rewrite. The role must own the tables."""
        with self._write_lock:
            writer = self._writer or self._open_writer()
            try:
                verdict = writer.rewrite(item, removals, owner=None if self._keeper is None else self._keeper.token)
            except LogFailed as failure:
                self._failed = failure
                raise
        if isinstance(verdict, Committed):
            self.scrub()
        return verdict

    def scrub(self) -> None:
        """See LogStore.scrub: see `removal.scrub` for how far it can tell."""
        if self._look() is not None:
            scrub(self._server)

    def sync(self) -> None:
        """See LogStore.sync."""
        with self._write_lock:
            if self._writer is None:
                return
            try:
                self._writer.sync()
            except LogFailed as failure:
                self._failed = failure
                raise

    def owner(self) -> str:
        """See LogStore.owner."""
        with self._write_lock:
            return self._open_keeper().publish()

    def _open_writer(self) -> PostgresWriter:
        self._check_usable()
        try:
            self._writer = PostgresWriter.open(self._server, create=self._create, renew=self._renew)
        except LogFailed as failure:
            self._failed = failure
            raise
        return self._writer

    def _open_keeper(self) -> Keeper:
        self._check_usable()
        if self._keeper is None:
            self._keeper = Keeper(self._server, (self._writer or self._open_writer()).found)
        return self._keeper

    def _renew(self) -> None:
        if self._keeper is not None:
            self._keeper.renew()

    def _check_usable(self) -> None:
        if self._closed:
            raise LogFailed(f"the log {self.location} was closed")
        if self._failed is not None:
            raise LogFailed(f"the log {self.location} takes no records since: {self._failed}")

    def prove_dead(self, owner: str) -> DeadLease | None:
        """See LogStore.prove_dead."""
        if self._keeper is not None and owner == self._keeper.token:
            return None
        if self._look() is None:
            return None
        try:
            return self._desk.prove_dead(owner)
        except (Gone, Refused) as error:
            raise LogFailed(f"cannot tell whether owner {owner!r} of the log {self.location} lives: {error}") from error

    def news(self, about: str) -> concurrent.futures.Future[None] | None:
        """See Announces.news."""
        with self._write_lock:
            return None if self._look() is None else self._open_keeper().news(stored(about))

    # -- reading --------------------------------------------------------------------------------------------------

    def row(self, saga_id: str) -> StoredRow | None:
        """See LogStore.row."""
        found = self._read(_SELECT_ROW, stored(saga_id))
        return stored_row(found[0]) if found else None

    def row_of_key(self, key: str) -> StoredRow | None:
        """See LogStore.row_of_key."""
        found = self._read(_SELECT_KEY, stored(key))
        return stored_row(found[0]) if found else None

    def rows(self, query: Query) -> list[StoredRow]:
        """See LogStore.rows."""
        return [stored_row(values) for values in self._read(*rows_query(query))]

    def records(self, saga_id: str, *, after_n: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.records."""
        return [stored_record(values) for values in self._read(_SELECT_CHAIN, stored(saga_id), after_n, limit)]

    def tail(self, *, after_pos: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.tail."""
        return [stored_record(values) for values in self._read(_SELECT_TAIL, after_pos, limit)]

    def facts(self, kind: str, name: str | None = None) -> list[Fact]:
        """See LogStore.facts."""
        if name is None:
            return facts(self._read(_SELECT_FACTS, kind))
        return facts(self._read(_SELECT_FACTS_OF_NAME, kind, stored(name)))

    def halts(self) -> list[Fact]:
        """See LogStore.halts."""
        return list(self._stops.now())

    def facts_of(self, saga_id: str) -> list[Fact]:
        """See LogStore.facts_of."""
        return facts(self._read(_SELECT_FACTS_OF_SAGA, stored(saga_id)))

    def count_facts(self) -> int:
        """See LogStore.count_facts."""
        found = self._read("SELECT count(*) FROM facts WHERE kind <> 'total'")
        return int(found[0][0]) if found else 0

    def log_id(self) -> str:
        """See LogStore.log_id."""
        found = self._read("SELECT value FROM meta WHERE name = 'log'")
        return str(found[0][0]) if found else ""

    def amendments(self, saga_id: str) -> list[str]:
        """See LogStore.amendments."""
        return [restored(found) for (found,) in self._read(_SELECT_AMENDING, stored(saga_id))]

    def verify(self) -> Iterator[str]:
        """See LogStore.verify."""
        found = self._look()
        if found is None:
            return
        for line in damage(self._read, schema=not found.behind):
            raise CorruptLog(line)
        if found.behind:
            yield "not checked: the schema: an older version made it, and the next append brings it up to date"
        else:
            yield "the schema: tables, indexes, triggers and functions as they were made"
        yield "keys: each names a saga that has it"
        yield "the end of the log: it has come as far as its count of positions and leaves"
        yield "not checked: the server's own files and indexes (pg_amcheck, data checksums)"
        for name in ("fsync", "full_page_writes"):
            if self._read("SELECT current_setting($1)", name)[0][0] != "on":
                yield f"not checked: durability: the server runs with {name}=off, and may lose what it called durable"

    def _read(self, sql: str, *values: Any) -> Rows:
        """Return all rows of one query; nothing while the log is not made."""
        return [] if self._look() is None else self._ask(sql, *values)

    def _ask(self, sql: str, *values: Any) -> Rows:
        if self._closed:
            raise LogFailed(f"the log {self.location} was closed")
        try:
            return self._reader.run(sql, *values)
        except (Gone, Refused) as error:
            raise LogFailed(f"the log {self.location} cannot be read: {error}") from error

    def _look(self) -> Found | None:
        """Return the log, or None while it is not made."""
        if self._pid != os.getpid():  # A fork in C, past the hooks of Python.
            self.leave_to_parent()
        if self._found is None:
            self._found = look(self._ask, self._target.schema, self.location)
            if self._found is None and not self._create:
                raise LogMissing(f"there is no log at {self.location}")
        return self._found

    def open_now(self) -> None:
        """Connect for reading now instead of at the first read.

        Raises:
            StoreError: it cannot be reached, or is no log.
        """
        try:
            self._look()
        except LogFailed as error:
            raise LogUnusable(str(error)) from error

    def close(self) -> None:
        """See LogStore.close."""
        if self._pid != os.getpid():
            self.leave_to_parent()
        with self._write_lock:
            self._closed = True
            writer, self._writer = self._writer, None
            keeper, self._keeper = self._keeper, None
            try:
                if writer is not None:
                    writer.close()
            finally:
                if keeper is not None:
                    keeper.close()
                self._desk.close()
                self._reader.close()


def _immortal(thing: object) -> None:
    """Keep an object for good, past the end of the interpreter: closing an inherited connection is not ours to do."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _before_fork() -> None:
    if any(log.is_open for log in list(_open_logs)):
        import ctypes  # noqa: F401 - here, because an import in the child could wait for a lock that nobody holds there.


def _after_fork_in_child() -> None:
    for log in list(_open_logs):
        log.leave_to_parent()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


if TYPE_CHECKING:  # The type checker compares the whole port.
    _port: type[LogStore] = PostgresLog
