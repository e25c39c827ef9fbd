"""What a process has once: a writer for each log, and what a fork does to them."""

from __future__ import annotations

import atexit
import concurrent.futures
import os
import threading
from typing import TYPE_CHECKING, Final

from agent_saga.errors import UsageError
from agent_saga.runtime.writer import Writer
from agent_saga.store.open import open_log, shown

if TYPE_CHECKING:
    from agent_saga.store.keyring import KeyRing


class _Process:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.writers: dict[object, Writer] = {}
        self.rings: dict[object, KeyRing | None] = {}
        self.executor: concurrent.futures.Executor | None = None
        self.inherited: list[object] = []

    def forget(self) -> None:
        """In a forked child: keep what was inherited referenced, use and close none of it."""
        self.inherited.append((self.writers, self.executor))
        self.lock, self.writers, self.executor, self.rings = threading.Lock(), {}, None, {}


_process: Final = _Process()
os.register_at_fork(after_in_child=_process.forget)


def writer_for(url: str, *, allow_fs: bool = False, owner: object = None, ring: KeyRing | None = None) -> Writer:
    """Return this process's writer for a log; kits that name one log share it.

    Args:
        url: a path or `memory:` or the URL of another store.
        allow_fs: accept a network or shared file system.
        owner: whose `memory:` log it is: each owner has its own, and None makes a new one. It is hashed by identity.
        ring: the keys of the log's payloads.

    Raises:
        UsageError: another kit of this process has the log open with other keys.
    """
    with _process.lock:
        if _process.executor is None:
            _process.executor = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="agent-saga-commit")
        place: object = url if "://" in url else os.path.realpath(url)
        if url == "memory:":
            place = object() if owner is None else owner
        writer = _process.writers.get(place)
        if writer is None:
            store = open_log(url, create=True, allow_fs=allow_fs, ring=ring)
            writer = _process.writers[place] = Writer(store, _process.executor)
            _process.rings[place] = ring
        elif _process.rings.get(place) != ring:
            raise UsageError(
                f"the log {shown(url)} is open in this process with other keys: kits that name one log share it, so "
                "give them the same encryption="
            )
        return writer


def drop_writer(writer: Writer) -> None:
    """Close a writer and forget it; the next kit that names the log opens it anew."""
    with _process.lock:
        for place, known in list(_process.writers.items()):
            if known is writer:
                del _process.writers[place]
                _process.rings.pop(place, None)
    writer.close()


@atexit.register
def _close_all() -> None:
    for writer in list(_process.writers.values()):
        writer.close()
