"""agent-saga for LangGraph and LangChain: tools of an agent or graph become steps of the saga around the run.

```text
SagaMiddleware(kit=None)    for create_agent: every tool of the agent, also those that other middleware adds
protect(thing, kit=None)    a tool, a list of tools, or a ToolNode of a hand-made graph
INFO                        what is covered
```
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from agent_saga_langgraph._info import INFO as INFO

if TYPE_CHECKING:
    from agent_saga_langgraph._middleware import SagaMiddleware as SagaMiddleware
    from agent_saga_langgraph._protect import protect as protect

__all__ = ["INFO", "SagaMiddleware", "protect"]

# The frameworks take seconds to import, and `INFO` is read by programs that run no agent.
_HOMES: Final = {"SagaMiddleware": "_middleware", "protect": "_protect"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"langchain", "langgraph"}:
            raise
        raise ImportError(
            f"{name} needs {error.name}: pip install 'agent-saga-langgraph[framework]'", name=error.name
        ) from error
