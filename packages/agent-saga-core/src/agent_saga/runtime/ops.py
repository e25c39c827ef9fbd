"""What the engine asks of its driver: each operation once, with a blocking and an async way to do it.

The engine is written as generators that yield operations. `drive` runs one in a thread, `adrive` in an event loop; so
sync and async users reach the same code.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_saga.errors import UsageError
from agent_saga.runtime.classify import HandlerStopped
from agent_saga.runtime.current import OutsideSagas

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from agent_saga.runtime.writer import Ticket, Writer
    from agent_saga.store.port import Verdict

T = TypeVar("T")


class Op:
    """One operation; `block` and `wait` do the same."""

    __slots__ = ()

    def block(self) -> Any:
        """Do it, blocking this thread."""
        raise NotImplementedError

    async def wait(self) -> Any:
        """Do it, letting the loop run."""
        raise NotImplementedError


class Commit(Op):
    """Wait until a record is committed (durable when its ticket says so)."""

    __slots__ = ("ticket", "writer")

    def __init__(self, writer: Writer, ticket: Ticket) -> None:
        self.writer, self.ticket = writer, ticket

    def block(self) -> Verdict:
        """See Op.block."""
        return self.writer.wait(self.ticket)

    async def wait(self) -> Verdict:
        """See Op.wait. A cancellation meanwhile leaves the record committed: it is written before this returns."""
        try:
            return await self.writer.wait_async(self.ticket)
        except asyncio.CancelledError:
            self.writer.wait(self.ticket)
            raise


class Call(Op):
    """Run the tool itself, the way it was made."""

    __slots__ = ("args", "fn", "kwargs", "lazy", "running", "timeout_s")

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout_s: float | None = None,
        *,
        lazy: bool = False,
    ) -> None:
        """Prepare the call.

        Args:
            fn: the tool.
            args: its positional arguments.
            kwargs: its keyword arguments.
            timeout_s: give up after this.
            lazy: calling it only makes a generator or stream, so there is nothing to await.
        """
        self.fn, self.args, self.kwargs, self.timeout_s, self.lazy = fn, args, kwargs, timeout_s, lazy
        self.running: concurrent.futures.Future[Any] | None = None

    def block(self) -> Any:
        """See Op.block. With a timeout it runs in a thread, which goes on after the timeout (see `running`)."""
        if self.timeout_s is None:
            return self.fn(*self.args, **self.kwargs)
        self.running = in_thread(lambda: self.fn(*self.args, **self.kwargs))
        return self.running.result(self.timeout_s)

    async def wait(self) -> Any:
        """See Op.wait. A timeout cancels the tool."""
        if self.lazy:
            return self.fn(*self.args, **self.kwargs)
        if self.timeout_s is None:
            return await self.fn(*self.args, **self.kwargs)
        async with asyncio.timeout(self.timeout_s):
            return await self.fn(*self.args, **self.kwargs)


class Invoke(Op):
    """Run a handler (compensator, probe, verifier, policy), sync or async, in either driver."""

    __slots__ = ("fn", "kwargs", "limit_s", "timeout_s")

    def __init__(
        self,
        fn: Callable[..., Any],
        kwargs: dict[str, Any],
        timeout_s: float | None = None,
        *,
        limit_s: float | None = None,
    ) -> None:
        """Prepare the call.

        Args:
            fn: the handler.
            kwargs: its arguments.
            timeout_s: what the handler's owner asked for.
            limit_s: what is left of the caller's budget; it binds wherever the call need not change threads for it.
        """
        self.fn, self.kwargs, self.timeout_s, self.limit_s = fn, kwargs, timeout_s, limit_s

    @property
    def _bound_s(self) -> float | None:
        known = [seconds for seconds in (self.timeout_s, self.limit_s) if seconds is not None]
        return min(known) if known else None

    def block(self) -> Any:
        """See Op.block. Async handlers run on a loop of ours; sync ones stay in this thread unless they have a timeout.

        Staying matters: many clients (sqlite3 connections, say) may be used in one thread only.
        """
        with OutsideSagas():
            if self.timeout_s is not None and not is_async(self.fn):
                result = in_thread(self._called).result(self._bound_s)
            else:
                result = self._called()
            return on_own_loop(_awaited(result), self._bound_s) if _is_awaitable(result) else result

    async def wait(self) -> Any:
        """See Op.wait. Sync handlers run in a thread, so that they neither block the loop nor outlast their timeout."""
        with OutsideSagas():
            async with asyncio.timeout(self._bound_s):
                if is_async(self.fn):
                    return await _awaited(self.fn(**self.kwargs))
                result = await asyncio.wrap_future(in_thread(self._called))
                return await _awaited(result) if _is_awaitable(result) else result

    def _called(self) -> Any:
        """Call the handler. Whatever it raises ends this attempt, not the rollback around it."""
        try:
            return self.fn(**self.kwargs)
        except (SystemExit, GeneratorExit, asyncio.CancelledError) as error:
            raise HandlerStopped(f"it raised {type(error).__name__}") from error
        except KeyboardInterrupt as error:
            if threading.current_thread() is threading.main_thread():
                raise  # A real Ctrl-C.
            raise HandlerStopped("it raised KeyboardInterrupt") from error


def _is_awaitable(result: object) -> bool:
    return hasattr(type(result), "__await__")


async def _awaited(awaitable: Any) -> Any:
    """Await a handler; see `Invoke._called`. A cancellation of the task that runs it is passed on."""
    try:
        return await awaitable
    except SystemExit as error:
        raise HandlerStopped("it raised SystemExit") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise HandlerStopped("it raised CancelledError") from error


class Sleep(Op):
    """Wait for some seconds."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def block(self) -> None:
        """See Op.block."""
        time.sleep(self.seconds)

    async def wait(self) -> None:
        """See Op.wait."""
        await asyncio.sleep(self.seconds)


