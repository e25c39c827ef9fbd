"""A guarded tool: a copy of the user's, of the same type, whose innermost body runs as a step."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from agents import FunctionTool
from agents.tool import (
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext

from agent_saga import spi
from agent_saga_openai_agents import _mcp, _pause
from agent_saga_openai_agents._function import guarded_function
from agent_saga_openai_agents._step import Step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent_saga import AgentKit

    _Invoke = Callable[[Any, ToolContext[Any], str], Awaitable[Any]]


class Invoker:
    """What runs a guarded tool. It passes for the framework's own invoker, which copies of a tool are bound with.

    Attributes:
        arguments: makes the arguments of a step of what the model gives.
    """

    def __init__(self, inner: Any, invoke: _Invoke, arguments: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._inner = inner
        self._invoke = invoke
        self.arguments = arguments

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and not name.startswith("__agents"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __agents_bind_function_tool__(self, tool: FunctionTool) -> Invoker:
        bind = getattr(self._inner, "__agents_bind_function_tool__", None)
        return self if bind is None else Invoker(bind(tool), self._invoke, self.arguments)

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        return await self._invoke(self._inner, context, arguments)


def is_guarded(tool: FunctionTool) -> bool:
    """Tell whether a tool is guarded already; a copy of a guarded one is."""
    return isinstance(tool.on_invoke_tool, Invoker)


def guarded(tool: FunctionTool, kit: AgentKit | None, *, by_server: bool = False) -> FunctionTool:
    """Return a tool as a guarded one; a guarded one is returned as it is.

    Args:
        tool: the user's; it is not changed.
        kit: where it is declared.
        by_server: its MCP server guards the call, and has only to know which one it is.

    Raises:
        DeclarationError: its declaration names parameters that it does not have.
    """
    if is_guarded(tool):
        return tool
    made = None if by_server else guarded_function(tool, kit)
    if made is not None:
        invoker, key_param = Invoker(made.invoker, _plain, made.arguments), made.step.key_param
    else:
        step = _mcp.step_of(tool.name, kit) if by_server else Step(name=tool.name, kit=kit)
        step.key_param = key_param = spi.adopt_parameters(tool.name, tool.params_json_schema.get("properties", ()), kit)
        invoker = Invoker(tool.on_invoke_tool, _mcp.announcing(step) if by_server else _stepping(step, tool), dict)
    changed = copy.copy(tool)
    changed.on_invoke_tool = invoker
    if key_param is not None:
        changed.params_json_schema = _without(tool.params_json_schema, key_param)
    result = copy.copy(changed)  # Binds the invoker to the copy, so that its own ways with failures hold.
    if result.needs_approval is not False:
        _pause.ask_first(result, invoker.arguments)
    return result


def may_pause(tool: FunctionTool) -> None:
    """Let the gate pause runs before calls of a guarded tool, where a policy of this saga could ask.

    Not before it has to be: a tool with a policy pauses, by a rule of the framework, on arguments that are no JSON.
    """
    if isinstance(tool.on_invoke_tool, Invoker) and spi.may_suspend(tool.name):
        _pause.ask_first(tool, tool.on_invoke_tool.arguments)


async def _plain(inner: Any, context: ToolContext[Any], arguments: str) -> Any:
    return await inner(context, arguments)


def _stepping(step: Step, tool: FunctionTool) -> Any:
    """Return how a tool that is no plain function runs: its own invoker is the innermost body that there is."""
    failing = set_function_tool_failure_error_function(copy.copy(tool), None).on_invoke_tool
    by_framework = hasattr(tool.on_invoke_tool, "__agents_bind_function_tool__")

    async def invoke(inner: Any, context: ToolContext[Any], arguments: str) -> Any:
        given = _json_object(arguments)
        if given is None:
            return await inner(context, arguments)  # Which says what is wrong with them.

        async def body(effective: dict[str, Any]) -> Any:
            taken = step.without_key(effective)
            return await failing(context, arguments if taken == given else json.dumps(taken))

        try:
            return await step.arun(context, given, body)
        except Exception as error:
            if not by_framework:
                raise
            text = await maybe_invoke_function_tool_failure_error_function(
                function_tool=tool, context=context, error=error
            )
            if text is None:
                raise
            return text

    return invoke


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _without(schema: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in schema.get("properties", {}):
        return schema
    properties = {known: value for known, value in schema["properties"].items() if known != name}
    return {**schema, "properties": properties, "required": [n for n in schema.get("required", ()) if n != name]}
