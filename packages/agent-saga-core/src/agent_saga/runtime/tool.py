"""Wrapped tools: outside a saga the bare tool, inside a saga a step."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import TYPE_CHECKING, Any

from agent_saga.errors import DeclarationError, NoSaga, UsageError
from agent_saga.model.effects import Effect
from agent_saga.runtime.binder import make_binder
from agent_saga.runtime.current import current_saga_var, current_step_var, in_handler_var
from agent_saga.runtime.ops import Call, adrive, drive, is_async
from agent_saga.runtime.step import ToolCall, perform
from agent_saga.runtime.stream import LazyAsyncStream, LazySyncStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.runtime.binder import Binder
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.scope import ScopeEnvironment


class ContextLost(UserWarning):
    """An effectful tool ran without a saga in a process that has one open: the context was probably lost."""


_warned: set[str] = set()


def check_outside(declaration: Declaration, environment: ScopeEnvironment) -> None:
    """Decide about a call outside of any saga: it runs bare, unless that must not be.

    Raises:
        NoSaga: the tool requires a saga, or is irreversible in a process where its kit has a saga open.
    """
    if in_handler_var.get():
        return
    if declaration.requires_saga:
        raise NoSaga(f"{declaration.name!r} must run inside a saga, and there is none here; it did not run")
    if declaration.read_only or not environment.open_sagas:
        return
    if declaration.effect is Effect.IRREVERSIBLE:
        raise NoSaga(
            f"{declaration.name!r} is irreversible and was called without a saga while one is open in this process: "
            "the context was probably lost in a thread. It did not run. Use saga.bind(fn) or saga.attach()"
        )
    if declaration.name not in _warned:
        _warned.add(declaration.name)
        warnings.warn(
            f"{declaration.name!r} runs without a saga while one is open in this process: the context was probably "
            "lost in a thread, and this effect will not be compensated. Use saga.bind(fn) or saga.attach()",
            ContextLost,
            stacklevel=3,
        )


def joined_key(declaration: Declaration, saga: Saga) -> str | None:
    """Return the key of the step that an adapter began for this very call, or None when this call is its own step.

    A tool that is wrapped and also guarded by a framework's adapter is one effect, so it is one step.
    """
    step = current_step_var.get()
    if step is None:
        return None
    if not step._joinable or step.tool != declaration.name or step.saga_id != saga.id:  # noqa: SLF001
        return None
    step._joinable = False  # noqa: SLF001 - the step is the engine's own; only the first inner call is the same effect.
    return step.key


def check_awaitable(saga: Saga, declaration: Declaration) -> None:
    """Raise for an async tool in a sync scope inside a running loop.

    Raises:
        UsageError: its compensation could not be awaited there; it did not run.
    """
    if saga.sync_in_loop:
        raise UsageError(
            f"{declaration.name!r} is async, and saga {saga.id!r} was opened with `with` inside a running loop, "
            "where its compensation could not be awaited; it did not run. Use `async with`"
        )


class Wrapped:
    """What the wrappers of one tool share."""

    __slots__ = ("binder", "declaration", "environment", "fn", "key_param")

    def __init__(self, fn: Callable[..., Any], declaration: Declaration, environment: ScopeEnvironment) -> None:
        self.fn = fn
        self.declaration = declaration
        self.environment = environment
        self.key_param = declaration.key_param
        self.binder: Binder = make_binder(visible_signature(fn, self.key_param))

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, lazy: bool = False) -> ToolCall:
        """Return the call as the engine takes it."""
        own = dict(kwargs)
        if self.key_param is not None:
            own.pop(self.key_param, None)
        named = self.binder(args, own)

        def run(key: str | None) -> Call:
            given = kwargs if key is None or self.key_param is None else {**own, self.key_param: key}
            return Call(self.fn, args, given, None if lazy else self.declaration.timeout_s, lazy=lazy)

        return ToolCall(declaration=self.declaration, kwargs=named, run=run)

    def with_key(self, kwargs: dict[str, Any], key: str) -> dict[str, Any]:
        """Return the arguments of a joined call."""
        return kwargs if self.key_param is None else {**kwargs, self.key_param: key}


def visible_signature(fn: Callable[..., Any], key_param: str | None) -> inspect.Signature:
    """Return the signature without the parameter that receives the key, which no model should see."""
    signature = inspect.signature(fn)
    if key_param is None or key_param not in signature.parameters:
        return signature
    return signature.replace(parameters=[p for name, p in signature.parameters.items() if name != key_param])


def make_wrapper(fn: Callable[..., Any], declaration: Declaration, environment: ScopeEnvironment) -> Callable[..., Any]:
    """Return `fn` as a tool of the same nature: sync, async, generator or async generator."""
    try:
        wrapped = Wrapped(fn, declaration, environment)
    except (TypeError, ValueError) as error:
        raise DeclarationError(
            f"tool {declaration.name!r} has no signature to bind ({error}); wrap it in one"
        ) from None
    streams = inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn)
    if streams and (declaration.timeout_s is not None or declaration.retry):
        raise DeclarationError(f"tool {declaration.name!r} is a generator: it can have no timeout_s and no retry")
    if inspect.isasyncgenfunction(fn):
        wrapper: Callable[..., Any] = _async_stream(wrapped)
    elif inspect.isgeneratorfunction(fn):
        wrapper = _stream(wrapped)
    elif is_async(fn):
        wrapper = _async(wrapped)
    else:
        wrapper = _sync(wrapped)
    if wrapped.key_param is not None:
        wrapper.__signature__ = visible_signature(fn, wrapped.key_param)  # type: ignore[attr-defined]
        annotations = getattr(wrapper, "__annotations__", {})
        wrapper.__annotations__ = {name: kind for name, kind in annotations.items() if name != wrapped.key_param}
    wrapper.__agent_saga__ = declaration  # type: ignore[attr-defined]
    return wrapper


def _update(wrapper: Callable[..., Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    return functools.update_wrapper(wrapper, fn)


def _sync(wrapped: Wrapped) -> Callable[..., Any]:
    fn, declaration, environment, get = wrapped.fn, wrapped.declaration, wrapped.environment, current_saga_var.get

    def tool(*args: Any, **kwargs: Any) -> Any:
        saga = get()
        if saga is None:
            if environment.open_sagas or declaration.requires_saga:
                check_outside(declaration, environment)
            return fn(*args, **kwargs)
        key = joined_key(declaration, saga)
        if key is not None:
            return fn(*args, **wrapped.with_key(kwargs, key))
        return drive(perform(saga, wrapped.call(args, kwargs)))

    return _update(tool, fn)


def _async(wrapped: Wrapped) -> Callable[..., Any]:
    fn, declaration, environment, get = wrapped.fn, wrapped.declaration, wrapped.environment, current_saga_var.get

    async def tool(*args: Any, **kwargs: Any) -> Any:
        saga = get()
        if saga is None:
            if environment.open_sagas or declaration.requires_saga:
                check_outside(declaration, environment)
            return await fn(*args, **kwargs)
        key = joined_key(declaration, saga)
        if key is not None:
            return await fn(*args, **wrapped.with_key(kwargs, key))
        check_awaitable(saga, declaration)
        return await adrive(perform(saga, wrapped.call(args, kwargs)))

    return _update(tool, fn)


def _stream(wrapped: Wrapped) -> Callable[..., Any]:
    fn, declaration, environment, get = wrapped.fn, wrapped.declaration, wrapped.environment, current_saga_var.get

    def tool(*args: Any, **kwargs: Any) -> Any:
        saga = get()
        if saga is None:
            check_outside(declaration, environment)
            return fn(*args, **kwargs)
        key = joined_key(declaration, saga)
        if key is not None:
            return fn(*args, **wrapped.with_key(kwargs, key))
        call = wrapped.call(args, kwargs, lazy=True)
        return LazySyncStream(lambda: drive(perform(saga, call)))

    return _update(tool, fn)


def _async_stream(wrapped: Wrapped) -> Callable[..., Any]:
    fn, declaration, environment, get = wrapped.fn, wrapped.declaration, wrapped.environment, current_saga_var.get

    def tool(*args: Any, **kwargs: Any) -> Any:
        saga = get()
        if saga is None:
            check_outside(declaration, environment)
            return fn(*args, **kwargs)
        key = joined_key(declaration, saga)
        if key is not None:
            return fn(*args, **wrapped.with_key(kwargs, key))
        check_awaitable(saga, declaration)
        call = wrapped.call(args, kwargs, lazy=True)
        return LazyAsyncStream(lambda: adrive(perform(saga, call)))

    return _update(tool, fn)