class Join(Op):
    """Wait until a future is done, or the time is over; True when it is done. Its exception is not raised."""

    __slots__ = ("future", "timeout_s")

    def __init__(self, future: concurrent.futures.Future[Any], timeout_s: float) -> None:
        self.future, self.timeout_s = future, timeout_s

    def block(self) -> bool:
        """See Op.block."""
        return bool(concurrent.futures.wait([self.future], self.timeout_s).done)

    async def wait(self) -> bool:
        """See Op.wait."""
        if not self.future.done():
            await asyncio.wait([asyncio.wrap_future(self.future)], timeout=self.timeout_s)
        return self.future.done()


def drive(engine: Generator[Op, Any, T]) -> T:
    """Run an engine to its end in this thread."""
    value: Any = None
    error: BaseException | None = None
    thrown: BaseException | None = None
    try:
        while True:
            op = engine.send(value) if error is None else engine.throw(error)
            value, error = None, None
            try:
                value = op.block()
            except BaseException as raised:  # noqa: BLE001 - handed to the engine, which decides.
                error = thrown = raised
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except RuntimeError as wrapped:
        if isinstance(thrown, StopIteration) and wrapped.__cause__ is thrown:
            raise thrown from None  # The tool's own: only passing through a generator made a RuntimeError of it.
        raise
    finally:
        error = thrown = None


async def adrive(engine: Generator[Op, Any, T]) -> T:
    """Run an engine to its end in the running loop."""
    value: Any = None
    error: BaseException | None = None
    try:
        while True:
            op = engine.send(value) if error is None else engine.throw(error)
            value, error = None, None
            try:
                value = await op.wait()
            except BaseException as raised:  # noqa: BLE001 - handed to the engine, which decides.
                error = raised
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        error = None


def is_async(fn: Callable[..., Any]) -> bool:
    """Tell whether calling `fn` gives a coroutine, as far as its declaration shows."""
    while hasattr(fn, "func") and not inspect.iscoroutinefunction(fn):  # functools.partial
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(type(fn), "__call__", None))  # noqa: B004


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that this thread runs now."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def has_running_loop() -> bool:
    """Tell whether this thread runs an event loop now."""
    return running_loop() is not None


def in_thread(fn: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Run `fn` in a new daemon thread with a copy of this context.

    A pool would let a tool that hangs starve all others, and would join it at exit.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # Who gives up waiting cannot cancel it: the thread runs on, and sets it.
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(fn)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits.
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="agent-saga-call", daemon=True).start()
    return future


class _OwnLoop:
    """The event loop of ours, on the engine's thread; made on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def forget(self) -> None:
        """In a forked child the thread is gone, and the lock may be held for ever."""
        self._lock, self._loop = threading.Lock(), None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                loop = self._loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="agent-saga-engine", daemon=True).start()
            return self._loop


_own_loop: Final = _OwnLoop()
os.register_at_fork(after_in_child=_own_loop.forget)


def on_own_loop(coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
    """Run a coroutine on the engine's loop and block until it is done.

    Raises:
        TimeoutError: it took longer than `timeout_s`; it was cancelled.
        UsageError: called on the engine's own thread.
    """
    if threading.current_thread().name == "agent-saga-engine":
        coroutine.close()
        raise UsageError("an async handler cannot be run synchronously from inside another handler")
    future = asyncio.run_coroutine_threadsafe(coroutine, _own_loop.get())
    try:
        return future.result(timeout_s)
    except TimeoutError:
        future.cancel()
        raise


def start_on_own_loop(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Run a coroutine on the engine's loop without waiting for it."""
    return asyncio.run_coroutine_threadsafe(coroutine, _own_loop.get())
