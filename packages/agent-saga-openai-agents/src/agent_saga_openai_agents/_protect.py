"""`protect`: agents, all that they hand over to or use as tools, and lists of tools."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args, get_origin

from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    ImageGenerationTool,
    Tool,
    ToolSearchTool,
    WebSearchTool,
)
from agents.tool import ProgrammaticToolCallingTool

from agent_saga import current_saga, spi
from agent_saga.errors import UsageError
from agent_saga_openai_agents import _mcp, _pause, _runs
from agent_saga_openai_agents._tool import guarded, may_pause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agents import RunContextWrapper

    from agent_saga import AgentKit

T = TypeVar("T")
_KIT: Final = "_agent_saga_kit"
_PROTECTED: Final = "_agent_saga_protected"
_OURS: Final = "__agent_saga_handoff__"
_TOOLS: Final = tuple(get_origin(kind) or kind for kind in get_args(Tool))
_AT_OPENAI: Final = (
    CodeInterpreterTool,
    FileSearchTool,
    ImageGenerationTool,
    ProgrammaticToolCallingTool,
    ToolSearchTool,
    WebSearchTool,
)
"""Hosted tools that change nothing of the user's."""


def protect(thing: T, kit: AgentKit | None = None) -> T:
    """Make tools run as steps of the saga around the run; outside of a saga they stay what they were.

    Args:
        thing: an agent, which is changed in place, with the agents that it hands over to, those it uses as tools, and
            its MCP servers, also those added later; or a tool, or a list or tuple of tools. Protecting again changes
            nothing.
        kit: where the tools are declared; by default that of `saga_tool` and `saga_scope`.

    Returns:
        The same agent; a protected copy of a tool; a list of such.

    Raises:
        UndeclaredTool: some tools are not declared; all of them are named, in a block to paste.
        DeclarationError: a declaration names parameters that its tool does not have.
        UsageError: it is none of these things, or holds a tool that acts and cannot be guarded.
    """
    if isinstance(thing, Agent):
        agents = list(_reachable([thing]))
        _check([tool for agent in agents for tool in agent.tools], kit)
        for agent in agents:
            _adopt(agent, kit)
        return thing
    if isinstance(thing, list | tuple):
        tools = list(thing)
        _check_lists(tools)
        _protect_all(tools, kit)
        return cast("T", type(thing)([_guarded(tool, kit) for tool in tools]))
    if isinstance(thing, _TOOLS):
        _protect_all([thing], kit)
        return cast("T", _guarded(thing, kit))
    raise UsageError(f"protect() takes an agent, a tool or a list of tools, not {type(thing).__name__}")


def _check_lists(tools: list[Any]) -> None:
    odd = [type(tool).__name__ for tool in tools if not isinstance(tool, _TOOLS)]
    if odd:
        raise UsageError(f"protect() takes a list of tools of the Agents SDK; it holds {', '.join(odd)}")


def _protect_all(tools: list[Any], kit: AgentKit | None) -> None:
    """Check tools that have no agent yet, and adopt the agents among them."""
    agents = list(_reachable(_agents_of(tools)))
    _check([*tools, *(tool for agent in agents for tool in agent.tools)], kit)
    for agent in agents:
        _adopt(agent, kit)


def _guarded(tool: Any, kit: AgentKit | None) -> Any:
    if not isinstance(tool, FunctionTool):
        return tool
    return guarded(tool, kit) if _agent_of(tool) is None else _pause.pausing(tool)


def _agent_of(tool: Any) -> Any:
    """Return the agent that a tool is made of, or None. The agent runs itself, so it is a pass-through and no step."""
    return getattr(tool, "_agent_instance", None) if isinstance(tool, FunctionTool) else None


def _agents_of(tools: Iterable[Any]) -> list[Any]:
    return [agent for tool in tools if isinstance(agent := _agent_of(tool), Agent)]


def _reachable(agents: list[Any]) -> Iterator[Any]:
    """Yield agents, those that they hand over to and those that are their tools, each once."""
    seen: set[int] = set()
    left = list(agents)
    while left:
        agent = left.pop(0)
        if id(agent) not in seen:
            seen.add(id(agent))
            yield agent
            left += [one for one in map(_target, agent.handoffs) if isinstance(one, Agent)]
            left += _agents_of(agent.tools)


def _target(handoff: Any) -> Any:
    """Return the agent of a handoff, where it is fixed; else it is protected when it is made."""
    if isinstance(handoff, Handoff):
        known = getattr(handoff, "_agent_ref", None)
        return None if known is None else known()
    return handoff


