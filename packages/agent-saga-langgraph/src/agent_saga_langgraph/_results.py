"""What tools return: error-shaped results, and results that a replay gives to another call."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import ToolMessage
from langgraph.types import Command

if TYPE_CHECKING:
    from collections.abc import Iterator


_PLAIN: Final = frozenset({str, dict, int, float, bool, type(None)})


def is_error(result: Any) -> bool:
    """Tell a result that says that the tool failed: a `ToolMessage` with status `error`, alone or in a `Command`."""
    if type(result) in _PLAIN:
        return False
    return any(message.status == "error" for message in _messages(result))


def _messages(result: Any) -> Iterator[ToolMessage]:
    if isinstance(result, ToolMessage):
        yield result
    elif isinstance(result, Command) and isinstance(result.update, dict):
        yield from (item for value in result.update.values() for item in _messages_in(value))
    elif isinstance(result, list):
        yield from (item for value in result for item in _messages(value))


def _messages_in(value: Any) -> Iterator[ToolMessage]:
    items = value if isinstance(value, list) else [value]
    yield from (item for item in items if isinstance(item, ToolMessage))


def for_call(result: Any, call_id: str | None) -> Any:
    """Return a recorded result as the answer to this call: rebuilt from the log's plain data, and under its id."""
    if isinstance(result, list):
        return [for_call(item, call_id) for item in result]
    if _is_message(result):
        result = ToolMessage(**result)
    if isinstance(result, dict) and result.keys() == _COMMAND_FIELDS:
        result = Command(**result)
    if isinstance(result, ToolMessage):
        return result.model_copy(update={"tool_call_id": call_id or result.tool_call_id})
    if isinstance(result, Command) and isinstance(result.update, dict):
        update = {name: _for_call_in(value, call_id) for name, value in result.update.items()}
        return dataclasses.replace(result, update=update)
    return result


def _for_call_in(value: Any, call_id: str | None) -> Any:
    if isinstance(value, list):
        return [
            for_call(item, call_id) if _is_message(item) or isinstance(item, ToolMessage) else item for item in value
        ]
    return value


_COMMAND_FIELDS: Final = {field.name for field in dataclasses.fields(Command)}


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "tool" and {"tool_call_id", "content"} <= value.keys()
