"""From the name of a log to the log."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_saga.errors import LogUnusable, UsageError
from agent_saga.store.memory import MemoryLog
from agent_saga.store.sealing import KeepsDataKeys

if TYPE_CHECKING:
    from agent_saga.store.keyring import KeyRing
    from agent_saga.store.port import LogStore

GROUP: Final = "agent_saga.logs"
"""Entry points of logs: the scheme of their URLs, and a function `open_log(url, *, create)` as the one below."""

PACKAGE_OF: Final = {"postgresql": "agent-saga-postgres", "postgres": "agent-saga-postgres"}
"""Packages that may not be installed, by scheme. An installed one is found by its entry point, not here."""

IN_OBJECTS: Final = ("objects+http", "objects+https")
"""Schemes of logs in an object store, which core opens itself."""


def open_log(url: str, *, create: bool, allow_fs: bool = False, ring: KeyRing | None = None) -> LogStore:
    """Return the log that `url` names.

    Args:
        url: a path (`./agent-saga.db`), `memory:` for a new log that dies with the process, or the URL of a store of
            another package (`postgresql://...`), which is found by its entry point.
        create: when there is no log, make one with the first record; until then nothing is opened or made on disk.
            Else the log must exist, and is opened for reading now; it can be written all the same.
        allow_fs: accept a network or shared file system.
        ring: the keys under which payloads are sealed. A log in memory stays as it is: nothing of it is at rest.

    Raises:
        UsageError: the log cannot hold sealed payloads, or the extra [encrypt] is not installed.
        LogMissing: `create` is false and there is no log.
        LogUnusable: the place cannot hold a log, or holds something else. With `create`, what needs opening the file
            is found by the first call that opens it.
        CorruptLog: `create` is false and the log is behind its mark.
    """
    if url == "memory:":
        return MemoryLog()
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+):", url)
    if scheme is not None and (url.startswith(scheme[0] + "//") or not Path(url).exists()):
        return _with_ring(_open_elsewhere(scheme[1].lower(), url, create=create), ring)
    if not url or "\0" in url:
        raise LogUnusable(f"{url!r} is no path")
    from agent_saga.store.sqlite import SqliteLog  # Late: apsw costs start-up time, and `memory:` does not need it.

    log = SqliteLog(Path(os.path.realpath(url)), create=create, allow_fs=allow_fs)
    _with_ring(log, ring)
    if not create:
        log.open_now()
    return log


def _with_ring(log: LogStore, ring: KeyRing | None) -> LogStore:
    if ring is not None:
        if not isinstance(log, KeepsDataKeys):
            log.close()
            raise UsageError(f"the log {log.location} cannot hold encrypted payloads yet; a log in a file can")
        log.use_ring(ring)
    return log


def _open_elsewhere(scheme: str, url: str, *, create: bool) -> LogStore:
    """Return a log of another package. The URL is never shown: it may hold a password.

    Raises:
        LogUnusable: no package that is installed knows the scheme, or the one that does cannot be loaded.
    """
    if scheme in IN_OBJECTS:
        from agent_saga.store.objects.http import open_log as open_objects  # Late: most logs are not there.

        return open_objects(url, create=create)
    from importlib.metadata import entry_points  # Late: it costs 40 ms, which a log in a file need not pay.

    for entry in entry_points(group=GROUP, name=scheme):
        try:
            opener = entry.load()
        except ImportError as error:
            package = PACKAGE_OF.get(scheme, "the package that brings it")
            raise LogUnusable(f"{package} cannot be loaded ({error}): install it again") from error
        log: LogStore = opener(url, create=create)
        return log
    if scheme in PACKAGE_OF:
        package = PACKAGE_OF[scheme]
        raise LogUnusable(f"a log at a {scheme}:// URL needs the package {package}: pip install {package}")
    raise LogUnusable(f"{scheme}: names no log: use a path, `memory:`, a postgresql:// or an objects+https:// URL")


def shown(url: str) -> str:
    """Return the name of a log as people may see it: without a password, and without what may hold one."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    place, question, query = rest.partition("?")
    secret = "password" in query.lower()
    _, at, host = place.rpartition("@")
    user = place[: -len(at + host)].partition(":")[0] if at else ""
    return f"{scheme}://{user}{at}{host}" + ("" if secret else question + query)
