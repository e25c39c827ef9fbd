"""The parameters of a LangChain tool: what the model gives, what the framework injects, what receives the key."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import pydantic
from langchain_core.tools import BaseTool, InjectedToolArg

from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FRAMEWORK: Final = frozenset({"config", "run_manager", "callbacks"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which of the arguments that reach a tool's body are the call's own.

    Attributes:
        parameters: all that the tool takes.
        hidden: what the framework injects.
        positional: names for arguments that come without one (single-input tools).
    """

    parameters: tuple[str, ...]
    hidden: frozenset[str]
    positional: tuple[str, ...]


def shape_of(tool: BaseTool) -> Shape:
    """Read a tool's schema and signature."""
    shown = list(_fields(tool.tool_call_schema))
    taken = list(_fields(_input_schema(tool)))
    own = [name for name in _signature(tool) if name not in _FRAMEWORK]
    injected = {*_FRAMEWORK, *taken, *getattr(tool, "_injected_args_keys", ())} - set(shown)
    return Shape(
        parameters=tuple(dict.fromkeys([*taken, *own])),
        hidden=frozenset(injected),
        positional=tuple(shown if tool.args_schema is not None else own) or ("tool_input",),
    )


def _input_schema(tool: BaseTool) -> Any:
    return tool.args_schema if isinstance(tool.args_schema, dict) else tool.get_input_schema()


def _fields(schema: Any) -> Mapping[str, Any]:
    """Return the fields of a JSON schema or of a model of either pydantic."""
    if isinstance(schema, dict):
        properties: Mapping[str, Any] = schema.get("properties", {})
        return properties
    fields: Mapping[str, Any] = getattr(schema, "model_fields", None) or getattr(schema, "__fields__", {})
    return fields


def _signature(tool: BaseTool) -> Iterator[str]:
    body = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool._run  # noqa: SLF001
    try:
        parameters = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        return
    yield from (p.name for p in parameters if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL})


def without_key(tool: BaseTool, key_param: str) -> dict[str, Any]:
    """Return the fields to change so that no model sees the parameter that receives the key.

    Callers that give it themselves still may.
    """
    schema = _input_schema(tool)
    if key_param not in _fields(schema):
        return {}
    if isinstance(schema, dict):
        properties = {name: value for name, value in schema["properties"].items() if name != key_param}
        required = [name for name in schema.get("required", ()) if name != key_param]
        return {"args_schema": {**schema, "properties": properties, "required": required}}
    if not issubclass(schema, pydantic.BaseModel):
        raise UsageError(
            f"tool {tool.name!r}: its schema is a pydantic v1 model, from which {key_param!r} cannot be hidden; use a "
            "pydantic v2 model"
        )
    field: Any = {key_param: (Annotated[schema.model_fields[key_param].annotation | None, InjectedToolArg], None)}
    about = {"__module__": schema.__module__, "__doc__": schema.__doc__}
    return {"args_schema": pydantic.create_model(schema.__name__, __base__=schema, **about, **field)}
