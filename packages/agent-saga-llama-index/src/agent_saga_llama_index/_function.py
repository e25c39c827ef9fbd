"""Tools made of Python functions: the function itself is the step, in whatever thread the framework runs it.

So the step sees the function's own exception and result, and a function whose run was cancelled still tells the saga
what came of it.
"""

from __future__ import annotations

import copy
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

from llama_index.core.tools import FunctionTool
from llama_index.core.tools.function_tool import async_to_sync, sync_to_async

from agent_saga import current_saga, spi
from agent_saga_llama_index._info import NAME
from agent_saga_llama_index._pause import asking
from agent_saga_llama_index._schema import without_key
from agent_saga_llama_index._step import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga import AgentKit

_IN_EXECUTOR: Final = sync_to_async(print).__code__
_PLAIN: Final = (bool, bytes, dict, float, int, list, str, tuple, type(None))
_BY_PLACE: Final = {inspect.Parameter.POSITIONAL_OR_KEYWORD}
_BY_NAME: Final = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def guarded_function(tool: FunctionTool, kit: AgentKit | None) -> FunctionTool:
    """Return a copy of a tool whose function is guarded.

    Raises:
        DeclarationError: its declaration names parameters that it does not have.
    """
    name, real = tool.metadata.get_name(), tool.real_fn
    parameters = [p for p in inspect.signature(real).parameters.values() if p.name != tool.ctx_param_name]
    step = Step(name=name, kit=kit)
    step.key_param = spi.adopt_parameters(name, [p.name for p in parameters], kit)
    made = copy.copy(tool)
    if real is tool.async_fn:
        guard = _aguard(real, step, tool)
        functions = async_to_sync(guard), guard
    else:
        guard = _guard(real, step, tool)
        in_executor = getattr(tool.async_fn, "__code__", None) is _IN_EXECUTOR
        functions = guard, sync_to_async(guard) if in_executor else _aguard(tool.async_fn, step, tool)
    # Nothing public makes a tool with other functions.
    vars(made).update(_real_fn=guard, _fn=functions[0], _async_fn=asking(functions[1], name))
    if step.key_param is not None:
        vars(made)["_metadata"] = without_key(made, tool, step.key_param)
    return made


class _Plan:
    """How a function is called."""

    def __init__(self, fn: Callable[..., Any], step: Step, tool: FunctionTool) -> None:
        self._fn, self._context = fn, tool.ctx_param_name
        whole = inspect.signature(fn)
        parameters = list(whole.parameters.values())
        own = [p for p in parameters if p.name != self._context]
        self.shown = whole.replace(parameters=[p for p in parameters if p.name != step.key_param])
        self._signature = inspect.Signature([p for p in own if p.name != step.key_param])
        names = list(self._signature.parameters.values())
        self._by_place = [p.name for p in names if p.kind in _BY_PLACE]
        self._is_plain = all(p.kind in _BY_NAME for p in own)
        self._known = {p.name for p in names}
        self._needed = {p.name for p in names if p.default is p.empty}
        self._defaults = {p.name: p.default for p in names if type(p.default) in _PLAIN}
        self._key_param = step.key_param

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a call's arguments by name, and the framework's context for those who take it.

        Raises:
            TypeError: the function does not take them; it did not run.
        """
        context = {}
        if self._context in kwargs or self._key_param in kwargs:
            context = {name: kwargs[name] for name in kwargs if name == self._context}
            kwargs = {name: kwargs[name] for name in kwargs if name not in {self._context, self._key_param}}
        if self._is_plain and not args and self._needed <= kwargs.keys() <= self._known:
            return {**self._defaults, **kwargs}, context
        bound = self._signature.bind(*args, **kwargs).arguments
        if self._is_plain:
            return {**self._defaults, **bound}, context
        named = {**self._defaults, **bound}
        for p in self._signature.parameters.values():
            if p.kind is p.VAR_KEYWORD:
                named |= named.pop(p.name, {})
        return named, context

    def call(self, effective: dict[str, Any], context: dict[str, Any]) -> Any:
        if self._is_plain:
            return self._fn(**effective, **context)
        left, args = {**effective, **context}, []
        for p in inspect.signature(self._fn).parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                args += left.pop(p.name, ())
            elif p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD and p.name in left:
                args.append(left.pop(p.name))
        return self._fn(*args, **left)


def _guard(fn: Callable[..., Any], step: Step, tool: FunctionTool) -> Callable[..., Any]:
    plan = _Plan(fn, step, tool)

    @functools.wraps(fn)
    def guard(*args: Any, **kwargs: Any) -> Any:
        if current_saga() is None:
            return spi.guard(step.name, {}, lambda _: fn(*args, **kwargs), adapter=NAME, kit=step.kit)
        named, context = plan.split(args, kwargs)
        return step.run(named, lambda effective: plan.call(effective, context), by_place=bool(args))

    guard.__signature__ = plan.shown  # type: ignore[attr-defined]
    return guard


def _aguard(fn: Callable[..., Any], step: Step, tool: FunctionTool) -> Callable[..., Any]:
    plan = _Plan(fn, step, tool)

    @functools.wraps(fn)
    async def guard(*args: Any, **kwargs: Any) -> Any:
        if current_saga() is None:
            return await spi.aguard(step.name, {}, lambda _: fn(*args, **kwargs), adapter=NAME, kit=step.kit)
        named, context = plan.split(args, kwargs)
        return await step.arun(named, lambda effective: plan.call(effective, context), by_place=bool(args))

    guard.__signature__ = plan.shown  # type: ignore[attr-defined]
    return guard
