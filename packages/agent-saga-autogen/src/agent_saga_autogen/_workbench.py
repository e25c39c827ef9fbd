"""Workbenches: those of tools keep their tools guarded; of all others, MCP servers' among them, each call is a step."""

from __future__ import annotations

import asyncio
import functools
import weakref
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench, TextResultContent, ToolResult, Workbench

from agent_saga import SagaError, current_saga, spi
from agent_saga_autogen._step import Step, is_of_the_call
from agent_saga_autogen._tool import GUARDED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from autogen_core import CancellationToken

    from agent_saga import AgentKit, Saga

_KIT: Final = "_agent_saga_kit"
_ADOPT: Final = "_agent_saga_adopt"
_checked: Final[weakref.WeakKeyDictionary[Saga, set[int]]] = weakref.WeakKeyDictionary()
"""The workbenches whose tools were checked in a saga."""


def guard_workbench(bench: Workbench, kit: AgentKit | None, adopt: Callable[[Any], None]) -> None:
    """Guard a workbench, in place. Doing it again changes nothing.

    Args:
        bench: it stays an instance of its class.
        kit: where its tools are declared.
        adopt: protects what is found in it, also later.
    """
    if not isinstance(bench, Calls | Tools):
        is_static = isinstance(bench, StaticWorkbench)
        streams = isinstance(bench, StaticStreamWorkbench)
        bench.__class__ = mixed((StreamTools if streams else Tools) if is_static else Calls, type(bench))
        vars(bench).update({_KIT: kit, _ADOPT: adopt})


@functools.cache
def mixed(mixin: type, kind: type) -> Any:
    """Return a class that is `kind` to all the world, with a mixin of ours before it."""
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (mixin, kind), about)


def _error(name: str, text: str) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=True)


def _cancelled(name: str, token: CancellationToken | None) -> ToolResult:
    """Return what is told of a call whose cancellation AutoGen would wait for for ever, or raise it on."""
    if current_saga() is None or not is_of_the_call(token):
        raise  # noqa: PLE0704 - called where it is handled.
    return _error(name, f"{name} was cancelled")


class Tools(StaticWorkbench):
    """A workbench of tools: the tools are the steps."""

    def _look_again(self) -> None:
        if not all(GUARDED in vars(tool) for tool in self._tools):
            vars(self)[_ADOPT](self)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        self._look_again()
        inner: Any = super()
        try:
            return await inner.call_tool(name, arguments, cancellation_token, call_id)  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            return _cancelled(name, cancellation_token)

    async def list_tools(self) -> Any:
        self._look_again()
        inner: Any = super()
        return await inner.list_tools()


class StreamTools(Tools, StaticStreamWorkbench):
    """The same, with streams."""

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any, None]:
        self._look_again()
        inner: Any = super()
        try:
            async with aclosing(inner.call_tool_stream(name, arguments, cancellation_token, call_id)) as stream:
                async for item in stream:
                    yield item
        except asyncio.CancelledError:
            yield _cancelled(name, cancellation_token)


class Calls(Workbench):
    """A workbench that knows by itself what its tools do: its calls are the steps."""

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        inner: Any = super()
        step = Step(name=name, kit=vars(self)[_KIT], is_error=lambda result: bool(result.is_error))

        async def body(effective: dict[str, Any]) -> Any:
            return await inner.call_tool(name, effective, cancellation_token, call_id)

        try:
            result = await step.arun(dict(arguments or {}), body, call_id)
        except asyncio.CancelledError:
            return _cancelled(name, cancellation_token)
        except Exception as error:
            if current_saga() is None and not isinstance(error, SagaError):
                raise
            return _error(name, str(error))  # What raises here would make AutoGen wait for ever.
        return ToolResult.model_validate(result) if isinstance(result, dict) else result  # A replay is plain data.

    async def list_tools(self) -> Any:
        """Return the tools as a model may see them; the first time in a saga, all undeclared ones are named."""
        inner: Any = super()
        tools = await inner.list_tools()
        kit, saga = vars(self)[_KIT], current_saga()
        if saga is not None and id(self) not in _checked.setdefault(saga, set()):
            _checked[saga].add(id(self))
            spi.require_declared([tool["name"] for tool in tools], kit)
        return [_shown(tool, kit) for tool in tools]


def _shown(tool: Any, kit: AgentKit | None) -> Any:
    parameters = tool.get("parameters", {})
    properties = parameters.get("properties", {})
    key = spi.adopt_parameters(tool["name"], properties, kit)
    if key is None or key not in properties:
        return tool
    visible = {name: value for name, value in properties.items() if name != key}
    required = [name for name in parameters.get("required", ()) if name != key]
    return {**tool, "parameters": {**parameters, "properties": visible, "required": required}}
