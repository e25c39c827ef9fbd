"""`protect`: agents, workflows, all the tools and agents that they hold, and lists of tools."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.tools import BaseTool, FunctionTool
from llama_index.core.workflow import Context, Workflow
from llama_index_instrumentation.dispatcher import active_instrument_tags, instrument_tags

from agent_saga import current_saga, spi
from agent_saga.errors import UsageError
from agent_saga_llama_index import _pause, _spot
from agent_saga_llama_index._tool import acts, guarded, is_guarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_saga import AgentKit

T = TypeVar("T")
_KIT: Final = "_agent_saga_kit"


def protect(thing: T, kit: AgentKit | None = None) -> T:
    """Make tools run as steps of the saga around the run; outside of a saga they stay what they were.

    Args:
        thing: an agent, an `AgentWorkflow`, or a workflow whose attributes hold tools, agents or workflows: it is
            changed in place, with all those, also with those added later; or a tool, or a list or tuple of tools and
            functions. Protecting again changes nothing.
        kit: where the tools are declared; by default that of `saga_tool` and `saga_scope`.

    Returns:
        The same agent or workflow; a protected copy of a tool; a list of such.

    Raises:
        UndeclaredTool: some tools are not declared; all of them are named, in a block to paste.
        DeclarationError: a declaration names parameters that its tool does not have.
        UsageError: it is none of these things.
    """
    if isinstance(thing, Workflow):
        kit = vars(thing).get(_KIT) if kit is None else kit
        workflows = list(_reachable(thing))
        _check([tool for workflow in workflows for tool in _held(workflow, BaseTool)], kit)
        for workflow in workflows:
            _adopt(workflow, kit)
        return thing
    if isinstance(thing, BaseTool):
        _check([thing], kit)
        return cast("T", guarded(thing, kit))
    if isinstance(thing, list | tuple):
        odd = [type(one).__name__ for one in thing if not isinstance(one, BaseTool) and not callable(one)]
        if odd:
            raise UsageError(f"protect() takes a list of LlamaIndex tools and functions; it holds {', '.join(odd)}")
        tools = [one if isinstance(one, BaseTool) else FunctionTool.from_defaults(one) for one in thing]
        _check(tools, kit)
        return cast("T", type(thing)(guarded(tool, kit) for tool in tools))
    raise UsageError(f"protect() takes an agent, a workflow, a tool or a list of tools, not {type(thing).__name__}")


def _check(tools: Iterable[BaseTool], kit: AgentKit | None) -> None:
    unknown = [tool for tool in tools if acts(tool) and not (kit is None and is_guarded(tool))]
    spi.require_declared([tool.metadata.get_name() for tool in unknown], kit)


def _held(workflow: Any, kind: type[Any]) -> Iterator[Any]:
    """Yield what a workflow's attributes hold of a kind, themselves or in a list, tuple or dict."""
    for value in vars(workflow).values():
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
        yield from (one for one in inside if isinstance(one, kind))


def _reachable(workflow: Any) -> Iterator[Any]:
    """Yield a workflow and those that it holds, each once."""
    seen: set[int] = set()
    left = [workflow]
    while left:
        one = left.pop(0)
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            left += _held(one, Workflow)


def _adopt(workflow: Any, kit: AgentKit | None) -> None:
    """Protect one workflow, in place. What it holds may be undeclared: that is refused when it is called."""
    if type(workflow) not in _classes:
        workflow.__class__ = _class_of(type(workflow))  # type: ignore[arg-type]  # mypy: a type[Any] is not hashable
    vars(workflow)[_KIT] = kit if kit is not None else vars(workflow).get(_KIT)
    _adopt_tools(workflow)


def _adopt_tools(workflow: Any) -> None:
    kit = vars(workflow)[_KIT]

    def swap(one: Any) -> Any:
        return guarded(one, kit) if isinstance(one, BaseTool) else one

    for name, value in list(vars(workflow).items()):
        if isinstance(value, list):
            value[:] = map(swap, value)
        elif isinstance(value, dict):
            value.update({key: swap(one) for key, one in value.items() if isinstance(one, BaseTool)})
        elif isinstance(value, BaseTool):
            vars(workflow)[name] = swap(value)
        elif type(value) is tuple:
            vars(workflow)[name] = tuple(map(swap, value))


# -- classes ----------------------------------------------------------------------------------------------------------

_classes: Final[set[type]] = set()
"""Those of protected workflows."""


@functools.cache
def _class_of(kind: type[Any]) -> type[Any]:
    """Return the class of protected workflows of a kind.

    A class, and not attributes of the instance, because copies keep it.
    """
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    changed = {"run": _run(kind)}
    if issubclass(kind, BaseWorkflowAgent | AgentWorkflow):
        changed |= {"get_tools": _get_tools(kind), "_init_context": _init_context(kind), "call_tool": _call_tool(kind)}
    if issubclass(kind, BaseWorkflowAgent):
        changed["handle_tool_call_results"] = _handle_tool_call_results(kind)
    made: type[Any] = cast("Any", type(kind))(kind.__name__, (kind,), {**about, **changed})
    # The steps that were added to the class as functions.
    made._step_functions = kind._step_functions  # noqa: SLF001
    _classes.add(made)
    return made


def _run(kind: type[Any]) -> Any:
    @functools.wraps(kind.run)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        for workflow in list(_reachable(self)):
            _adopt(workflow, vars(self)[_KIT])
        saga = current_saga()
        if saga is None:
            return kind.run(self, *args, **kwargs)
        context = next((one for one in (kwargs.get("ctx"), *args) if isinstance(one, Context)), None)
        resumed = context is not None and context.is_running
        with instrument_tags({**active_instrument_tags.get(), "saga_id": saga.id}):
            handler = kind.run(self, *args, **kwargs)
        _pause.hear_at_once(handler)
        if resumed:
            _pause.until_over(handler)
        return handler

    return run


def _get_tools(kind: type[Any]) -> Any:
    @functools.wraps(kind.get_tools)
    async def get_tools(self: Any, *args: Any, **kwargs: Any) -> Any:
        kit = vars(self)[_KIT]
        for workflow in (self, *_held(self, BaseWorkflowAgent)):
            _adopt(workflow, kit)
        await _spot.turn_begins()
        return [guarded(tool, kit) for tool in await kind.get_tools(self, *args, **kwargs)]

    return get_tools


def _call_tool(kind: type[Any]) -> Any:
    @functools.wraps(kind.call_tool)  # Which makes it the step that the framework's is.
    async def call_tool(self: Any, ctx: Context, ev: Any) -> Any:
        async with _spot.one_at_a_time(ev.tool_id):
            if _spot.is_answered(ev.tool_id):
                return None
            result = await kind.call_tool(self, ctx, ev)
            return None if _spot.is_answered(ev.tool_id, note=True) else result

    return call_tool


def _init_context(kind: type[Any]) -> Any:
    @functools.wraps(kind._init_context)  # noqa: SLF001
    async def _init_context(self: Any, ctx: Context, ev: Any) -> None:
        await kind._init_context(self, ctx, ev)  # noqa: SLF001
        await _spot.run_begins(ctx)

    return _init_context


def _handle_tool_call_results(kind: type[Any]) -> Any:
    @functools.wraps(kind.handle_tool_call_results)
    async def handle_tool_call_results(self: Any, ctx: Context, results: Any, memory: Any) -> None:
        await _spot.turn_begins()
        _spot.claim(results)
        await kind.handle_tool_call_results(self, ctx, results, memory)

    return handle_tool_call_results
