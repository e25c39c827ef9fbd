"""A guarded tool: one whose innermost body runs as a step. Its type, name, description and schema stay."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import pydantic
from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic.json_schema import SkipJsonSchema

from agent_saga import spi
from agent_saga_crewai import _spot
from agent_saga_crewai._info import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agent_saga import AgentKit

_GUARD: Final = "_agent_saga_guard"
_PASSED: Final = ("crewai.tools.agent_tools.", "crewai.skills.")
_lock: Final = threading.Lock()


def tool_name(tool: Any) -> str:
    """Return the name by which a tool is declared: the one that the model sees."""
    return str(sanitize_tool_name(tool.name))


def is_pass_through(tool: Any) -> bool:
    """Tell CrewAI's own tools that have no effect themselves: delegation, questions to coworkers, files, recall.

    An agent used as a tool is no step; the calls of its own tools are.
    """
    kind = type(tool)
    return kind.__module__.startswith(_PASSED) or (kind.__module__, kind.__name__) == (
        "crewai.tools.memory_tools",
        "RecallMemoryTool",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guard:
    """What the guarded bodies of one tool share.

    Attributes:
        tool: the guarded one; a copy of it that the framework or the user made is not it.
        bodies: what ran before, by attribute.
        key_param: the parameter that receives the key.
    """

    tool: Any
    name: str
    kit: AgentKit | None
    bodies: Mapping[str, Callable[..., Any]]
    key_param: str | None


def guarded(tool: BaseTool, kit: AgentKit | None) -> BaseTool:
    """Return a guarded copy of a tool; one that is guarded for this kit is returned as it is.

    Raises:
        DeclarationError: its declaration names parameters that it does not have.
    """
    guard = _guard_of(tool)
    if guard is not None and (kit is None or guard.kit is kit):
        return tool
    copy = tool.model_copy()
    guard_in_place(copy, kit)
    return copy


def guard_in_place(tool: Any, kit: AgentKit | None) -> None:
    """Guard a tool that the framework holds already; see `guarded`."""
    with _lock:
        if _guard_of(tool) is not None:
            return
        bodies = _original_bodies(tool)
        schema = tool.args_schema
        names = [*(schema.model_fields if schema is not None else ()), *_parameters(bodies)]
        key_param = spi.adopt_parameters(tool_name(tool), names, kit)
        guard = _Guard(tool=tool, name=tool_name(tool), kit=kit, bodies=bodies, key_param=key_param)
        if schema is not None and key_param is not None and key_param in schema.model_fields:
            tool.args_schema = _without_key(schema, key_param)
        for attribute, body in bodies.items():
            # The instance's own attributes come before those of its class, so that the type stays what it was.
            object.__setattr__(tool, attribute, _stepping(guard, body))
        object.__setattr__(tool, _GUARD, guard)


def _guard_of(tool: Any) -> _Guard | None:
    guard = vars(tool).get(_GUARD)
    return guard if guard is not None and guard.tool is tool else None


def _original_bodies(tool: Any) -> dict[str, Callable[..., Any]]:
    """Return the innermost callables of a tool, by the attribute through which all ways of running it lead."""
    copied: _Guard | None = vars(tool).get(_GUARD)
    if copied is not None:  # A copy of a guarded tool.
        for attribute in copied.bodies:
            if attribute != "func":
                vars(tool).pop(attribute)
    if "func" in type(tool).model_fields:
        return {"func": tool.func if copied is None else copied.bodies["func"]}
    own = type(tool)._arun is not BaseTool._arun  # noqa: SLF001 - without one it has no async body.
    return {"_run": tool._run} | ({"_arun": tool._arun} if own else {})  # noqa: SLF001 - the innermost bodies.


def _parameters(bodies: Mapping[str, Callable[..., Any]]) -> Iterator[str]:
    for body in bodies.values():
        parameters = inspect.signature(body).parameters.values()
        yield from (p.name for p in parameters if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL})


def _without_key(schema: type[pydantic.BaseModel], key_param: str) -> type[pydantic.BaseModel]:
    """Return a schema in which no model sees the parameter that receives the key. Other callers may still give it."""
    kind: Any = schema.model_fields[key_param].annotation
    shown_to_nobody: Any = SkipJsonSchema()  # type: ignore[type-arg]  # pydantic shows it to type checkers as an alias
    field: Any = {key_param: (Annotated[kind | None, shown_to_nobody], None)}
    about: Any = {"__module__": schema.__module__, "__doc__": schema.__doc__}
    return pydantic.create_model(schema.__name__, __base__=schema, **about, **field)


def _stepping(guard: _Guard, body: Callable[..., Any]) -> Callable[..., Any]:
    """Return a body of the same nature that runs as a step."""
    signature = inspect.signature(body)
    positional = tuple(p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY)

    def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], Callable[..., Any]]:
        names = positional[: len(args)]
        own = dict(zip(names, args, strict=True)) | kwargs

        def run(effective: dict[str, Any]) -> Any:
            given = dict(effective)
            if guard.key_param is not None and given.get(guard.key_param) is None:
                given.pop(guard.key_param, None)  # Outside of a saga the tool's own default holds.
            return body(*(given.pop(name) for name in names), **given)

        return {name: value for name, value in own.items() if value is not None or name != guard.key_param}, run

    def step(*args: Any, **kwargs: Any) -> Any:
        own, run = call_of(args, kwargs)
        with _spot.enter(guard.tool) as place:
            return spi.guard(guard.name, own, lambda given: _finished(run(given)), **_facts(guard, place))

    async def astep(*args: Any, **kwargs: Any) -> Any:
        own, run = call_of(args, kwargs)
        with _spot.enter(guard.tool) as place:
            return await spi.aguard(guard.name, own, run, **_facts(guard, place))

    wrapper = functools.wraps(body)(astep if inspect.iscoroutinefunction(body) else step)
    shown = [p for p in signature.parameters.values() if p.name != guard.key_param]
    wrapper.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return wrapper


def _finished(result: Any) -> Any:
    """Run what a sync body left to be awaited to its end, as CrewAI does itself."""
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _facts(guard: _Guard, place: _spot.Place) -> dict[str, Any]:
    return {
        "adapter": NAME,
        "call_id": place.call_id,
        "scope": place.scope,
        "attempt": place.attempt,
        "is_error": _is_failure,
        "plain_replay": True,
        "kit": guard.kit,
    }


def _is_failure(result: Any) -> bool:
    """Tell a result by which a tool says that it failed; CrewAI does not guess from texts either."""
    return isinstance(result, ToolFailure)
