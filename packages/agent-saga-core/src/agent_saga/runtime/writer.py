"""Group commit: what several threads, tasks and sagas write at the same time shares one transaction.

Order is kept: items are committed in the order in which they were put. A failed commit stops the writer: nothing
later may be called durable in this process.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.errors import LogFailed, SagaError
from agent_saga.runtime.interrupts import InterruptsHeld, unwatch_interrupts, watch_interrupts
from agent_saga.store.sealing import KeepsDataKeys

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from agent_saga.store.port import Item, LogStore, Verdict

BACKGROUND_SYNC_S: Final = 0.05
"""What was committed without waiting for the device is made durable within this time."""
INLINE_COMMIT_S_MAX: Final = 0.002
"""While durable commits are faster than this on average, an event loop commits inline instead of in a thread."""


_held: Final = InterruptsHeld()


class Ticket(msgspec.Struct, eq=False):
    """One item on its way into the log."""

    item: Item
    durable: bool
    verdict: Verdict | SagaError | None = None
    waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def result(self) -> Verdict:
        """Return the store's verdict, or raise what stopped the log."""
        verdict = self.verdict
        if verdict is None or isinstance(verdict, SagaError):
            raise verdict or LogFailed("the item was not committed")
        return verdict


class Writer:
    """The one path from this process into a log."""

    def __init__(self, store: LogStore, executor: Executor) -> None:
        self.store = store
        self.failed: LogFailed | None = None
        self._executor = executor
        self._queue: deque[Ticket] = deque()
        self._commit_lock = threading.Lock()
        self._turns: set[asyncio.AbstractEventLoop] = set()
        self._commit_s = 0.0
        self._dirty = threading.Event()
        self._closed = False
        self._open_sagas: set[int] = set()
        self._syncer: threading.Thread | None = None
        self._volatile = store.location == "memory:"
        self.sealed = isinstance(store, KeepsDataKeys) and store.seals()

    def put(self, item: Item, *, durable: bool) -> Ticket:
        """Queue an item; it is committed by the next `wait`, by the next turn of a loop, or within 50 ms."""
        ticket = Ticket(item, durable)
        self._queue.append(ticket)
        return ticket

    def wait(self, ticket: Ticket) -> Verdict:
        """Block until the item is committed.

        Raises:
            LogFailed: the commit failed.
        """
        while ticket.verdict is None:
            with self._commit_lock:
                if ticket.verdict is None:
                    self._commit()
        verdict = ticket.verdict
        return ticket.result() if isinstance(verdict, SagaError) else verdict

    async def wait_async(self, ticket: Ticket) -> Verdict:
        """Wait until the item is committed, together with all others of this turn of the loop.

        Cancelling the wait does not take the item back.
        """
        if ticket.verdict is None:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            ticket.waiters.append((loop, future))
            if loop not in self._turns:
                self._turns.add(loop)
                loop.call_soon(self._turn, loop)
            if ticket.verdict is None:  # Another thread may have committed it before it saw the waiter.
                await future
        verdict = ticket.verdict
        return ticket.result() if verdict is None or isinstance(verdict, SagaError) else verdict

    def flush(self) -> None:
        """Commit what is queued, without waiting for the device."""
        with self._commit_lock:
            if self._queue:
                self._commit()

    def sync(self) -> None:
        """Make all that was committed durable.

        Raises:
            LogFailed: it could not be; a later claim of durability would be false.
        """
        with self._commit_lock, _held:
            if self._queue:
                self._commit_batch()
            self._sync()
        if self.failed is not None:
            raise self.failed

    def enter(self, saga: object) -> None:
        """Note that a saga of this process is open."""
        self._open_sagas.add(id(saga))
        watch_interrupts(self)

    def leave(self, saga: object) -> None:
        """Note that a saga of this process has ended; the last one takes a failed log's ownership with it.

        Until then calls may still run here, and another process must not settle them as if they could not.
        """
        self._open_sagas.discard(id(saga))
        if self._open_sagas:
            return
        unwatch_interrupts(self)
        if self.failed is not None:
            self.close()

    def note_work(self) -> None:
        """Make sure that what was queued or written without waiting reaches the device within 50 ms."""
        if self._volatile:
            return
        if self._syncer is None:
            self._syncer = threading.Thread(target=self._sync_loop, name="agent-saga-sync", daemon=True)
            self._syncer.start()
        self._dirty.set()

    def close(self) -> None:
        """Commit what is queued, make all of it durable, and close the log."""
        if self._closed:
            return
        self._closed = True
        self._dirty.set()
        with self._commit_lock:
            if self._queue and self.failed is None:
                self._commit()
        self.store.close()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit one turn of the loop: inline while the disk is fast and nobody else is committing."""
        self._turns.discard(loop)
        if self._commit_s <= INLINE_COMMIT_S_MAX and self._commit_lock.acquire(blocking=False):
            try:
                self._commit()
            finally:
                self._commit_lock.release()
        else:
            self._executor.submit(self._commit_in_thread)

    def _commit_in_thread(self) -> None:
        with self._commit_lock:
            self._commit()

    def _commit(self) -> None:
        """Commit the whole queue. INVARIANT: the caller holds the commit lock, so batches keep their order."""
        with _held:
            self._commit_batch()

    def _commit_batch(self) -> None:
        batch: list[Ticket] = []
        items: list[Item] = []
        durable = False
        queue = self._queue
        while queue:
            ticket = queue.popleft()
            batch.append(ticket)
            items.append(ticket.item)
            durable = durable or ticket.durable
        if not batch:
            return
        started = perf_counter() if durable else 0.0
        if self.failed is None:
            try:
                verdicts = self.store.append(items, durable=durable)
            except BaseException as error:
                self.failed = error if isinstance(error, LogFailed) else LogFailed(_explain(self.store, error))
                self.failed.__cause__ = None if error is self.failed else error
                self._resolve(batch, [self.failed] * len(batch))
                if not isinstance(error, Exception):
                    raise
                return
            self._resolve(batch, verdicts)
        else:
            self._resolve(batch, [self.failed] * len(batch))
        if durable:
            self._commit_s += 0.2 * (perf_counter() - started - self._commit_s)
        elif not self._volatile:
            self.note_work()

    def _resolve(self, batch: list[Ticket], verdicts: list[Verdict] | list[LogFailed]) -> None:
        """Hand the verdicts out. Each loop is woken once, however many of its tasks wait."""
        waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for ticket, verdict in zip(batch, verdicts, strict=True):
            ticket.verdict = verdict
            if ticket.waiters:
                for loop, future in ticket.waiters:
                    waiting.setdefault(loop, []).append(future)
        for loop, futures in waiting.items():
            _wake(loop, futures)

    def _sync_loop(self) -> None:
        """Make unsynced commits durable. A failure stops the log: a later claim of durability would be false."""
        while not self._closed:
            self._dirty.wait()
            time.sleep(BACKGROUND_SYNC_S)
            self._dirty.clear()
            with self._commit_lock:
                if self._closed or self.failed is not None:
                    return
                if self._queue:
                    self._commit()
                self._sync()

    def _sync(self) -> None:
        if self.failed is not None:
            return
        try:
            self.store.sync()
        except Exception as error:  # noqa: BLE001 - whatever it is, durability is no longer known.
            self.failed = LogFailed(_explain(self.store, error))
            self.failed.__cause__ = error


def _explain(store: LogStore, error: BaseException) -> str:
    return (
        f"a commit to the log {store.location} failed ({type(error).__name__}: {error}); no further effect starts in "
        "this process, and another process can finish its sagas: agent-saga recover"
    )


def _wake(loop: asyncio.AbstractEventLoop, futures: list[asyncio.Future[None]]) -> None:
    def set_done() -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)

    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        set_done()
        return
    try:
        loop.call_soon_threadsafe(set_done)
    except RuntimeError:  # The loop was closed: nobody waits there any more.
        return
