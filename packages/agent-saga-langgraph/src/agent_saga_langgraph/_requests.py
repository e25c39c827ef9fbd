"""Requests of tool calls whose tool is guarded, whoever puts it there."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from langgraph.prebuilt.tool_node import ToolCallRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.tools import BaseTool


def guarding_requests(guard: Callable[[BaseTool], BaseTool]) -> Callable[[ToolCallRequest], ToolCallRequest]:
    """Return a function that turns a request into one that guards its tool.

    `request.override(tool=...)` makes another request of the same class, so a tool that inner middleware adds, or
    takes instead of the one that was asked for, is guarded as well.
    """

    @dataclass  # Again: only then does the generated __init__ call __post_init__.
    class GuardingRequest(ToolCallRequest):
        def __post_init__(self) -> None:
            if self.tool is not None:
                object.__setattr__(self, "tool", guard(self.tool))

    def convert(request: ToolCallRequest) -> ToolCallRequest:
        return GuardingRequest(**{field.name: getattr(request, field.name) for field in fields(request)})

    return convert
