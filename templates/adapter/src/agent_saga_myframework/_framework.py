"""How MyFramework says what went wrong: fill this in."""

from __future__ import annotations

from typing import Any


def is_error_result(result: Any) -> bool:  # noqa: ARG001 - to be filled in.
    """Tell a result with which a tool of this framework states an error without raising."""
    return False


def is_pause(error: BaseException) -> bool:  # noqa: ARG001 - to be filled in.
    """Tell an exception that steers the framework (a pause, a hand-over), and is no failure."""
    return False


def tool_error(reason: str) -> Exception:
    """Return the exception that the framework tells the model as a tool's error."""
    return RuntimeError(reason)


def pause(approval: str) -> BaseException | None:  # noqa: ARG001 - to be filled in.
    """Return the exception that pauses the framework until a human has answered; None where it cannot pause."""
    return None
