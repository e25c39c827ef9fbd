"""How the log waits for its sink: an event loop of its own, and patience with answers that do not come."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_saga.store.objects.sink import SinkLost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agent_saga.store.objects.sink import AsyncSink, Found

T = TypeVar("T")
_PAUSE_S_MIN: Final = 0.01
_PAUSE_S_MAX: Final = 1.0
_LIST_MAX: Final = 100_000
READS_AT_ONCE: Final = 64


class Loop:
    """An event loop in a thread of its own, made when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns; the calling thread waits, and no loop of the caller is touched."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="agent-saga-objects", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Stop it."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class Link:
    """A sink as the log uses it: it waits, and asks again while no answer comes, for `wait_s`.

    Args:
        sink: the object store.
        wait_s: how long a call waits for a store that does not answer.
        drive: waits for a coroutine; by default a `Loop`. A host without threads brings its own (Pyodide: `run_sync`).
    """

    def __init__(self, sink: AsyncSink, *, wait_s: float, drive: Callable[[Any], Any] | None = None) -> None:
        self.sink, self.wait_s = sink, wait_s
        self._loop = None if drive is not None else Loop()
        self._drive: Callable[[Any], Any] = drive if drive is not None else self._loop.run  # type: ignore[union-attr]

    def read(self, name: str) -> Found | None:
        """Return an object. Raises: SinkRefused; SinkLost when the wait is over."""
        found: Found | None = self._drive(self._patiently(lambda: self.sink.read(name)))
        return found

    def read_many(self, names: list[str]) -> list[Found | None]:
        """Return objects, many at a time. Raises: see `read`."""

        async def read() -> list[Found | None]:
            found: list[Found | None] = []
            for first in range(0, len(names), READS_AT_ONCE):
                some = names[first : first + READS_AT_ONCE]
                found += await asyncio.gather(
                    *(self._patiently(lambda name=name: self.sink.read(name)) for name in some)  # type: ignore[misc]
                )
            return found

        result: list[Found | None] = self._drive(read())
        return result

    def names(self, prefix: str, *, after: str) -> list[str]:
        """Return all names after one. Raises: see `read`."""

        async def listed() -> list[str]:
            found: list[str] = []
            last = after
            while len(found) < _LIST_MAX:
                page = await self._patiently(lambda last=last: self.sink.list(prefix, after=last))  # type: ignore[misc]
                if not page:
                    break
                found, last = [*found, *page], page[-1]
            return found

        result: list[str] = self._drive(listed())
        return result

    def replace(self, name: str, data: bytes, *, expected: str | None) -> str | None:
        """Write an object that only this process could write with these bytes; return its etag, or None.

        What became of a `put` without an answer is read back; one that is not there is given again, which is safe,
        because whichever arrives first makes the others fail.

        Raises:
            SinkRefused: nothing was written.
            SinkLost: the wait is over, and its fate is unknown.
        """
        result: str | None = self._drive(self._replace(name, data, expected))
        return result

    async def _replace(self, name: str, data: bytes, expected: str | None) -> str | None:
        until, pause_s = time.monotonic() + self.wait_s, _PAUSE_S_MIN
        while True:
            why = "another version was there, and is not there any more"
            try:
                etag = await self.sink.put(name, data, expected=expected)
            except SinkLost as error:
                etag, why = None, str(error)
            if etag is not None:
                return etag
            # Even a refusal says little: an earlier try, or a repetition on the way, may have written it.
            found = await self._patiently(lambda: self.sink.read(name))
            if found is not None and found.data == data:
                return found.etag
            if (None if found is None else found.etag) != expected:
                return None
            if time.monotonic() + pause_s > until:
                raise SinkLost(why)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _patiently(self, act: Callable[[], Coroutine[Any, Any, T]]) -> T:
        until, pause_s = time.monotonic() + self.wait_s, _PAUSE_S_MIN
        while True:
            try:
                return await act()
            except SinkLost:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise
                await asyncio.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def close(self) -> None:
        """Close the sink's connections, and stop the loop."""
        self._drive(self.sink.close())
        if self._loop is not None:
            self._loop.close()
