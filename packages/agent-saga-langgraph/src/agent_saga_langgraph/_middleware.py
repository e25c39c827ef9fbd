"""`SagaMiddleware`: the hook of `create_agent`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool

from agent_saga import current_saga, spi
from agent_saga_langgraph import _flow
from agent_saga_langgraph import _watch as _watch
from agent_saga_langgraph._requests import guarding_requests
from agent_saga_langgraph._tool import guarded, is_guarded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from langchain.agents.middleware.types import ModelRequest
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from agent_saga import AgentKit

_KEPT_MAX: Final = 256
"""Guarded tools that are kept; tools that are made anew for each call must not pile up."""


class SagaMiddleware(AgentMiddleware[Any, Any, Any]):
    """Runs every tool of an agent as a step of the saga around the run; outside of a saga it does nothing.

    `create_agent(model, tools, middleware=[SagaMiddleware()])`. The place in the list does not matter for coverage;
    put it last, so that retrying middleware repeats calls, not steps.

    Before the agent's first model call in a saga all of its tools are checked, and the undeclared ones are named at
    once. A tool that is added later and is not declared is refused when it is called.

    Args:
        kit: where the tools are declared; by default that of the saga.
    """

    def __init__(self, kit: AgentKit | None = None) -> None:
        super().__init__()
        self.kit = kit
        self._kept: dict[int, tuple[BaseTool, BaseTool]] = {}
        self._as_guarding = guarding_requests(self._guarded)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Run a call with its tool guarded."""
        with _task_of(request):
            return handler(self._as_guarding(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Run a call with its tool guarded."""
        with _task_of(request):
            return await handler(self._as_guarding(request))

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Check the tools, and hide the parameter that receives the key."""
        return handler(self._checked(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Check the tools, and hide the parameter that receives the key."""
        return await handler(self._checked(request))

    def _checked(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        if current_saga() is None:
            return request
        spi.require_declared([tool.name for tool in request.tools if isinstance(tool, BaseTool)], self.kit)
        shown = [self._guarded(tool) if isinstance(tool, BaseTool) else tool for tool in request.tools]
        changed = [new for new, old in zip(shown, request.tools, strict=True) if _schema(new) is not _schema(old)]
        return request.override(tools=shown) if changed else request

    def _guarded(self, tool: BaseTool) -> BaseTool:
        if is_guarded(tool):
            return tool
        kept = self._kept.get(id(tool))
        if kept is None or kept[0] is not tool:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            kept = self._kept[id(tool)] = (tool, guarded(tool, self.kit))
        return kept[1]


def _task_of(request: ToolCallRequest) -> AbstractContextManager[None]:
    """`create_agent` sends each call to a task of its own."""
    path = (getattr(request.runtime, "config", None) or {}).get("metadata", {}).get("langgraph_path") or ("",)
    return _flow.task_of(1) if path[0] == "__pregel_push" else nullcontext()


def _schema(tool: Any) -> Any:
    return tool.args_schema if isinstance(tool, BaseTool) else None
