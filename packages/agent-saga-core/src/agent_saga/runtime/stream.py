"""Generators and streams as one step: intent before the first item, outcome when they end."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, Generator
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any

from agent_saga.errors import UnboundCompensation
from agent_saga.runtime import outcome
from agent_saga.runtime.current import CurrentStep, current_of, current_step_var
from agent_saga.runtime.ops import adrive, drive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent_saga.runtime.live import Flight
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall


def wrap_stream(saga: Saga, call: ToolCall, flight: Flight, result: Any) -> Any:
    """Return a generator that passes everything through and records the outcome at its end."""
    kind = AsyncStream if inspect.isasyncgen(result) else SyncStream
    return kind(saga, call, flight, result)


class _Ending:
    """How a stream's step ends; at most once."""

    def __init__(self, saga: Saga, call: ToolCall, flight: Flight) -> None:
        self.saga, self.call, self.flight = saga, call, flight
        self.ended = False
        self.begun = False

    def failed(self, error: BaseException) -> None:
        if not self.ended:
            self.ended = True
            state, assumed = outcome.judge(self.call.declaration, error)
            if assumed and self.begun:  # Items were delivered: that nothing happened cannot be assumed any more.
                state, assumed = "in_doubt", False
            outcome.record_failure(self.saga, self.flight, error, state=state, assumed=assumed)

    def succeeded(self, value: object, *, partial: bool) -> Any:
        self.ended = True
        return outcome.record_success(self.saga, self.flight, value, partial=partial, replayable=False)

    def running(self) -> _Running:
        """Return a context in which the step is the current one, for while the tool's body runs."""
        step = self.saga.live.view.steps[self.flight.step]
        return _Running(current_of(self.saga, self.call, step))


class _Running:
    """A context manager as a class: a generator would turn the body's StopIteration into a RuntimeError."""

    def __init__(self, step: CurrentStep) -> None:
        self._step = step

    def __enter__(self) -> None:
        self._token = current_step_var.set(self._step)

    def __exit__(self, *_exc: object) -> None:
        with contextlib.suppress(ValueError):  # The body moved to another context; that copy ends with it.
            current_step_var.reset(self._token)


class SyncStream(Generator[Any, Any, Any]):
    """A generator that is one step."""

    def __init__(self, saga: Saga, call: ToolCall, flight: Flight, source: GeneratorType[Any, Any, Any]) -> None:
        self._source = source
        self._ending = _Ending(saga, call, flight)
        flight.close = self.close

    def send(self, value: Any) -> Any:
        """Resume the tool, and record its outcome when it ends."""
        return self._advance(lambda: self._source.send(value))

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        """Throw into the tool, and record its outcome when it ends."""
        error = val if isinstance(val, BaseException) else typ
        return self._advance(lambda: self._source.throw(error))

    def _advance(self, move: Callable[[], Any]) -> Any:
        try:
            with self._ending.running():
                item = move()
            self._ending.begun = True
            return item
        except StopIteration as stop:
            self._finish(stop.value, partial=False)
            raise
        except BaseException as error:
            self._ending.failed(error)
            raise

    def close(self) -> None:
        """Close the tool; a stream that was closed early succeeded in part."""
        if self._ending.ended:
            return
        if self._source.gi_running:
            raise ValueError("the stream runs in another thread; its step stays in doubt until it ends there")
        try:
            self._source.close()
        except BaseException as error:
            self._ending.failed(error)
            raise
        self._finish(None, partial=True)

    def _finish(self, value: object, *, partial: bool) -> None:
        if self._ending.ended:
            return
        problem = drive(self._ending.succeeded(value, partial=partial))
        if problem is not None:
            raise UnboundCompensation(problem)

    def __del__(self) -> None:
        """A stream that nobody closed is closed when it is collected."""
        if not self._ending.ended:
            try:
                self.close()
            except Exception:  # noqa: BLE001 - nothing can be raised from here; the step stays in doubt.
                return


class AsyncStream(AsyncGenerator[Any, Any]):
    """An async generator that is one step."""

    def __init__(self, saga: Saga, call: ToolCall, flight: Flight, source: AsyncGeneratorType[Any, Any]) -> None:
        self._source = source
        self._ending = _Ending(saga, call, flight)
        flight.close = self.aclose

    async def asend(self, value: Any) -> Any:
        """Resume the tool, and record its outcome when it ends."""
        return await self._advance(self._source.asend(value))

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        """Throw into the tool, and record its outcome when it ends."""
        return await self._advance(self._source.athrow(val if isinstance(val, BaseException) else typ))

    async def _advance(self, move: Awaitable[Any]) -> Any:
        try:
            with self._ending.running():
                item = await move
            self._ending.begun = True
            return item
        except StopAsyncIteration:
            await self._finish(partial=False)
            raise
        except BaseException as error:
            self._ending.failed(error)
            raise

    async def aclose(self) -> None:
        """Close the tool; a stream that was closed early succeeded in part."""
        if self._ending.ended:
            return
        if self._source.ag_running:
            raise RuntimeError("the stream runs in another task; its step stays in doubt until it ends there")
        try:
            await self._source.aclose()
        except BaseException as error:
            self._ending.failed(error)
            raise
        await self._finish(partial=True)

    async def _finish(self, *, partial: bool) -> None:
        if self._ending.ended:
            return
        problem = await adrive(self._ending.succeeded(None, partial=partial))
        if problem is not None:
            raise UnboundCompensation(problem)


class LazySyncStream(Generator[Any, Any, Any]):
    """What a wrapped generator function returns inside a saga: the step begins with the first item."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin = begin
        self._stream: Any = None

    def _started(self) -> Any:
        if self._stream is None:
            self._stream = self._begin()
        return self._stream

    def send(self, value: Any) -> Any:
        """Begin the step if this is the first item, and resume the tool."""
        return self._started().send(value) if value is not None else next(self._started())

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        """Throw into the tool; before the first item nothing has happened."""
        if self._stream is None:
            raise val if isinstance(val, BaseException) else typ
        return self._stream.throw(typ, val, tb)

    def close(self) -> None:
        """Close the tool; before the first item nothing has happened."""
        if self._stream is not None:
            self._stream.close()


class LazyAsyncStream(AsyncGenerator[Any, Any]):
    """What a wrapped async generator function returns inside a saga: the step begins with the first item."""

    def __init__(self, begin: Callable[[], Awaitable[Any]]) -> None:
        self._begin = begin
        self._stream: Any = None

    async def _started(self) -> Any:
        if self._stream is None:
            self._stream = await self._begin()
        return self._stream

    async def asend(self, value: Any) -> Any:
        """Begin the step if this is the first item, and resume the tool."""
        stream = await self._started()
        return await (stream.asend(value) if value is not None else anext(stream))

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        """Throw into the tool; before the first item nothing has happened."""
        if self._stream is None:
            raise val if isinstance(val, BaseException) else typ
        return await self._stream.athrow(typ, val, tb)

    async def aclose(self) -> None:
        """Close the tool; before the first item nothing has happened."""
        if self._stream is not None:
            await self._stream.aclose()
