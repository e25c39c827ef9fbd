"""Functions of MCP plugins: the plugin drops the server's word that a result is an error, so it is heard before."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_OURS: Final = "__agent_saga_listens__"
errors: Final[ContextVar[list[Any] | None]] = ContextVar("agent_saga_semantic_kernel_mcp", default=None)
"""Where the error results of the call in this context go."""


def listen(method: Callable[..., Any]) -> None:
    """Listen to the session that a function's method calls, if it is that of an MCP plugin; once for each session."""
    inner = method.func if isinstance(method, functools.partial) else method
    if not getattr(inner, "__module__", "").startswith("semantic_kernel.connectors.mcp"):
        return
    session = getattr(getattr(inner, "__self__", None), "session", None)
    if session is None or hasattr(session.call_tool, _OURS):
        return
    call = session.call_tool

    @functools.wraps(call)
    async def call_tool(*args: Any, **kwargs: Any) -> Any:
        result = await call(*args, **kwargs)
        heard = errors.get()
        if heard is not None and result.isError:
            heard.append(result)
        return result

    setattr(call_tool, _OURS, True)
    session.call_tool = call_tool