def _check(tools: list[Any], kit: AgentKit | None) -> None:
    """Check that all tools are declared, and that those that cannot be guarded are said to change nothing.

    Raises:
        UndeclaredTool: some are not.
        UsageError: some act, and cannot be guarded.
    """
    named = [tool for tool in tools if _agent_of(tool) is None and not isinstance(tool, _AT_OPENAI)]
    spi.require_declared([tool.name for tool in named], kit)
    loose = [tool.name for tool in named if not isinstance(tool, FunctionTool)]
    acting = sorted({name for name in loose if spi.effect_of(name, kit) != "read_only"})
    if acting:
        raise UsageError(
            f"{', '.join(acting)}: the Agents SDK runs these tools past every hook, so their effects cannot be logged "
            "or compensated. Use function tools in their place, or say that they change nothing: "
            f"kit.declare_read_only({', '.join(map(repr, acting))})"
        )


# -- agents -------------------------------------------------------------------------------------------------------


def _of_server(tool: Tool, kit: AgentKit | None) -> Tool:
    """Return a tool of an MCP server as a guarded one; the agent's own are guarded by now."""
    if not isinstance(tool, FunctionTool) or _agent_of(tool) is not None:
        return tool
    return guarded(tool, kit, by_server=True)


@functools.cache
def _class_of(kind: type) -> type:
    """Return the class of protected agents: the agent's own, and what is to be done at the beginning of each turn.

    A class, and not attributes of the instance, because `clone` and `dataclasses.replace` keep it.
    """

    async def get_all_tools(self: Any, run_context: RunContextWrapper[Any]) -> list[Tool]:
        kit = vars(self).get(_KIT)
        _adopt_around(self, kit)
        tools = [_of_server(tool, kit) for tool in await kind.get_all_tools(self, run_context)]  # type: ignore[attr-defined]
        _turn_begins(tools, run_context, kit)
        return tools

    async def get_system_prompt(self: Any, run_context: RunContextWrapper[Any]) -> Any:
        _runs.input_is_known(run_context)
        return await kind.get_system_prompt(self, run_context)  # type: ignore[attr-defined]

    changed = {"get_all_tools": get_all_tools, "get_system_prompt": get_system_prompt, _PROTECTED: True}
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), {**about, **changed})


def _turn_begins(tools: list[Tool], run_context: RunContextWrapper[Any], kit: AgentKit | None) -> None:
    saga = current_saga()
    if saga is None:
        return
    _check([tool for tool in tools if not isinstance(tool, FunctionTool)], kit)
    _pause.turn_begins(saga, *_runs.turn_begins(saga, run_context))
    _runs.mark_trace(saga)
    for tool in tools:
        if isinstance(tool, FunctionTool):
            may_pause(tool)


def _adopt(agent: Any, kit: AgentKit | None) -> None:
    """Protect an agent, in place. What it holds may be undeclared: that is refused when it is called."""
    if not getattr(agent, _PROTECTED, False):
        agent.__class__ = _class_of(type(agent))  # type: ignore[arg-type]  # mypy: a type[Any] is not hashable
        vars(agent)[_KIT] = kit
        _adopt_around(agent, kit)


def _adopt_around(agent: Any, kit: AgentKit | None) -> None:
    """Protect what an agent holds now; the framework compares tools by identity, so they take their places."""
    agent.tools[:] = [_guarded(tool, kit) for tool in agent.tools]
    for server in agent.mcp_servers:
        _mcp.guard_server(server)
    for other in _agents_of(agent.tools):
        _adopt(other, kit)
    for handoff in agent.handoffs:
        _adopt_handoff(handoff, kit)


def _adopt_handoff(handoff: Any, kit: AgentKit | None) -> None:
    target = _target(handoff)
    if isinstance(target, Agent):
        _adopt(target, kit)
    if not isinstance(handoff, Handoff) or hasattr(handoff.on_invoke_handoff, _OURS):
        return
    inner = handoff.on_invoke_handoff

    @functools.wraps(inner)
    async def on_invoke_handoff(context: RunContextWrapper[Any], arguments: str) -> Any:
        agent = await inner(context, arguments)
        if isinstance(agent, Agent):
            _adopt(agent, kit)
        return agent

    setattr(on_invoke_handoff, _OURS, True)
    handoff.on_invoke_handoff = on_invoke_handoff
