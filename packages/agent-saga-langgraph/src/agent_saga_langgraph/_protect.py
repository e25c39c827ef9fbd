"""`protect`: tools and nodes of hand-made graphs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.tools import BaseTool
from langchain_core.tools import tool as make_tool
from langgraph.prebuilt import ToolNode

from agent_saga import spi
from agent_saga.errors import UsageError
from agent_saga_langgraph import _flow
from agent_saga_langgraph import _watch as _watch
from agent_saga_langgraph._requests import guarding_requests
from agent_saga_langgraph._tool import guarded

if TYPE_CHECKING:
    from agent_saga import AgentKit

T = TypeVar("T")


def protect(thing: T, kit: AgentKit | None = None) -> T:
    """Make tools run as steps of the saga around the run; outside of a saga they stay what they were.

    Args:
        thing: a tool, a list or tuple of tools (functions become tools; dicts, which the model's provider runs, stay
            as they are), or a `ToolNode`. Protecting again changes nothing.
        kit: where the tools are declared; by default that of `saga_tool` and `saga_scope`.

    Returns:
        A protected copy of a tool, of the same type; a list of such; the same `ToolNode`, changed in place, so that a
        graph that holds it already is protected too.

    Raises:
        UndeclaredTool: some tools are not declared; all of them are named, in a block to paste.
        DeclarationError: a declaration names parameters that its tool does not have.
        UsageError: it is none of these things.
    """
    return cast("T", _protected(thing, kit))


def _protected(thing: Any, kit: AgentKit | None) -> Any:
    if isinstance(thing, ToolNode):
        return _protect_node(thing, kit)
    if isinstance(thing, list | tuple):
        return type(thing)(_protect_all([_as_tool(item) for item in thing], kit))
    if isinstance(thing, BaseTool):
        return _protect_all([thing], kit)[0]
    raise UsageError(
        f"protect() takes a tool, a list of tools or a ToolNode, not {type(thing).__name__}; for create_agent use "
        "middleware=[SagaMiddleware()]"
    )


def _as_tool(item: Any) -> Any:
    return item if isinstance(item, BaseTool | dict) else make_tool(item)


def _protect_all(tools: list[Any], kit: AgentKit | None) -> list[Any]:
    spi.require_declared([tool.name for tool in tools if isinstance(tool, BaseTool)], kit)
    return [guarded(tool, kit) if isinstance(tool, BaseTool) else tool for tool in tools]


class _GuardedTools(dict[str, BaseTool]):
    """A node's tools by name; one that is added later is guarded when it is asked for."""

    def __init__(self, tools: dict[str, BaseTool], kit: AgentKit | None) -> None:
        super().__init__(tools)
        self.kit = kit

    def __getitem__(self, name: str) -> BaseTool:
        tool = guarded(super().__getitem__(name), self.kit)
        super().__setitem__(name, tool)
        return tool

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if super().get(name) is not None else default


def _counting(node: ToolNode, run: Any) -> Any:
    """Say, while the node runs, how many calls its task holds."""

    @functools.wraps(run)
    def counting(given: Any, *args: Any, **kwargs: Any) -> Any:
        with _flow.task_of(len(node._parse_input(given)[0])):  # noqa: SLF001 - the node's own reading is the exact one.
            return run(given, *args, **kwargs)

    return counting


def _acounting(node: ToolNode, arun: Any) -> Any:
    @functools.wraps(arun)
    async def counting(given: Any, *args: Any, **kwargs: Any) -> Any:
        with _flow.task_of(len(node._parse_input(given)[0])):  # noqa: SLF001 - as above.
            return await arun(given, *args, **kwargs)

    return counting


def _protect_node(node: ToolNode, kit: AgentKit | None) -> ToolNode:
    tools = node._tools_by_name  # noqa: SLF001 - the public property gives the same dict; replacing it needs the name.
    if isinstance(tools, _GuardedTools):
        return node
    named = dict(zip(tools, _protect_all(list(tools.values()), kit), strict=True))
    node._tools_by_name = _GuardedTools(named, kit)  # noqa: SLF001
    # No wrapper is added where there was none: any wrapper widens handle_tool_errors=SomeType to all exceptions.
    node.func, node.afunc = _counting(node, node.func), _acounting(node, node.afunc)
    wrap, awrap = node._wrap_tool_call, node._awrap_tool_call  # noqa: SLF001
    as_guarding = guarding_requests(lambda tool: guarded(tool, kit))
    if wrap is not None:
        node._wrap_tool_call = lambda request, execute: wrap(as_guarding(request), execute)  # noqa: SLF001
    if awrap is not None:
        node._awrap_tool_call = lambda request, execute: awrap(as_guarding(request), execute)  # noqa: SLF001
    return node
