"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "langgraph"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="langgraph>=1.2",
    capabilities=(
        "sync",
        "async",
        "parallel",
        "streaming",
        "threads",
        "sub-agents",
        "Send and sub-graphs",
        "tools added later",
        "swallowed errors",
        "RetryPolicy",
        "interrupt and resume in another process",
        "approvals through interrupt()",
    ),
    gaps=(
        "tools that the model's provider runs (given as dicts) are not seen",
        "middleware that acts by itself, without running a tool, is not seen",
        "an agent used as a tool is declared read_only; the tools of that agent are protected on their own",
        "a tool that acts and then calls interrupt() acts again on resume, unless it has a probe or takes the key",
        "static breakpoints (interrupt_before, interrupt_after) do not suspend the saga",
        "a graph resumed in another process must have its messages in its output, else pass on_divergence='keep'",
        "own threads and streams consumed after the scope are outside of the saga",
    ),
)
