"""`protect`: agents, teams, workbenches and tools, with all that they hold."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.tools import BaseTool, FunctionTool, Workbench

from agent_saga import spi
from agent_saga.errors import UsageError
from agent_saga_autogen._agent import ADOPT, Assists, Runs
from agent_saga_autogen._team import REACHABLE, Meets
from agent_saga_autogen._tool import GUARDED, guard_tool
from agent_saga_autogen._turns import conversation_of
from agent_saga_autogen._workbench import guard_workbench, mixed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga import AgentKit

T = TypeVar("T")
_PARTS: Final = (BaseTool, Workbench, ChatAgent, Team)
_RUNNERS: Final = (AgentTool, TeamTool)
"""Tools that run an agent or a team: what that does are the steps."""


def protect(thing: T, kit: AgentKit | None = None) -> T:
    """Make tools run as steps of the saga around the run; outside of a saga they stay what they were.

    Args:
        thing: an agent or a team, with all that it holds, also later; a workbench; a tool; or a list or tuple of tools,
            functions among them. It is changed in place; protecting again changes nothing.
        kit: where the tools are declared; by default that of `saga_tool` and `saga_scope`.

    Returns:
        The same object; of a list a new one, in which functions have become tools.

    Raises:
        UndeclaredTool: some tools are not declared; all of them are named, in a block to paste.
        DeclarationError: a declaration names parameters that its tool does not have.
        UsageError: it is none of these things, or holds something that acts and cannot be guarded.
    """
    if isinstance(thing, list | tuple):
        made = [_tool(one) for one in thing]
        _protect(made, kit)
        return cast("T", type(thing)(made))
    if not isinstance(thing, _PARTS):
        raise UsageError(f"protect() takes an agent, a team, a workbench or tools, not {type(thing).__name__}")
    _protect([thing], kit)
    return thing


def _tool(one: Any) -> Any:
    """Return a tool; of a function what `AssistantAgent` makes of it."""
    if isinstance(one, BaseTool):
        return one
    if not callable(one):
        raise UsageError(f"protect() takes a list of tools; it holds {type(one).__name__}")
    return FunctionTool(one, description=one.__doc__ or "")


def _protect(things: list[Any], kit: AgentKit | None) -> None:
    found = list(_reachable(*things))
    tools = [one.name for one in found if isinstance(one, BaseTool) and not isinstance(one, _RUNNERS)]
    spi.require_declared([*tools, *(one.name for one in found if isinstance(one, CodeExecutorAgent))], kit)
    for one in found:
        if isinstance(one, CodeExecutorAgent) and spi.effect_of(one.name, kit) != "read_only":
            raise UsageError(
                f"{one.name}: a code executor runs what a model wrote past every hook, so its effects cannot be logged "
                "or compensated. Make a tool of it (PythonCodeExecutionTool), or say that it changes nothing: "
                f"kit.declare_read_only({one.name!r})"
            )
    _adopt(kit, *things)


def _adopt(kit: AgentKit | None, *things: Any) -> None:
    """Guard all that is in some things now. What is undeclared is refused when it is called."""
    for one in _reachable(*things):
        if isinstance(one, BaseTool):
            if not isinstance(one, _RUNNERS):
                guard_tool(one, kit)
            vars(one)[GUARDED] = True
        elif isinstance(one, Workbench):
            guard_workbench(one, kit, functools.partial(_adopt, kit))
        elif not isinstance(one, Runs | Meets):
            _adopt_runner(one, kit)


def _adopt_runner(one: Any, kit: AgentKit | None) -> None:
    mixin = Meets if isinstance(one, BaseGroupChat) else Assists if isinstance(one, AssistantAgent) else Runs
    kind: Any = type(one)
    one.__class__ = mixed(mixin, kind)
    vars(one).update({ADOPT: functools.partial(_adopt, kit), REACHABLE: _reachable})
    if mixin is not Meets:
        conversation_of(one)


def _reachable(*things: Any) -> Iterator[Any]:
    """Yield things, and all agents, teams, workbenches and tools in them, each once."""
    seen: set[int] = set()
    left = list(things)
    while left:
        one = left.pop(0)
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            left += _parts(one)


def _parts(one: Any) -> Iterator[Any]:
    if isinstance(one, BaseTool) and not isinstance(one, _RUNNERS):
        return
    for name, value in vars(one).items():
        if name == "_handoff_tools":
            continue
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        yield from (part for part in values if isinstance(part, _PARTS))
