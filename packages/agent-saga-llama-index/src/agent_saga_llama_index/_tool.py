"""A guarded tool: a copy of the user's, of its kind, whose innermost call runs as a step."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, Final, cast

from llama_index.core.agent.workflow.multi_agent_workflow import handoff
from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolOutput
from llama_index.core.tools.types import BaseToolAsyncAdapter

from agent_saga import current_saga, spi
from agent_saga_llama_index._function import guarded_function
from agent_saga_llama_index._info import NAME
from agent_saga_llama_index._pause import asking
from agent_saga_llama_index._schema import schema_without
from agent_saga_llama_index._step import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga import AgentKit

_GUARDED: Final = "_agent_saga_guarded"
_STEP: Final = "_agent_saga_step"


def acts(tool: BaseTool) -> bool:
    """Tell whether a tool may have effects: a handoff only changes who speaks next in its run."""
    return not (isinstance(tool, FunctionTool) and tool.real_fn is handoff)


def is_guarded(tool: BaseTool) -> bool:
    """Tell whether a tool is guarded already."""
    return _GUARDED in vars(tool)


def guarded(tool: BaseTool, kit: AgentKit | None) -> BaseTool:
    """Return a guarded copy of a tool. One that this kit guards already is returned as it is.

    Raises:
        DeclarationError: its declaration names parameters that it does not have.
    """
    original, known = vars(tool).get(_GUARDED, (tool, None))
    if not acts(tool) or (original is not tool and kit in {None, known}):
        return tool
    made: Any
    if isinstance(original, BaseToolAsyncAdapter):
        made = copy.copy(original)
        made.base_tool = guarded(original.base_tool, kit)
        vars(made)["acall"] = asking(made.acall, made.metadata.get_name())
    elif isinstance(original, FunctionTool):
        made = guarded_function(original, kit)
    else:
        made = _guarded_other(original, kit)
    vars(made)[_GUARDED] = (original, kit)
    return made  # type: ignore[no-any-return]


# -- tools that are no function's -------------------------------------------------------------------------------------


def _guarded_other(tool: BaseTool, kit: AgentKit | None) -> BaseTool:
    name = tool.metadata.get_name()
    names = list(tool.metadata.get_parameters_dict().get("properties", ()))
    key_param = spi.adopt_parameters(name, names, kit)
    made = copy.copy(tool)
    vars(made)[_STEP] = Step(name=name, kit=kit, key_param=key_param), names
    made.__class__ = _class_of(type(tool), key_param)
    return made


@functools.cache
def _class_of(kind: type[Any], key_param: str | None) -> type[Any]:
    """Return the class of guarded tools of a kind."""
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    made: type[Any] = cast("Any", type(kind))(kind.__name__, (kind,), about)
    # Set afterwards: the framework makes spans of the methods that a class is made with, and these have theirs.
    if issubclass(kind, AsyncBaseTool):
        made.call, made.acall = _guard(kind.call), _aguard(kind.acall)
    if not issubclass(kind, AsyncBaseTool) or kind.__call__ is not AsyncBaseTool.__call__:
        made.__call__ = _guard(kind.__call__)
    if key_param is not None:
        made.metadata = property(lambda self: schema_without(kind.metadata.fget(self), key_param))
    return made


class _Once:
    """One call of such a tool: the step's result is the tool's raw output, and the rest is kept for the framework."""

    def __init__(self, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.step, names = vars(tool)[_STEP]
        self.args, self.kwargs = args, kwargs
        given = {name: value for name, value in kwargs.items() if name != self.step.key_param}
        shown = [name for name in names if name != self.step.key_param]
        self.named = {**dict(zip(shown, args, strict=False)), **given}
        self.output: Any = None

    def with_key(self, effective: dict[str, Any]) -> dict[str, Any]:
        key_param = self.step.key_param
        return {**self.kwargs, key_param: effective[key_param]} if key_param in effective else self.kwargs

    def raw(self, output: Any) -> Any:
        self.output = output
        return output.raw_output if isinstance(output, ToolOutput) else output

    def is_error(self, _raw: Any) -> bool:
        return isinstance(self.output, ToolOutput) and self.output.is_error

    def told(self, raw: Any) -> Any:
        if self.output is not None:
            return self.output
        return ToolOutput(
            content=str(raw), tool_name=self.step.name, raw_input={"kwargs": self.named}, raw_output=raw
        )  # A replay.


def _guard(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        once = _Once(self, args, kwargs)
        step = once.step
        if current_saga() is None:
            return spi.guard(step.name, {}, lambda _: inner(self, *args, **kwargs), adapter=NAME, kit=step.kit)

        def body(effective: dict[str, Any]) -> Any:
            return once.raw(inner(self, *args, **once.with_key(effective)))

        return once.told(step.run(once.named, body, by_place=bool(args), error=once.is_error))

    return call


def _aguard(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    async def acall(self: Any, *args: Any, **kwargs: Any) -> Any:
        once = _Once(self, args, kwargs)
        step = once.step
        if current_saga() is None:
            return await spi.aguard(step.name, {}, lambda _: inner(self, *args, **kwargs), adapter=NAME, kit=step.kit)

        async def body(effective: dict[str, Any]) -> Any:
            return once.raw(await inner(self, *args, **once.with_key(effective)))

        async def run(**named: Any) -> Any:
            return await step.arun(named, body, by_place=bool(args), error=once.is_error)

        return once.told(await asking(run, step.name)(**once.named))

    return acall
