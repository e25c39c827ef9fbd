"""What a log in an object store asks of it, and a store in memory that is the reference."""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol


class SinkRefused(Exception):
    """The store refused, and did nothing; trying again is of no use (no access, no such bucket)."""


class SinkLost(Exception):
    """No answer came, or one that says nothing: the store may have done it, may do it later, or not at all."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object as it was read.

    Attributes:
        data: its bytes.
        etag: what a `put` must name to replace exactly this version.
        age_s: seconds since it was written, by the clock of the store; None when the store does not say.
    """

    data: bytes
    etag: str
    age_s: float | None = None


class AsyncSink(Protocol):
    """An object store. Every method may be called again after any failure.

    Names are ASCII letters, digits, `-` and `/`. Reads are of the newest version: what a `put` has answered for is seen
    by every later `read`. A `list` may be behind.
    """

    location: str
    """What to print for people; without secrets."""

    async def read(self, name: str) -> Found | None:
        """Return an object, or None when there is none.

        Raises:
            SinkRefused, SinkLost: it could not be read.
        """

    async def list(self, prefix: str, *, after: str = "") -> list[str]:
        """Return the next names with a prefix, in order of their bytes, after a name; an empty list is the end.

        Raises:
            SinkRefused, SinkLost: they could not be listed.
        """

    async def put(self, name: str, data: bytes, *, expected: str | None) -> str | None:
        """Write an object if the version there is the expected one, in one step; durable when it answers.

        Args:
            name: of the object.
            data: its bytes.
            expected: the `etag` that it has (`If-Match`), or None: there must be no such object (`If-None-Match: *`).

        Returns:
            The new etag, or None: another version is there, and nothing was written by this call. (An earlier call
            whose answer was lost may have written it.)

        Raises:
            SinkRefused: nothing was written.
            SinkLost: its fate is unknown.
        """

    async def close(self) -> None:
        """Close idle connections; a later call opens others."""


class MemorySink:
    """See AsyncSink. Several logs may share one; nothing survives the process."""

    def __init__(self) -> None:
        self.location = "objects in memory"
        self._objects: dict[str, tuple[bytes, str, float]] = {}
        self._lock = threading.Lock()

    async def read(self, name: str) -> Found | None:
        """See AsyncSink.read."""
        with self._lock:
            found = self._objects.get(name)
        return None if found is None else Found(found[0], found[1], time.monotonic() - found[2])

    async def list(self, prefix: str, *, after: str = "") -> list[str]:
        """See AsyncSink.list."""
        with self._lock:
            names = sorted(name for name in self._objects if name.startswith(prefix))
        return names[bisect_right(names, after) :][:1000]

    async def put(self, name: str, data: bytes, *, expected: str | None) -> str | None:
        """See AsyncSink.put."""
        with self._lock:
            found = self._objects.get(name)
            if (None if found is None else found[1]) != expected:
                return None
            etag = secrets.token_hex(8)
            self._objects[name] = (data, etag, time.monotonic())
            return etag

    async def close(self) -> None:
        """See AsyncSink.close."""
