"""Connections to the SQLite file of a log: opening one safely, and what an SQLite error means to a user."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import TYPE_CHECKING, Final

import apsw

from agent_saga.errors import CorruptLog, LogFailed, LogMissing, LogUnusable, StoreError
from agent_saga.store.filesystem import shared_file_system
from agent_saga.store.mark import check_mark, read_mark
from agent_saga.store.schema import check_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT_S: Final = 60.0
"""How long a commit waits for other writers."""
WAIT_TO_READ_S: Final = 5.0
_PAUSE_S: Final = 0.0002
_PAUSE_S_LONG: Final = 0.005
_SHORT_PAUSES: Final = 250


def check_place(path: Path, *, create: bool, allow_fs: bool) -> bool:
    """Tell whether a log's file exists at `path`, after the checks that need not open it.

    The file is only looked at, never opened: closing it would drop the locks that SQLite holds on it in this process.

    Raises:
        LogMissing: there is none, and `create` is false.
        LogUnusable: what is there, or where it is, cannot be a log.
    """
    directory = path.parent
    if not directory.is_dir():
        raise LogMissing(f"there is no log at {path}: {directory} is not a directory")
    if not allow_fs and (kind := shared_file_system(directory)) is not None:
        raise LogUnusable(
            f"{path} is on a {kind} file system, where the locks of other machines do not hold: use a local disk, or "
            "accept the risk with --allow-fs (allow_fs=True) while one machine uses it at a time"
        )
    try:
        found = path.stat()
    except FileNotFoundError:
        if not create:
            raise LogMissing(f"there is no log at {path}") from None
        return False
    except OSError as error:
        raise LogUnusable(f"{path} cannot be looked at: {error}") from error
    if not stat.S_ISREG(found.st_mode):
        raise LogUnusable(f"{path} is {'a directory' if stat.S_ISDIR(found.st_mode) else 'not a file'}, and no log")
    if found.st_size == 0:
        raise LogUnusable(f"{path} is an empty file, and no log; if it is nothing of worth, remove it and try again")
    return True


def connect(path: Path, *, vfs: str | None, wait_s: float) -> tuple[apsw.Connection, str]:
    """Return a connection to an existing log, and the log's id.

    Raises:
        StoreError: it cannot be opened, is no log, or is behind its mark.
    """
    connection: apsw.Connection | None = None
    try:
        connection = _open(path, vfs)
        # No checkpoint when it closes: a forked child, and a reader of a damaged log, must leave the files as they are.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_handler(_patience(wait_s))
        log = check_schema(connection, str(path))
        check_tail(connection, path, log=log)
    except (apsw.Error, UnicodeDecodeError) as error:
        close_quietly(connection)
        raise translated(error, path, wait_s) from error
    except BaseException:
        close_quietly(connection)
        raise
    return connection, log


def check_tail(connection: apsw.Connection, path: Path, *, log: str) -> str:
    """Compare the log with its mark; return what was checked, in one line.

    Raises:
        CorruptLog: the log is behind its mark.
    """
    # The mark is read first: a live writer moves the log on, then the mark, so what we then find is never behind it.
    mark = read_mark(mark_path(path))
    last = connection.execute("SELECT coalesce(max(pos), 0) FROM records").get
    return check_mark(mark, log=log, last=int(str(last)))


def mark_path(path: Path) -> Path:
    """Return where the mark of a log is."""
    return path.with_name(path.name + "-mark")


def _open(path: Path, vfs: str | None) -> apsw.Connection:
    if not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
        # SQLite reads a WAL database only where it can make its shared memory, or where nobody can change the file.
        name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(f"file:{name}?immutable=1", vfs=vfs, flags=flags)
    flags = apsw.SQLITE_OPEN_READWRITE if os.access(path, os.W_OK) else apsw.SQLITE_OPEN_READONLY
    return apsw.Connection(str(path), vfs=vfs, flags=flags)


def close_quietly(connection: apsw.Connection | None) -> None:
    """Close a connection; what the disk says to that is of no use: nothing is written by closing that counts."""
    if connection is not None:
        with contextlib.suppress(apsw.Error):
            connection.close()


def _patience(wait_s: float) -> Callable[[int], bool]:
    """Return a busy handler that waits in short pauses, then in longer ones: most commits take under 1 ms."""
    until = 0.0

    def wait(tries: int) -> bool:
        nonlocal until
        now = time.monotonic()
        if tries == 0:
            until = now + wait_s
        if now >= until:
            return False
        time.sleep(_PAUSE_S if tries < _SHORT_PAUSES else _PAUSE_S_LONG)
        return True

    return wait


def translated(error: apsw.Error | UnicodeDecodeError, path: Path, wait_s: float) -> StoreError:
    """Return what an SQLite error means to the user of a log that could not be opened or read."""
    if isinstance(error, apsw.NotADBError):
        return LogUnusable(f"{path} is not an SQLite database, and so no log")
    if isinstance(error, apsw.CorruptError | UnicodeDecodeError):
        return CorruptLog(f"the database file {path} is damaged ({error})")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return LogUnusable(f"{path} is locked by another program; waited {wait_s:g} s ({error})")
    if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError | apsw.AuthError):
        return LogUnusable(f"{path} cannot be opened: {error}")
    if isinstance(error, apsw.SQLError):
        return LogUnusable(f"{path} is an SQLite database, and no log that this version knows ({error})")
    return LogFailed(f"{path} cannot be read: {type(error).__name__}: {error}")
