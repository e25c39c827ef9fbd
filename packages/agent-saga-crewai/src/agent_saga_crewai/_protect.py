"""`protect`: crews, agents, flows and lists of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from crewai import Crew
from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.flow import Flow
from crewai.tools import BaseTool

from agent_saga import spi
from agent_saga.errors import UsageError
from agent_saga_crewai import _hooks
from agent_saga_crewai._tool import guarded, is_pass_through, tool_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga import AgentKit

T = TypeVar("T")


def protect(thing: T, kit: AgentKit | None = None) -> T:
    """Make tools run as steps of the saga around the run; outside of a saga they stay what they were.

    From the first call on, every tool call that CrewAI makes in a saga is a step of it, also those of tools that are
    added later or found at run time (MCP servers, platforms), and is refused where the tool is not declared. A tool is
    declared by the name that the model sees: `Charge a card` is `charge_a_card`.

    Args:
        thing: a crew, an agent, a flow (with the crews and agents that it holds), a tool, or a list or tuple of
            tools. Protecting again changes nothing.
        kit: where the tools are declared; by default that of `saga_tool` and `saga_scope`.

    Returns:
        The same crew, agent or flow, whose lists of tools are changed in place; a protected copy of a tool, of the
        same type; a list of such.

    Raises:
        UndeclaredTool: some tools are not declared; all of them are named, in a block to paste.
        DeclarationError: a declaration names parameters that its tool does not have.
        UsageError: it is none of these things.
    """
    tools = list(_lists_of_tools(thing))
    if not tools and not isinstance(thing, Crew | BaseAgent | Flow | BaseTool | list | tuple):
        raise UsageError(
            f"protect() takes a crew, an agent, a flow, a tool or a list of tools, not {type(thing).__name__}"
        )
    _hooks.install()
    spi.require_declared([tool_name(tool) for some in tools for tool in some if not is_pass_through(tool)], kit)
    known: dict[int, BaseTool] = {}
    for some in tools:
        for tool in some:
            if not is_pass_through(tool):
                known.setdefault(id(tool), guarded(tool, kit))
    if isinstance(thing, BaseTool):
        return cast("T", known.get(id(thing), thing))
    if isinstance(thing, list | tuple):
        return cast("T", type(thing)(known.get(id(tool), tool) for tool in thing))
    for some in tools:
        some[:] = [known.get(id(tool), tool) for tool in some]
    return thing


def _lists_of_tools(thing: Any) -> Iterator[list[Any]]:
    """Yield the lists of tools in a thing, as they are."""
    if isinstance(thing, list | tuple):
        yield list(thing)
    elif isinstance(thing, BaseTool):
        yield [thing]
    elif isinstance(thing, BaseAgent):
        yield from (some for some in [thing.tools] if some)
    elif isinstance(thing, Crew):
        yield from (some for agent in [*thing.agents, thing.manager_agent] for some in _lists_of_tools(agent))
        yield from (task.tools for task in thing.tasks if task.tools)
        yield from (some for task in thing.tasks for some in _lists_of_tools(task.agent))
    elif isinstance(thing, Flow):
        held = [value for value in vars(thing).values() if isinstance(value, Crew | BaseAgent)]
        yield from (some for value in held for some in _lists_of_tools(value))
