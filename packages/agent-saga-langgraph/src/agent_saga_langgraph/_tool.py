"""A guarded tool: a copy of the user's, of the same type, whose innermost body runs as a step."""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.errors import ParentCommand

from agent_saga import SagaSuspended, current_saga, spi
from agent_saga.errors import (
    AlreadyCommitted,
    GateRefused,
    ReplayUnavailable,
    SagaClosed,
    StepInDoubt,
    UndeclaredTool,
)
from agent_saga_langgraph import _flow, _results
from agent_saga_langgraph._info import NAME
from agent_saga_langgraph._shape import Shape, shape_of, without_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga import AgentKit

_REFUSALS: Final = (GateRefused, UndeclaredTool, SagaClosed, StepInDoubt, AlreadyCommitted, ReplayUnavailable)
"""What a model is told: the call did not run, and why. Every other error of ours stops the run."""
_GUARD: Final = "_agent_saga_guard"


_OVERRIDDEN: Final = (_GUARD, "run", "arun", "_run", "_arun")


def is_guarded(tool: BaseTool) -> bool:
    """Tell whether a tool is guarded already; a `model_copy` of a guarded one has to be guarded anew."""
    guard = vars(tool).get(_GUARD)
    return guard is not None and guard.copy is tool


def guarded(tool: BaseTool, kit: AgentKit | None) -> BaseTool:
    """Return the tool as a guarded one; a guarded one is returned as it is.

    Raises:
        DeclarationError: its declaration names parameters that it does not have.
    """
    if is_guarded(tool):
        return tool
    if _GUARD in vars(tool):
        tool = tool.model_copy()
        for name in _OVERRIDDEN:
            vars(tool).pop(name, None)
    guard = _Guard(tool=tool, kit=kit, shape=shape_of(tool))
    guard.key_param = spi.adopt_parameters(tool.name, guard.shape.parameters, kit)
    changed = without_key(tool, guard.key_param) if guard.key_param is not None else {}
    # The copy's own attributes come before those of its class, so that the type stays what it was.
    copy = guard.copy = tool.model_copy(update=changed)
    overridden = {_GUARD: guard, "run": _entering(guard, copy.run), "arun": _aentering(guard, copy.arun)}
    overridden["_run"] = _like(tool._run, _stepping(guard, tool._run))  # noqa: SLF001 - there is no public way further in.
    if _is_async(tool):
        overridden["_arun"] = _like(tool._arun, _astepping(guard, tool._arun))  # noqa: SLF001 - as above.
    for name, value in overridden.items():
        object.__setattr__(copy, name, value)
    return copy


def _like(method: Any, step: Any) -> Any:
    """Return a body that langchain-core finds equal to the method: it reads the signature and makes schemas of it."""
    step = functools.wraps(method)(step)
    step.__doc__ = inspect.getdoc(method)  # A method's text may be inherited.
    step.__signature__ = inspect.signature(method)  # Read at every call, and cheaper from here.
    return step


def _is_async(tool: BaseTool) -> bool:
    """Tell whether the tool has an async body of its own.

    Without one `_arun` runs `_run` in a thread: it is guarded there, so that a body which outlives its cancelled
    caller still reports its outcome.
    """
    body = type(tool)._arun  # noqa: SLF001 - langchain-core asks the same question.
    if body in {StructuredTool._arun, Tool._arun}:  # noqa: SLF001
        return getattr(tool, "coroutine", None) is not None
    return body is not BaseTool._arun  # noqa: SLF001


@dataclass(slots=True, kw_only=True)
class _Guard:
    """What the overridden methods of one tool share.

    Attributes:
        tool: the user's own; its body runs.
        copy: the guarded tool.
        key_param: the parameter that receives the key.
    """

    tool: BaseTool
    kit: AgentKit | None
    shape: Shape
    copy: BaseTool | None = None
    key_param: str | None = None


# -- around: ids, refusals, pauses --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """A call on its way through `BaseTool.run` to the body, which is given neither its id nor its config."""

    guard: _Guard
    given: Any
    call_id: str | None
    config: Any

    def refusal(self, error: Exception) -> ToolMessage:
        """Return a refusal as the model reads it. A Python caller, whose call has no id, gets the error itself."""
        if self.call_id is None:
            raise error
        return ToolMessage(str(error), name=self.guard.tool.name, tool_call_id=self.call_id, status="error")

    def pause(self, wait: SagaSuspended) -> None:
        hidden = self.guard.shape.hidden
        given = self.given if isinstance(self.given, dict) else {"tool_input": self.given}
        _flow.pause(wait, self.guard.tool.name, {n: v for n, v in given.items() if n not in hidden}, self.call_id)


