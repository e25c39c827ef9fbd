"""agent-saga for AutoGen: the tools of agents and teams become steps of the saga around their run.

```text
protect(thing, kit=None)    an agent, a team, a workbench, a tool, or a list of tools
INFO                        what is covered
```
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_saga_autogen._info import INFO as INFO

if TYPE_CHECKING:
    from agent_saga_autogen._protect import protect as protect

__all__ = ["INFO", "protect"]


def __getattr__(name: str) -> Any:  # The framework takes most of a second to import; `INFO` is read where none runs.
    if name != "protect":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f"{__name__}._protect").protect
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("autogen_"):
            raise
        raise ImportError(
            "protect needs autogen-agentchat: pip install 'agent-saga-autogen[framework]'", name=error.name
        ) from error
