"""The one connection of a process that commits to a log in SQLite."""

from __future__ import annotations

import contextlib
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw
import msgspec

from agent_saga.errors import CorruptLog, InvariantViolation, LogFailed, LogUnusable
from agent_saga.machine.gate import Fact
from agent_saga.model.records import Intent, SagaOpened, encode_body
from agent_saga.store.connection import check_place, close_quietly, connect, mark_path
from agent_saga.store.mark import MarkWriter, read_mark
from agent_saga.store.owners import Mutex
from agent_saga.store.port import Committed
from agent_saga.store.rules import Current, judge, mark_refused, unmet
from agent_saga.store.schema import (
    DATA_KEY,
    PUT_DATA_KEY,
    RAISE_MINOR,
    REWRAP,
    SELECT_FACT,
    SELECT_FACTS,
    create_file,
)
from agent_saga.store.sealing import MINOR
from agent_saga.store.sqlite_removal import remove, stale, write_anew
from agent_saga.store.totals import with_totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_saga.machine.row import Row
    from agent_saga.store.port import FactsChange, Item, Refused, Removal, Verdict

CHECKPOINT_PAGES: Final = 1000
"""Pages of the WAL after which a commit is followed by a checkpoint; a small WAL is reused, and reuse is fast."""
RESERVE_BYTES: Final = 1 << 20
_CACHED_SAGAS_MAX: Final = 10_000
_MUTEX_WAIT_S: Final = 5.0

_INSERT_RECORD: Final = "INSERT INTO records(pos, saga, n, body, payload, hash) VALUES(?, ?, ?, ?, ?, ?)"
_INSERT_SAGA: Final = (
    "INSERT INTO sagas(saga, name, key, incarnation, state, owner, epoch, on_crash, opened_at, due_at, work, human, "
    "sealed, amends, head, count, amendments, leaf) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)"
)
_UPDATE_HEAD: Final = "UPDATE sagas SET head = ?, count = ? WHERE saga = ?"
_UPDATE_ROW: Final = (
    "UPDATE sagas SET state = ?, owner = ?, epoch = ?, due_at = ?, work = ?, human = ?, sealed = ?, leaf = ?, "
    "head = ?, count = ? WHERE saga = ?"
)
_UPDATE_AMENDMENTS: Final = "UPDATE sagas SET amendments = ? WHERE saga = ?"
_PUT_KEY: Final = "INSERT INTO keys(key, saga) VALUES(?, ?) ON CONFLICT(key) DO UPDATE SET saga = excluded.saga"
_SELECT_CURRENT: Final = (
    "SELECT saga, epoch, count, head, amendments, leaf, state, owner, incarnation, amends FROM sagas WHERE saga = ?"
)
_SAGAS_AT_ONCE: Final = 16
_SELECT_SOME: Final = _SELECT_CURRENT.replace("saga = ?", f"saga IN ({', '.join('?' * _SAGAS_AT_ONCE)})")


_PUT_FACT: Final = "INSERT OR REPLACE INTO facts(kind, name, saga, no, value, at) VALUES(?, ?, ?, ?, ?, ?)"
_DROP_FACT: Final = "DELETE FROM facts WHERE kind = ? AND name = ? AND saga = ? AND no = ?"


