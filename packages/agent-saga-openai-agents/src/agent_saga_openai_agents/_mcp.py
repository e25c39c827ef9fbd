"""Tools of MCP servers: the request to the server is the step, because only there its real answer is seen."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from agent_saga_openai_agents._step import Step

if TYPE_CHECKING:
    from agents.mcp import MCPServer
    from agents.tool_context import ToolContext

    from agent_saga import AgentKit

_OURS: Final = "__agent_saga_guard__"
_announced: ContextVar[tuple[Step, Any] | None] = ContextVar("agent_saga_openai_agents_mcp", default=None)


def step_of(name: str, kit: AgentKit | None) -> Step:
    """Return the steps of an MCP server's tool."""
    return Step(name=name, kit=kit, is_error=_is_error, refused=_error)


def announcing(step: Step) -> Any:
    """Return how such a tool runs: the server's guard is told whose call it is."""

    async def invoke(inner: Any, context: ToolContext[Any], arguments: str) -> Any:
        token = _announced.set((step, context))
        try:
            return await inner(context, arguments)
        finally:
            _announced.reset(token)

    return invoke


def guard_server(server: MCPServer) -> None:
    """Make the requests of announced calls steps; all others stay what they are. Doing it again changes nothing."""
    inner = server.call_tool
    if hasattr(inner, _OURS):
        return

    @functools.wraps(inner)
    async def call_tool(tool_name: str, arguments: dict[str, Any] | None, *args: Any, **kwargs: Any) -> Any:
        announced = _announced.get()
        if announced is None:
            return await inner(tool_name, arguments, *args, **kwargs)
        _announced.set(None)  # The request runs in a task of its own, so this is no one else's.
        step, context = announced

        async def body(effective: dict[str, Any]) -> Any:
            return await inner(tool_name, step.without_key(effective), *args, **kwargs)

        result = await step.arun(context, arguments or {}, body)
        return _result(result) if isinstance(result, dict) else result  # A replay is plain data.

    setattr(call_tool, _OURS, True)
    server.call_tool = call_tool  # type: ignore[method-assign]


def _is_error(result: Any) -> bool:
    return bool(getattr(result, "isError", getattr(result, "is_error", False)))


def _error(reason: str) -> Any:
    return _result({"content": [{"type": "text", "text": reason}], "isError": True})


def _result(data: dict[str, Any]) -> Any:
    from mcp.types import CallToolResult

    return CallToolResult.model_validate(data)
