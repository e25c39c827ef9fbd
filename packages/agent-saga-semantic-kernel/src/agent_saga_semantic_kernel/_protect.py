"""`protect`: kernels, agents, group chats and orchestrations."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

from semantic_kernel import Kernel
from semantic_kernel.agents import Agent, AgentGroupChat

from agent_saga import current_saga, spi
from agent_saga.errors import UsageError
from agent_saga_semantic_kernel import _histories
from agent_saga_semantic_kernel._function import agent_of, name_of, passes_through
from agent_saga_semantic_kernel._kernel import guard_kernel, make_all_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga import AgentKit, Saga

T = TypeVar("T")
_OURS: Final = "__agent_saga__"
_ORCHESTRATION: Final = "semantic_kernel.agents.orchestration.orchestration_base"


def protect(thing: T, kit: AgentKit | None = None) -> T:
    """Make functions run as steps of the saga around them; outside of a saga they stay what they were.

    Args:
        thing: a kernel, which is changed in place, with what is added to it later; or an agent, group chat or
            orchestration, with the kernels of all its agents, and of those that are plugins of these. Protecting again
            changes nothing.
        kit: where the functions are declared, by their own names or as `plugin-function`; by default the kit of
            `saga_tool` and `saga_scope`.

    Returns:
        The same thing.

    Raises:
        UndeclaredTool: some functions are not declared; all of them are named, in a block to paste.
        DeclarationError: a declaration names parameters that its function does not have.
        UsageError: it is none of these things.
    """
    kernels, agents = _reachable(thing)
    spi.require_declared([name for kernel in kernels for name in _names(kernel, kit)], kit)
    for kernel in kernels:
        guard_kernel(kernel, kit, functools.partial(_adopt, kit=kit))
        make_all_ready(kernel)
    for agent in agents:
        _watch_histories(agent)
    _watch_members(thing, kit)
    return thing


def _adopt(agent: Any, kit: AgentKit | None) -> None:
    """Protect an agent that came later. What it holds may be undeclared: that is refused when it is called."""
    kernels, agents = _reachable(agent)
    for kernel in kernels:
        guard_kernel(kernel, kit, functools.partial(_adopt, kit=kit))
    for one in agents:
        _watch_histories(one)


def _names(kernel: Kernel, kit: AgentKit | None) -> Iterator[str]:
    for plugin in kernel.plugins.values():
        for function in plugin.functions.values():
            if not passes_through(function):
                yield name_of(function, kernel, kit)


def _reachable(thing: Any) -> tuple[list[Kernel], list[Agent]]:
    """Return all kernels and agents of a thing, each once."""
    kernels: dict[int, Kernel] = {}
    agents: dict[int, Agent] = {}
    left = [thing]
    while left:
        one = left.pop()
        if isinstance(one, Kernel):
            if id(one) not in kernels:
                kernels[id(one)] = one
                functions = [found for plugin in one.plugins.values() for found in plugin.functions.values()]
                left += [agent for agent in map(agent_of, functions) if agent is not None]
        elif isinstance(one, Agent):
            agents[id(one)] = one
            left.append(one.kernel)
        elif isinstance(one, AgentGroupChat):
            left += one.agents
        elif _is_orchestration(one):
            left += one._members  # noqa: SLF001 - nothing public tells.
        else:
            raise UsageError(
                "protect() takes a kernel, an agent, a group chat or an orchestration of Semantic Kernel, not "
                f"{type(one).__name__}"
            )
    return list(kernels.values()), list(agents.values())


def _is_orchestration(thing: Any) -> bool:
    module = sys.modules.get(_ORCHESTRATION)  # It needs protobuf, which the framework does not bring along.
    return module is not None and isinstance(thing, module.OrchestrationBase)


def _watch_histories(agent: Any) -> None:
    """Have an agent's chat histories claim the steps whose results they bring along, before the model is asked."""
    inner = getattr(agent, "_prepare_agent_chat_history", None)
    if inner is None or hasattr(inner, _OURS):
        return

    @functools.wraps(inner)
    async def prepare(history: Any, *args: Any, **kwargs: Any) -> Any:
        _histories.begins(history)
        return await inner(history, *args, **kwargs)

    _replace(agent, prepare, inner)


def _watch_members(thing: Any, kit: AgentKit | None) -> None:
    """Protect agents that are added to a group chat later, and attach the actors of an orchestration to its saga."""
    if isinstance(thing, AgentGroupChat) and not hasattr(thing.add_agent, _OURS):
        _replace(thing, _adding(thing.add_agent, kit), thing.add_agent)
    if _is_orchestration(thing) and not hasattr(thing.invoke, _OURS):
        _replace(thing, _attaching(thing.invoke), thing.invoke)


def _adding(inner: Any, kit: AgentKit | None) -> Any:
    @functools.wraps(inner)
    def add_agent(agent: Agent) -> None:
        protect(agent, kit)
        inner(agent)

    return add_agent


def _attaching(inner: Any) -> Any:
    @functools.wraps(inner)
    async def invoke(task: Any, runtime: Any) -> Any:
        saga = current_saga()
        return await inner(task, runtime if saga is None else _Runtime(runtime, saga))

    return invoke


def _replace(thing: Any, ours: Any, inner: Any) -> None:
    setattr(ours, _OURS, True)
    object.__setattr__(thing, inner.__name__, ours)


class _Runtime:
    """A runtime for one orchestration: its actors act in the saga, also where the loop began before it."""

    def __init__(self, inner: Any, saga: Saga) -> None:
        self._inner = inner
        self._saga = saga

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def register_factory(self, type: Any, agent_factory: Any, **options: Any) -> Any:  # noqa: A002 - theirs.
        async def make() -> Any:
            actor = agent_factory()
            actor = await actor if inspect.isawaitable(actor) else actor
            handle = actor.on_message

            async def on_message(*args: Any, **kwargs: Any) -> Any:
                with self._saga.attach():
                    return await handle(*args, **kwargs)

            actor.on_message = on_message
            return actor

        return await self._inner.register_factory(type, make, **options)
