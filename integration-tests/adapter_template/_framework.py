"""How the tiny framework says what went wrong."""

from __future__ import annotations

from typing import Any

from tiny_framework import ErrorResult, Pause, ToolFailed


def is_error_result(result: Any) -> bool:
    return isinstance(result, ErrorResult)


def is_pause(error: BaseException) -> bool:
    return isinstance(error, Pause)


def tool_error(reason: str) -> Exception:
    return ToolFailed(reason)


def pause(approval: str) -> BaseException | None:
    return Pause({"approval": approval})
