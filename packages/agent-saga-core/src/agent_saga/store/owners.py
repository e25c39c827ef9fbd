"""Owners on one machine: a kernel lock that a process holds for life proves that it lives.

Each process that writes a log holds `flock` on a file of its own in `<log>-owners/`. The file gets its final name only
when it is locked, so whoever finds it and gets the lock knows that the writer is gone: without waiting, clocks or PIDs.
A missing file means dead too (a closed log takes its file with it): deleting files there declares their owners dead.

A forked child shares the parent's open file, and with it the lock. It closes its descriptor and never unlocks, so the
lock lives as long as the parent or such a child does: the rule errs on the side of "alive" (measured: DESIGN 8).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import socket
import time
from pathlib import Path
from typing import Final

from agent_saga.errors import LogFailed

_TOKEN: Final = re.compile(r"[0-9a-z]+(-[0-9a-z]+)*")
_ROUNDS_MAX: Final = 100


class Owners:
    """The directory of one log's owners, and this process's mark in it."""

    __slots__ = ("_fd", "_token", "directory")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._token = ""
        self._fd = -1

    def token(self) -> str:
        """Return this process's token; the first call publishes its locked file.

        Raises:
            LogFailed: the file could not be made; nothing was published.
        """
        if not self._token:
            token = f"{os.getpid()}-{secrets.token_hex(8)}"
            try:
                self.directory.mkdir(mode=0o700, exist_ok=True)
                self._fd = _publish(self.directory, token)
            except OSError as error:
                raise LogFailed(f"cannot publish the owner's mark in {self.directory}: {error}") from error
            self._token = token
        return self._token

    def give_back(self) -> None:
        """Remove this process's file: it owns nothing any more. Those of dead processes go, too: missing means dead."""
        if self._token:
            (self.directory / self._token).unlink(missing_ok=True)
            os.close(self._fd)
            self._token, self._fd = "", -1
            self._forget_the_dead()

    def _forget_the_dead(self) -> None:
        """Remove the files of dead processes, one per `kill -9`. Nothing depends on it, so nothing is raised."""
        with contextlib.suppress(OSError):
            for path in self.directory.iterdir():
                if _TOKEN.fullmatch(path.name) is not None:
                    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                    dead = DeadProcess(path, fd)
                    if _try_lock(fd) and _is_at(fd, path):
                        dead.forget()
                    dead.close()

    def drop_after_fork(self) -> None:
        """In a forked child: forget the parent's mark without touching its lock."""
        if self._fd >= 0:
            os.close(self._fd)  # Closing leaves the parent's lock alone; LOCK_UN would take it away.
        self._token, self._fd = "", -1

    def prove_dead(self, owner: str) -> DeadProcess | None:
        """See LogStore.prove_dead."""
        if owner == self._token or _TOKEN.fullmatch(owner) is None:
            return None  # A token that no process of ours could have written is never a file name here.
        path = self.directory / owner
        for _ in range(_ROUNDS_MAX):
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                fd = self._stand_in(owner)
                if fd < 0:
                    continue  # Somebody else made the file first: look at theirs.
                return DeadProcess(path, fd)
            if not _try_lock(fd):
                os.close(fd)
                return None
            if _is_at(fd, path):
                return DeadProcess(path, fd)
            os.close(fd)  # An earlier prover removed it between our open and our lock.
        return None

    def _stand_in(self, owner: str) -> int:
        """Make and lock the file of an owner that has none, so that only one process proves its death at a time."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        try:
            return _publish(self.directory, owner)
        except FileExistsError:
            return -1


class DeadProcess:
    """See DeadOwner: the lock of a dead process, held."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd

    def forget(self) -> None:
        """See DeadOwner.forget."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)  # Before the lock goes: who opens the file later finds it gone.
            self.close()

    def close(self) -> None:
        """See DeadOwner.close."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Mutex:
    """A mutex between processes that is free again when its holder dies."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path) -> None:
        self._path, self._fd = path, -1

    def try_enter(self) -> bool:
        """Take it if it is free."""
        if self._fd < 0:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return _try_lock(self._fd)

    def leave(self) -> None:
        """Give it back."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close its file; in a forked child this leaves the parent's lock alone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _publish(directory: Path, name: str) -> int:
    """Make a file that is locked before it has its name; return its descriptor.

    Raises:
        FileExistsError: there is such a file.
    """
    hidden = directory / f".{name}.{secrets.token_hex(4)}"
    fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        os.write(fd, f"pid {os.getpid()} on {socket.gethostname()} since {since}\n".encode())
        os.link(hidden, directory / name)  # Never overwrites, unlike rename.
    except BaseException:
        os.close(fd)
        raise
    finally:
        hidden.unlink(missing_ok=True)
    return fd


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
