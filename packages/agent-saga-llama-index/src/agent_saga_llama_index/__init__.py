"""agent-saga for LlamaIndex: the tools of an agent or workflow become steps of the saga around its run.

```text
protect(thing, kit=None)    an agent, an AgentWorkflow, a workflow that holds tools or agents; or a list of tools
INFO                        what is covered
```
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_saga_llama_index._info import INFO as INFO

if TYPE_CHECKING:
    from agent_saga_llama_index._protect import protect as protect

__all__ = ["INFO", "protect"]


def __getattr__(name: str) -> Any:  # The framework takes seconds to import, and `INFO` is read where no agent runs.
    if name != "protect":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f"{__name__}._protect").protect
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"llama_index", "llama_index_instrumentation", "workflows"}:
            raise
        raise ImportError(
            "protect needs llama-index-core: pip install 'agent-saga-llama-index[framework]'", name=error.name
        ) from error