class SqliteWriter:
    """Commits items; the caller lets in one thread at a time.

    What was read of sagas is kept between transactions while SQLite's data version says that no other connection has
    committed since.
    """

    def __init__(self, connection: apsw.Connection, path: Path, log: str) -> None:
        self._path, self._log = path, log
        self._connection = connection
        self._run = connection.cursor().execute
        self._mark = MarkWriter(mark_path(path), log, read_mark(mark_path(path)))
        directory = path.with_name(path.name + "-owners")
        self._mutex = Mutex(directory / ".checkpoint")
        self._reserve = directory / ".reserve"
        self._known: dict[str, Current] = {}
        self._version = -1
        self._last_pos = 0
        self._next_leaf = 0
        self._synced = True
        self._full: bool | None = None
        self._wal_pages = 0
        self._failed = ""

    @classmethod
    def open(cls, path: Path, *, create: bool, allow_fs: bool, vfs: str | None, wait_s: float) -> SqliteWriter:
        """Open the log for writing; make it first when it is missing and `create` says so.

        Raises:
            StoreError: it cannot be opened, is no log, or is behind its mark.
            OSError, apsw.Error: it could not be made.
        """
        if not check_place(path, create=create, allow_fs=allow_fs):
            create_file(path, vfs=vfs)
        connection, log = connect(path, vfs=vfs, wait_s=wait_s)
        if connection.readonly("main"):
            close_quietly(connection)
            raise LogFailed(f"the log {path} is read-only here")
        connection.execute("PRAGMA journal_mode=wal")
        connection.execute("PRAGMA fullfsync=1")  # Only macOS knows the difference.
        writer = cls(connection, path, log)
        connection.set_wal_hook(writer._on_wal)  # Replaces SQLite's own checkpoints, which know no mutex.
        writer._fill_reserve()
        return writer

    def append(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        """See LogStore.append."""
        if self._failed:
            raise LogFailed(self._failed)
        try:
            verdicts = self._transact(items, durable=durable)
        except apsw.FullError as error:
            verdicts = self._on_full_disk(items, error, durable=durable)
        except apsw.Error as error:
            raise self._stop(error) from error
        if self._wal_pages >= CHECKPOINT_PAGES:
            self._checkpoint()
        return verdicts

    def _transact(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        run = self._run
        if durable is not self._full:
            run("PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=NORMAL")
            self._full = durable
        try:
            run("BEGIN IMMEDIATE")
            if self._connection.data_version() != self._version:
                self._look_again()
                self._look_up(items)
            before = self._last_pos
            verdicts: list[Verdict] = [judge(item, self) or self._apply(item) for item in items]
            if self._last_pos == before:
                run("ROLLBACK")
                return verdicts
            run("COMMIT")
        except BaseException as error:
            self._roll_back(error)
            raise
        self._version = self._connection.data_version()
        self._synced = durable
        self._mark.write(self._last_pos, durable=durable)
        return verdicts

    @contextlib.contextmanager
    def _removing(self) -> Iterator[None]:
        """Run a durable transaction that leaves no old bytes in its pages, unless it is rolled back inside."""
        if self._failed:
            raise LogFailed(self._failed)
        try:
            self._run("PRAGMA synchronous=FULL")
            self._full = True
            self._run("PRAGMA secure_delete=ON")
            self._run("BEGIN IMMEDIATE")
            yield
            if not self._connection.in_transaction:
                return
            self._run("COMMIT")
        except apsw.Error as error:
            self._roll_back(error)
            raise self._stop(error) from error
        except BaseException as error:
            self._roll_back(error)
            raise
        self._version, self._synced = -1, True

    def rewrite(self, item: Item, removals: Sequence[Removal]) -> Verdict:
        """See LogStore.rewrite; `scrub` is left to the caller."""
        with self._removing():
            self._look_again()
            verdict: Verdict | None = stale(self._run, removals) or judge(item, self)
            if verdict is not None:
                self._run("ROLLBACK")
                return verdict
            verdict = self._apply(item)  # First, so that no position is used twice.
            remove(self._run, removals)
            self._known.clear()
        self._mark.write(self._last_pos, durable=True)
        return verdict

    def rewrap(self, changes: Sequence[tuple[str, str, str]]) -> int:
        """See KeepsDataKeys.rewrap."""
        with self._removing():
            before = self._connection.total_changes()
            for saga_id, old, new in changes:
                self._run(REWRAP, (new, DATA_KEY + saga_id, old))
            return self._connection.total_changes() - before

    def scrub(self) -> None:
        """See LogStore.scrub."""
        try:
            write_anew(self._connection, self._mutex)
        except (apsw.Error, OSError) as error:
            raise LogUnusable(
                f"what was removed from {self._path} may still be in its free pages or its -wal: another program uses "
                f"them ({error}). Give the same command again when fewer programs have the log open"
            ) from error
        self._version, self._wal_pages = -1, 0

    def _roll_back(self, error: BaseException) -> None:
        """End a transaction that failed, and forget what it read and wrote."""
        self._version = -1
        if self._connection.in_transaction:
            with contextlib.suppress(apsw.Error):
                self._run("ROLLBACK")
        if isinstance(error, msgspec.MsgspecError | UnicodeError | TypeError | ValueError | OverflowError):
            raise InvariantViolation(f"a record cannot be encoded, nothing was written: {error}") from error

    def _look_again(self) -> None:
        """Another connection has committed since: nothing that was known counts."""
        self._known.clear()
        ((last, leaf),) = self._select("SELECT (SELECT max(pos) FROM records), (SELECT max(leaf) FROM sagas)")
        self._last_pos, self._next_leaf = last or 0, (leaf or 0) + 1

    def _look_up(self, items: Sequence[Item]) -> None:
        """Read the sagas that items go on with, many at a time: where processes share a log, each commit needs it."""
        asked = {item.saga_id for item in items if item.count}
        while len(asked) > 1:
            some = tuple(asked.pop() for _ in range(min(len(asked), _SAGAS_AT_ONCE)))
            for values in self._select(_SELECT_SOME, some + some[:1] * (_SAGAS_AT_ONCE - len(some))):
                self._known[values[0]] = Current(*values)

    def _select(self, sql: str, bindings: tuple[str | int, ...] = ()) -> list[Any]:
        return self._run(sql, bindings).fetchall()

    def saga(self, saga_id: str) -> Current | None:
        """See rules.Lookup.saga."""
        current = self._known.get(saga_id)
        if current is None:
            found = self._select(_SELECT_CURRENT, (saga_id,))
            if not found:
                return None
            if len(self._known) >= _CACHED_SAGAS_MAX:
                self._known.clear()
            current = self._known[saga_id] = Current(*found[0])
        return current

    def newest(self, key: str) -> Current | None:
        """See rules.Lookup.newest."""
        found = self._select("SELECT saga FROM keys WHERE key = ?", (key,))
        if not found:
            return None
        saga = self.saga(found[0][0])
        if saga is None:
            raise CorruptLog(f"key {key!r} names saga {found[0][0]!r}, which has no row")
        return saga

    def facts_of_name(self, kind: str, name: str) -> list[Fact]:
        """See rules.Facts.facts_of_name."""
        return [Fact(*values) for values in self._select(SELECT_FACTS + " AND name = ?", (kind, name))]

    def fact(self, kind: str, name: str, saga_id: str, no: int) -> Fact | None:
        """See rules.Facts.fact."""
        found = self._select(SELECT_FACT, (kind, name, saga_id, no))
        return Fact(*found[0]) if found else None

    def _change_facts(self, change: FactsChange | None) -> None:
        if change is not None:
            change = with_totals(change, self)
            for fact in change.removed:
                self._run(_DROP_FACT, fact[:4])
            for fact in change.added:
                self._run(_PUT_FACT, fact)

    def _apply(self, item: Item) -> Committed | Refused:
        run, saga_id, row = self._run, item.saga_id, item.row
        refused = unmet(item, self) if item.requires else None
        if refused is not None:
            mark_refused(item, refused.reason)
        opening = item.count == 0
        current = Current(saga_id) if opening else self.saga(saga_id)
        assert current is not None
        pos, count, head = self._last_pos, current.count, current.head
        for draft in item.drafts:
            body, pos, count = draft.body, pos + 1, count + 1
            body.n, body.pos = count, pos
            data = encode_body(body)
            head = sha256(head + data).digest()
            run(_INSERT_RECORD, (pos, saga_id, count, data, draft.payload, head))
        self._last_pos, current.count, current.head = pos, count, head
        amends = row.amends if opening and row is not None else current.amends
        if amends is not None:
            self._amend(item, amends)
        if row is None:
            run(_UPDATE_HEAD, (head, count, saga_id))
        elif opening:
            self._insert(current, row)
        else:
            self._put_row(current, row)
        if refused is None:
            self._change_facts(item.facts)
        if item.data_key is not None:  # Compare-and-set of the saga's count keeps a second one away.
            run(PUT_DATA_KEY, (DATA_KEY + saga_id, item.data_key))
            run(RAISE_MINOR, (str(MINOR),))
        return refused or Committed(pos, head)

    def _amend(self, item: Item, amends: str) -> None:
        target = self.saga(amends)
        assert target is not None
        target.amendments += len(item.drafts)
        self._run(_UPDATE_AMENDMENTS, (target.amendments, amends))
        if item.amended is not None:
            self._put_row(target, item.amended.row)
            self._change_facts(item.amended.facts)

    def _insert(self, current: Current, row: Row) -> None:
        current.take(row)
        self._seal(current, row)
        self._known[current.saga_id] = current
        values = (row.name, row.key, row.incarnation, row.state, row.owner, row.epoch, row.on_crash, row.opened_at)
        more = (row.due_at, row.work, row.human, int(row.sealed), row.amends, current.head, current.count, current.leaf)
        self._run(_INSERT_SAGA, (current.saga_id, *values, *more))
        if row.key is not None:
            self._run(_PUT_KEY, (row.key, current.saga_id))

    def _put_row(self, current: Current, row: Row) -> None:
        current.take(row)
        self._seal(current, row)
        values = (row.state, row.owner, row.epoch, row.due_at, row.work, row.human, int(row.sealed))
        self._run(_UPDATE_ROW, (*values, current.leaf, current.head, current.count, current.saga_id))

    def _seal(self, current: Current, row: Row) -> None:
        if row.sealed and current.leaf is None:
            current.leaf, self._next_leaf = self._next_leaf, self._next_leaf + 1

    def sync(self) -> None:
        """See LogStore.sync: a durable commit syncs the whole WAL, and with it all that was written before."""
        if self._failed:
            raise LogFailed(self._failed)
        if self._synced:
            return
        try:
            self._run("PRAGMA synchronous=FULL")
            self._full = True
            # The number makes it a change; the version that other writers see tells them to look again, no more.
            self._run("UPDATE meta SET value = value + 1 WHERE name = 'sync'")
        except apsw.Error as error:
            raise self._stop(error) from error
        self._synced, self._version = True, -1
        self._mark.write(self._last_pos, durable=True)

    def _stop(self, error: Exception) -> LogFailed:
        """The fate of a commit is unknown, or it failed: nothing later may be called durable in this process."""
        if isinstance(error, apsw.BusyError):
            reason = f"the log {self._path} is locked by another program for too long ({error})"
        else:
            reason = f"a commit to the log {self._path} failed: {type(error).__name__}: {error}"
        self._failed = reason
        return LogFailed(reason)

    def _on_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Move the WAL's pages into the database, unless another process is at it; a full disk or a reader may wait."""
        self._wal_pages = 0
        try:
            if not self._mutex.try_enter():
                return
            try:
                self._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                self._mutex.leave()
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):
            return
        except (apsw.Error, OSError) as error:
            self._stop(error)  # What was committed is in the WAL; after an I/O error nothing more is trusted.

    def _fill_reserve(self) -> None:
        """Keep some room for records that end what was begun; a disk without it is used as it is."""
        with contextlib.suppress(OSError):
            self._reserve.parent.mkdir(mode=0o700, exist_ok=True)
            fd = os.open(self._reserve, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(fd).st_size < RESERVE_BYTES and hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, RESERVE_BYTES)
            finally:
                os.close(fd)

    def _on_full_disk(self, items: Sequence[Item], error: apsw.FullError, *, durable: bool) -> list[Verdict]:
        """Give the reserve up once, for records that start no effect: a rollback must not stop on a full disk.

        The failed transaction was rolled back, and the retry writes the same records at the same place of the WAL.
        """
        starts = any(isinstance(draft.body, Intent | SagaOpened) for item in items for draft in item.drafts)
        if starts or not self._release_reserve():
            raise self._stop(error) from error
        try:
            return self._transact(items, durable=durable)
        except apsw.Error as again:
            raise self._stop(again) from again

    def _release_reserve(self) -> bool:
        try:
            had = self._reserve.stat().st_size > 0
            os.truncate(self._reserve, 0)
        except OSError:
            return False
        return had

    def drop_after_fork(self) -> None:
        """In a forked child: close what is no database file; the connection is the parent's."""
        self._mark.close()
        self._mutex.close()

    def close(self, *, failed: bool) -> None:
        """Make everything durable and close; the last one to close leaves the log in one file.

        Raises:
            LogFailed: what was written could not be made durable.
        """
        try:
            if not (failed or self._failed):
                self.sync()
                self._leave_one_file()
        finally:
            close_quietly(self._connection)
            self._mark.close()
            self._mutex.close()

    def _leave_one_file(self) -> None:
        until = time.monotonic() + _MUTEX_WAIT_S
        # Tidying only: all is durable. A folder that was deleted under an open log must not end a process with a trace.
        with contextlib.suppress(apsw.Error, OSError):
            while not self._mutex.try_enter():
                if time.monotonic() > until:
                    return
                time.sleep(0.001)
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            self._connection.close()
