"""A log in one SQLite file, through apsw; docs/log-format.md describes the file."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from dataclasses import replace
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

import apsw

from agent_saga.errors import CorruptLog, LogFailed, LogMissing
from agent_saga.machine.gate import Fact
from agent_saga.store.connection import (
    WAIT_S,
    WAIT_TO_READ_S,
    check_place,
    check_tail,
    close_quietly,
    connect,
    translated,
)
from agent_saga.store.mark import UNCHECKED
from agent_saga.store.merged import META, parse_merged
from agent_saga.store.owners import Owners
from agent_saga.store.port import Committed, Refused, StoredRecord, StoredRow
from agent_saga.store.schema import (
    DATA_KEY,
    DATA_KEYS_END,
    ROW_COLUMNS,
    SELECT_DATA_KEY,
    SELECT_DATA_KEYS,
    SELECT_FACTS,
    SELECT_FACTS_OF_SAGA,
    SELECT_HALTS,
    SELECT_STRAY_FACT,
    index_damage,
    schema_damage,
    stored_row,
)
from agent_saga.store.sealing import Sealer, key_id_of
from agent_saga.store.sqlite_writer import SqliteWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agent_saga.store.keyring import KeyRing
    from agent_saga.store.merged import Merged
    from agent_saga.store.owners import DeadProcess
    from agent_saga.store.port import Item, Query, Removal, Verdict

_SELECT_ROW: Final = f"SELECT {ROW_COLUMNS} FROM sagas WHERE saga = ?"  # noqa: S608 - constant.
_SELECT_KEY: Final = f"SELECT {ROW_COLUMNS} FROM sagas WHERE saga = (SELECT saga FROM keys WHERE key = ?)"  # noqa: S608
_SELECT_CHAIN: Final = (
    "SELECT pos, saga, n, body, payload, hash FROM records WHERE saga = ? AND n > ? ORDER BY n LIMIT ?"
)
_SELECT_TAIL: Final = "SELECT pos, saga, n, body, payload, hash FROM records WHERE pos > ? ORDER BY pos LIMIT ?"
_SELECT_AMENDING: Final = (
    "SELECT sagas.saga FROM sagas LEFT JOIN records ON records.saga = sagas.saga AND records.n = 1 "
    "WHERE sagas.amends = ? ORDER BY records.pos, sagas.saga"
)
_SELECT_RECORDS_BETWEEN: Final = (
    "SELECT pos, saga, n, body, payload, hash FROM records WHERE saga >= ? AND saga <= ? ORDER BY saga, n LIMIT ?"
)
_SELECT_FACTS_BETWEEN: Final = (
    "SELECT kind, name, saga, no, value, at FROM facts INDEXED BY facts_by_saga WHERE saga >= ? AND saga <= ?"
)
_SELECT_REMOVED_BETWEEN: Final = "SELECT name FROM facts WHERE kind = 'removed' AND name >= ? AND name <= ?"
_SELECT_KEYS_ASTRAY: Final = (
    "SELECT s.saga FROM sagas AS s LEFT JOIN keys AS k ON k.key = s.key LEFT JOIN sagas AS t ON t.saga = k.saga "
    "WHERE s.saga >= ? AND s.saga <= ? AND s.key IS NOT NULL AND (t.key IS NOT s.key OR t.incarnation < s.incarnation "
    "OR (t.incarnation = s.incarnation AND t.saga <> s.saga))"
)
_SELECT_STRAY_KEY: Final = (
    "SELECT keys.key FROM keys LEFT JOIN sagas ON sagas.saga = keys.saga WHERE sagas.key IS NOT keys.key LIMIT 1"
)

_open_logs: Final[weakref.WeakSet[SqliteLog]] = weakref.WeakSet()
_inherited: Final[list[object]] = []


class SqliteLog:
    """See LogStore.

    Nothing is opened before the first call that needs it, and no file is made before the first `append` or `owner`.
    Reads and commits have a connection each, so that a reader does not wait for a commit.

    Args:
        path: the file, absolute.
        create: make it when it is missing, with the first record; until then the log reads as empty.
        allow_fs: accept a network or shared file system.
        vfs: the SQLite VFS to use, for tests.
        wait_s: how long a commit waits for other writers before the log fails.
    """

    def __init__(
        self, path: Path, *, create: bool, allow_fs: bool = False, vfs: str | None = None, wait_s: float = WAIT_S
    ) -> None:
        self.location = str(path)
        self._path, self._create, self._allow_fs, self._vfs, self._wait_s = path, create, allow_fs, vfs, wait_s
        self._owners = Owners(path.with_name(path.name + "-owners"))
        self._closed = False
        self._sealer: Sealer | None = None
        self._start_afresh()
        check_place(path, create=create, allow_fs=allow_fs)
        _open_logs.add(self)

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._failed: LogFailed | None = None
        self._writer: SqliteWriter | None = None
        self._reader: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._log = ""
        self._merged: Merged | None = None
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()

    def leave_to_parent(self) -> None:
        """In a forked child: keep what was inherited referenced and untouched; the next use opens anew."""
        if self._writer is not None or self._reader is not None:
            _inherited.append((self._writer, self._reader))
            _immortal(_inherited[-1])
        self._owners.drop_after_fork()
        if self._writer is not None:
            self._writer.drop_after_fork()
        self._start_afresh()

    @property
    def is_open(self) -> bool:
        """Whether this process has connections to the log."""
        return self._writer is not None or self._reader is not None

    def append(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        """See LogStore.append."""
        if self._pid != os.getpid():  # A fork in C, past the hooks of Python.
            self.leave_to_parent()
        fresh: dict[str, Any] = {}
        if self._sealer is not None:
            items, fresh = self._sealer.seal(items)
        with self._write_lock:
            writer = self._writer or self._open_writer()
            try:
                verdicts = writer.append(items, durable=durable)
            except LogFailed as failure:
                self._failed = failure
                raise
        if self._sealer is not None and fresh:
            written = zip(items, verdicts, strict=True)
            in_log = {item.saga_id for item, verdict in written if isinstance(verdict, Committed | Refused)}
            self._sealer.keep({saga_id: cipher for saga_id, cipher in fresh.items() if saga_id in in_log})
        return verdicts

    def rewrite(self, item: Item, removals: Sequence[Removal]) -> Verdict:
        """See LogStore.rewrite."""
        if self._pid != os.getpid():
            self.leave_to_parent()
        if (sealer := self._sealer) is not None:
            removals = [replace(removal, payloads=sealer.seal_again(removal)) for removal in removals]
        with self._write_lock:
            writer = self._writer or self._open_writer()
            try:
                verdict = writer.rewrite(item, removals)
            except LogFailed as failure:
                self._failed = failure
                raise
        if isinstance(verdict, Committed):
            self.scrub()
        return verdict

    def scrub(self) -> None:
        """See LogStore.scrub: the whole file is written anew, so it takes as long as the log is large."""
        if self._pid != os.getpid():
            self.leave_to_parent()
        with self._write_lock:
            (self._writer or self._open_writer()).scrub()

    def _open_writer(self) -> SqliteWriter:
        self._check_usable()
        try:
            writer = SqliteWriter.open(
                self._path, create=self._create, allow_fs=self._allow_fs, vfs=self._vfs, wait_s=self._wait_s
            )
        except LogFailed as failure:
            self._failed = failure
            raise
        except (apsw.Error, OSError) as error:
            self._failed = LogFailed(f"the log {self._path} cannot be opened for writing: {error}")
            raise self._failed from error
        self._note_file()
        self._writer = writer
        return writer

    def _check_usable(self) -> None:
        if self._closed:
            raise LogFailed(f"the log {self._path} was closed")
        if self._failed is not None:
            raise LogFailed(f"the log {self._path} takes no records since: {self._failed}")

    def sync(self) -> None:
        """See LogStore.sync."""
        if self._pid != os.getpid():
            self.leave_to_parent()
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
        if self._pid != os.getpid():
            self.leave_to_parent()
        with self._write_lock:
            self._check_usable()
            return self._owners.token()

    def prove_dead(self, owner: str) -> DeadProcess | None:
        """See LogStore.prove_dead."""
        try:
            return self._owners.prove_dead(owner)
        except OSError as error:
            raise LogFailed(f"cannot tell whether owner {owner!r} of the log {self._path} lives: {error}") from error

    def row(self, saga_id: str) -> StoredRow | None:
        """See LogStore.row."""
        found = self._read(_SELECT_ROW, (saga_id,))
        return stored_row(found[0]) if found else None

    def row_of_key(self, key: str) -> StoredRow | None:
        """See LogStore.row_of_key."""
        found = self._read(_SELECT_KEY, (key,))
        return stored_row(found[0]) if found else None

    def rows(self, query: Query) -> list[StoredRow]:
        """See LogStore.rows."""
        return [stored_row(values) for values in self._read(*_rows_query(query))]

    def records(self, saga_id: str, *, after_n: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.records."""
        page = list(starmap(StoredRecord, self._read(_SELECT_CHAIN, (saga_id, after_n, limit))))
        return page if self._sealer is None else self._sealer.open(page)

    def tail(self, *, after_pos: int = 0, limit: int = 1000) -> list[StoredRecord]:
        """See LogStore.tail."""
        page = list(starmap(StoredRecord, self._read(_SELECT_TAIL, (after_pos, limit))))
        return page if self._sealer is None else self._sealer.open(page)

    def records_between(self, first: str, last: str, *, limit: int) -> list[StoredRecord]:
        """See ReadsRanges.records_between."""
        page = list(starmap(StoredRecord, self._read(_SELECT_RECORDS_BETWEEN, (first, last, limit))))
        return page if self._sealer is None else self._sealer.open(page)

    def facts_between(self, first: str, last: str) -> list[Fact]:
        """See ReadsRanges.facts_between."""
        return [Fact(*values) for values in self._read(_SELECT_FACTS_BETWEEN, (first, last))]  # type: ignore[arg-type]

    def removed_between(self, first: str, last: str) -> list[str]:
        """See ReadsRanges.removed_between."""
        return [str(saga_id) for (saga_id,) in self._read(_SELECT_REMOVED_BETWEEN, (first, last))]

    def keys_astray_between(self, first: str, last: str) -> list[str]:
        """See ReadsRanges.keys_astray_between."""
        return [str(saga_id) for (saga_id,) in self._read(_SELECT_KEYS_ASTRAY, (first, last))]

    def facts(self, kind: str, name: str | None = None) -> list[Fact]:
        """See LogStore.facts."""
        if name is None:
            found = self._read(SELECT_FACTS + " ORDER BY name, saga, no", (kind,))
        else:
            found = self._read(SELECT_FACTS + " AND name = ? ORDER BY saga, no", (kind, name))
        return [Fact(*values) for values in found]  # type: ignore[arg-type]

    def halts(self) -> list[Fact]:
        """See LogStore.halts. A file that is not at its name any more cannot tell what an operator has said since."""
        self._check_in_place()
        return [Fact(*values) for values in self._read(SELECT_HALTS, ())]  # type: ignore[arg-type]

    def facts_of(self, saga_id: str) -> list[Fact]:
        """See LogStore.facts_of."""
        found = self._read(SELECT_FACTS_OF_SAGA, (saga_id,))
        return [Fact(*values) for values in found]  # type: ignore[arg-type]

    def count_facts(self) -> int:
        """See LogStore.count_facts."""
        found = self._read("SELECT count(*) FROM facts WHERE kind <> 'total'", ())
        return int(str(found[0][0])) if found else 0

    def log_id(self) -> str:
        """See LogStore.log_id."""
        found = self._read("SELECT value FROM meta WHERE name = 'log'", ())
        return str(found[0][0]) if found else ""

    def merged(self) -> Merged:
        """See MayBeMerged.merged; said once, when a log is made."""
        if self._merged is None:
            found = self._read("SELECT value FROM meta WHERE name = ?", (META,))
            self._merged = parse_merged(str(found[0][0]) if found else None)
        return self._merged

    def _locked_keys(self) -> Iterator[str]:
        """Yield what could not be checked for want of keys."""
        locked: dict[str, int] = {}
        after = ""
        while page := self.data_keys(after=after):
            for saga_id, held in page:
                if self._sealer is None or self._sealer.cipher(saga_id) is None:
                    locked[key_id_of(held)] = locked.get(key_id_of(held), 0) + 1
            after = page[-1][0]
        for key_id, count in locked.items():
            yield (
                f"{UNCHECKED}the values of {count} sagas: they are encrypted under key {key_id!r}, which is not in the "
                "key ring (--key-ring FILE)"
            )

    def use_ring(self, ring: KeyRing) -> None:
        """See KeepsDataKeys.use_ring."""
        self._sealer = Sealer(ring, self.data_key)

    def seals(self) -> bool:
        """See KeepsDataKeys.seals."""
        return self._sealer is not None

    def opens(self, saga_id: str) -> bool:
        """See KeepsDataKeys.opens."""
        if self._sealer is not None and self._sealer.cipher(saga_id) is not None:
            return True
        return self.data_key(saga_id) is None

    def data_key(self, saga_id: str) -> str | None:
        """See KeepsDataKeys.data_key."""
        found = self._read(SELECT_DATA_KEY, (DATA_KEY + saga_id,))
        return str(found[0][0]) if found else None

    def data_keys(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, str]]:
        """See KeepsDataKeys.data_keys."""
        found = self._read(SELECT_DATA_KEYS, (DATA_KEY + after, DATA_KEYS_END, limit))
        return [(str(name).removeprefix(DATA_KEY), str(value)) for name, value in found]

    def rewrap(self, changes: Sequence[tuple[str, str, str]]) -> int:
        """See KeepsDataKeys.rewrap."""
        if self._pid != os.getpid():
            self.leave_to_parent()
        with self._write_lock:
            writer = self._writer or self._open_writer()
            try:
                return writer.rewrap(changes)
            except LogFailed as failure:
                self._failed = failure
                raise

    def amendments(self, saga_id: str) -> list[str]:
        """See LogStore.amendments."""
        return [str(found) for (found,) in self._read(_SELECT_AMENDING, (saga_id,))]

    def verify(self) -> Iterator[str]:
        """See LogStore.verify."""
        with self._read_lock:
            connection = self._open_reader()
            if connection is None:
                return
            try:
                damage = schema_damage(connection)
                stray = connection.execute(_SELECT_STRAY_KEY).get
                stray_fact = connection.execute(SELECT_STRAY_FACT).get
                tail = check_tail(connection, self._path, log=self._log)
            except (apsw.Error, UnicodeDecodeError) as error:
                raise translated(error, self._path, WAIT_TO_READ_S) from error
        if damage is not None:
            raise CorruptLog(damage)
        if stray is not None:
            raise CorruptLog(f"key {stray!r} is not the key of the saga that it names")
        if stray_fact is not None:
            raise CorruptLog(f"the fact {stray_fact!r} is of a saga that is not in the log")
        if (damage := index_damage(self._read, skipped=self.merged().skipped)) is not None:
            raise CorruptLog(damage)
        yield "the schema: tables, indexes and triggers as they were made"
        yield "keys: each names a saga that has it"
        yield tail
        yield from self._locked_keys()

    def _read(self, sql: str, bindings: tuple[object, ...]) -> list[tuple[object, ...]]:
        """Return all rows of one query; the snapshot it needs lives no longer."""
        if self._pid != os.getpid():
            self.leave_to_parent()
        with self._read_lock:
            connection = self._open_reader()
            if connection is None:
                return []
            try:
                return connection.execute(sql, bindings).fetchall()
            except (apsw.Error, UnicodeDecodeError) as error:
                raise translated(error, self._path, WAIT_TO_READ_S) from error

    def _note_file(self) -> None:
        """Remember which file was opened; the first one counts."""
        if self._file is None:
            with contextlib.suppress(OSError):
                there = self._path.stat()
                self._file = (there.st_dev, there.st_ino)

    def _check_in_place(self) -> None:
        if self._file is None:
            return
        try:
            now = os.stat(self._path)  # noqa: PTH116 - before each intent, and pathlib costs twice as much.
        except OSError:
            now = None
        if now is None or (now.st_dev, now.st_ino) != self._file:
            raise LogFailed(f"the log {self._path} was moved, removed or replaced while it was open: put it back")

    def _open_reader(self) -> apsw.Connection | None:
        """Return the connection for reads, or None while the log is not made."""
        if self._reader is None:
            if self._closed:
                raise LogFailed(f"the log {self._path} was closed")
            if not check_place(self._path, create=self._create, allow_fs=self._allow_fs):
                return None
            self._reader, self._log = connect(self._path, vfs=self._vfs, wait_s=WAIT_TO_READ_S)
            self._note_file()
        return self._reader

    def open_now(self) -> None:
        """Open the log for reading now instead of at the first read.

        Raises:
            StoreError: it cannot be opened, is no log, or is behind its mark.
        """
        with self._read_lock:
            if self._open_reader() is None:
                raise LogMissing(f"there is no log at {self._path}")

    def _close_reader(self, reader: apsw.Connection) -> None:
        wal = self._path.with_name(self._path.name + "-wal")
        # Tidying only, which a bad disk may refuse: ownership must be given back all the same.
        with contextlib.suppress(apsw.Error, OSError):
            if wal.exists() and wal.stat().st_size == 0:  # Nothing to move: SQLite may remove the files that it made.
                reader.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        close_quietly(reader)

    def close(self) -> None:
        """See LogStore.close."""
        if self._pid != os.getpid():
            self.leave_to_parent()
        with self._write_lock, self._read_lock:
            self._closed = True
            if self._reader is not None:
                self._close_reader(self._reader)
                self._reader = None
            writer, self._writer = self._writer, None
            try:
                if writer is not None:
                    writer.close(failed=self._failed is not None)
            finally:
                self._owners.give_back()


def _rows_query(query: Query) -> tuple[str, tuple[object, ...]]:
    where: list[str] = []
    bindings: list[object] = []
    if query.unsealed:
        where.append("sealed = 0")
    if query.needs_human:
        where.append("human > 0")
    if not query.amendments:
        where.append("amends IS NULL")
    if query.states is not None:
        where.append(f"state IN ({', '.join('?' * len(query.states))})")
        bindings += query.states
    if query.name is not None:
        where.append("name = ?")
        bindings.append(query.name)
    if query.after is not None:
        where.append("saga > ?" if query.unsealed else "saga < ?")
        bindings.append(query.after)
    condition = f"WHERE {' AND '.join(where)} " if where else ""
    order = "ASC" if query.unsealed else "DESC"
    sql = f"SELECT {ROW_COLUMNS} FROM sagas {condition}ORDER BY saga {order} LIMIT ?"  # noqa: S608 - constants.
    return sql, (*bindings, query.limit)


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
