"""agent-saga for Semantic Kernel: the functions of a kernel become steps of the saga around its run.

```text
protect(thing, kit=None)    a kernel; or an agent, group chat or orchestration, with the kernels of its agents
resume(thing, history)      goes on with a chat history that was stored: the calls in it that wait for a person are made
INFO                        what is covered
```
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from agent_saga_semantic_kernel._info import INFO as INFO

if TYPE_CHECKING:
    from agent_saga_semantic_kernel._protect import protect as protect
    from agent_saga_semantic_kernel._resume import resume as resume

__all__ = ["INFO", "protect", "resume"]

_HOMES: Final = {"protect": "_protect", "resume": "_resume"}


def __getattr__(name: str) -> Any:  # The framework takes seconds to import, and `INFO` is read where no kernel runs.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "semantic_kernel":
            raise
        raise ImportError(
            f"{name} needs semantic-kernel: pip install 'agent-saga-semantic-kernel[framework]'", name=error.name
        ) from error