_entry: ContextVar[_Entry | None] = ContextVar("agent_saga_langgraph_entry", default=None)


@contextmanager
def _entered(guard: _Guard, given: Any, kwargs: dict[str, Any]) -> Iterator[_Entry]:
    saga = current_saga()
    if saga is not None:
        kwargs["metadata"] = {**(kwargs.get("metadata") or {}), "saga_id": saga.id}
    entry = _Entry(guard, given, kwargs.get("tool_call_id"), kwargs.get("config"))
    token = _entry.set(entry)
    try:
        yield entry
    finally:
        _entry.reset(token)


def _entering(guard: _Guard, run: Any) -> Any:
    @functools.wraps(run)
    def enter(tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        with _entered(guard, tool_input, kwargs) as entry:
            while True:
                try:
                    return run(tool_input, *args, **kwargs)
                except SagaSuspended as wait:
                    entry.pause(wait)
                except _REFUSALS as error:
                    return entry.refusal(error)

    return enter


def _aentering(guard: _Guard, arun: Any) -> Any:
    @functools.wraps(arun)
    async def enter(tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        with _entered(guard, tool_input, kwargs) as entry:
            while True:
                try:
                    return await arun(tool_input, *args, **kwargs)
                except SagaSuspended as wait:
                    entry.pause(wait)
                except _REFUSALS as error:
                    return entry.refusal(error)

    return enter


# -- within: the step ---------------------------------------------------------------------------------------------


def _stepping(guard: _Guard, run: Any) -> Any:
    def step(*args: Any, **kwargs: Any) -> Any:
        call = _call(guard, args, kwargs)

        def body(effective: dict[str, Any]) -> Any:
            given, named = call.arguments(effective)
            try:
                return run(*given, **named)
            except ParentCommand as error:
                return call.left(error)

        return call.answer(spi.guard(call.name, call.own, body, **call.facts))

    return step


def _astepping(guard: _Guard, arun: Any) -> Any:
    async def step(*args: Any, **kwargs: Any) -> Any:
        call = _call(guard, args, kwargs)

        async def body(effective: dict[str, Any]) -> Any:
            given, named = call.arguments(effective)
            try:
                return await arun(*given, **named)
            except ParentCommand as error:
                return call.left(error)

        return call.answer(await spi.aguard(call.name, call.own, body, **call.facts))

    return step


@dataclass(slots=True, kw_only=True)
class _Call:
    """One call of a body.

    Attributes:
        own: its arguments by name, without what the framework injects.
        facts: what `spi.guard` is told about it.
        ran: the body ran; else the result is a replay.
        parent_command: how the body left for the parent graph, which is the way in which it succeeded.
    """

    name: str
    key_param: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    positional: tuple[str, ...]
    own: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    ran: bool = False
    parent_command: ParentCommand | None = None

    def arguments(self, effective: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return what the body takes: the effective arguments, and what the framework injected."""
        self.ran = True
        given = [effective.get(name, value) for name, value in zip(self.positional, self.args, strict=True)]
        named = self.kwargs | {name: value for name, value in effective.items() if name not in self.positional}
        if self.key_param is not None and named.get(self.key_param) is None:
            named.pop(self.key_param, None)  # Outside of a saga the tool's own default holds.
        return given, named

    def left(self, error: ParentCommand) -> Any:
        self.parent_command = error
        return error.args[0]

    def answer(self, result: Any) -> Any:
        """Return a result to the framework: as the body gave it, or rebuilt from the log for this call."""
        if self.parent_command is not None:
            raise self.parent_command
        return result if self.ran else _results.for_call(result, self.facts["call_id"])


def _call(guard: _Guard, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    entry = _entry.get()
    if entry is None or entry.guard is not guard:  # The body is called past `run`, or by another tool's body.
        entry = _Entry(guard, None, None, None)
    hidden = guard.shape.hidden
    own = {n: v for n, v in kwargs.items() if n not in hidden and (v is None or v is not entry.config)}
    positional = guard.shape.positional[: len(args)]
    if len(positional) < len(args):
        positional += tuple(f"argument_{number}" for number in range(len(positional), len(args)))
    scope, attempt = _flow.whereabouts()
    return _Call(
        name=guard.tool.name,
        key_param=guard.key_param,
        args=args,
        kwargs=kwargs,
        positional=positional,
        own=dict(zip(positional, args, strict=True)) | own,
        facts={
            "adapter": NAME,
            "call_id": entry.call_id,
            "scope": scope,
            "attempt": attempt,
            "is_error": _results.is_error,
            "is_pause": _flow.is_pause,
            "plain_replay": True,
            "kit": guard.kit,
        },
    )
