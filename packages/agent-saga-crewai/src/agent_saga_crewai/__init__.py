"""agent-saga for CrewAI: tools of crews, agents and flows become steps of the saga around the run.

```text
protect(thing, kit=None)    a crew, an agent, a flow, a tool or a list of tools
INFO                        what is covered
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga_crewai._info import INFO as INFO

if TYPE_CHECKING:
    from agent_saga_crewai._protect import protect as protect

__all__ = ["INFO", "protect"]


def __getattr__(name: str) -> Any:
    """Import the rest on first use: CrewAI takes seconds to import, and `INFO` is read by programs that run no crew."""
    if name != "protect":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from agent_saga_crewai._protect import protect
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "crewai":
            raise
        message = f"{name} needs {error.name}: pip install 'agent-saga-crewai[framework]'"
        raise ImportError(message, name=error.name) from error
    return protect
