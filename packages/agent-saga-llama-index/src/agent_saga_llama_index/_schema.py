"""What a model is told about a tool, without the parameter that receives the idempotency key."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from llama_index.core.tools import FunctionTool, ToolMetadata
from pydantic import create_model

if TYPE_CHECKING:
    from pydantic import BaseModel


def without_key(made: FunctionTool, tool: FunctionTool, key_param: str) -> ToolMetadata:
    """Return the metadata of a guarded tool; the framework's own description shows the parameters too."""
    metadata = schema_without(tool.metadata, key_param)
    if metadata.description == _described(tool):
        return dataclasses.replace(metadata, description=_described(made))
    return metadata


def schema_without(metadata: ToolMetadata, key_param: str) -> ToolMetadata:
    """Return metadata whose schema lacks a parameter."""
    schema = metadata.fn_schema
    if schema is None or key_param not in schema.model_fields:
        return metadata
    return dataclasses.replace(metadata, fn_schema=_less(schema, key_param))


def _described(tool: FunctionTool) -> str:
    """Return the description that the framework would make of a tool's function."""
    name, given = tool.metadata.get_name(), tool.partial_params
    return FunctionTool.from_defaults(tool.real_fn, name=name, partial_params=given).metadata.description


def _less(schema: type[BaseModel], key_param: str) -> type[BaseModel]:
    left = {name: (field.annotation, field) for name, field in schema.model_fields.items() if name != key_param}
    return create_model(schema.__name__, __config__=schema.model_config, __doc__=schema.__doc__, **left)  # type: ignore[call-overload, no-any-return]
