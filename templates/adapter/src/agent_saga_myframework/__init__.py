"""agent-saga for MyFramework: the tools of an agent become steps of the saga around its run.

```text
protect(thing, kit=None)    FILL IN: what it takes
INFO                        what is covered
```
"""

from __future__ import annotations

from typing import Any

from agent_saga_myframework._info import INFO as INFO

__all__ = ["INFO", "protect"]


def __getattr__(name: str) -> Any:  # A framework takes seconds to import, and `INFO` is read where no agent runs.
    if name != "protect":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agent_saga_myframework._hook import protect

    return protect
