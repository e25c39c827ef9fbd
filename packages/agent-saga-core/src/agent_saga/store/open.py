"""From the name of a log to the log."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent_saga.errors import LogUnusable
from agent_saga.store.memory import MemoryLog

if TYPE_CHECKING:
    from agent_saga.store.port import LogStore


def open_log(url: str, *, create: bool, allow_fs: bool = False) -> LogStore:
    """Return the log that `url` names.

    Args:
        url: a path (`./agent-saga.db`), or `memory:` for a new log that dies with the process.
        create: when there is no log, make one with the first record; until then nothing is opened or made on disk.
            Else the log must exist, and is opened for reading now; it can be written all the same.
        allow_fs: accept a network or shared file system.

    Raises:
        LogMissing: `create` is false and there is no log.
        LogUnusable: the place cannot hold a log, or holds something else. With `create`, what needs opening the file
            is found by the first call that opens it.
        CorruptLog: `create` is false and the log is behind its mark.
    """
    if url == "memory:":
        return MemoryLog()
    if url.startswith(("postgresql:", "postgres:")):
        raise LogUnusable("a log in PostgreSQL needs the package agent-saga-postgres: pip install agent-saga-postgres")
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:", url) and not Path(url).exists():
        raise LogUnusable(f"{url!r} names no log: use a path, `memory:`, or a postgresql:// URL")
    if not url or "\0" in url:
        raise LogUnusable(f"{url!r} is no path")
    from agent_saga.store.sqlite import SqliteLog  # Late: apsw costs start-up time, and `memory:` does not need it.

    log = SqliteLog(Path(os.path.realpath(url)), create=create, allow_fs=allow_fs)
    if not create:
        log.open_now()
    return log
