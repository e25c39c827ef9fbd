"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "semantic-kernel"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="semantic-kernel>=1.45",
    capabilities=(
        "native functions, sync and async",
        "functions added later",
        "kernel.invoke and invoke_stream",
        "automatic function calling, streamed or not",
        "parallel calls",
        "agents, group chats and orchestrations",
        "agents as plugins",
        "OpenAPI and MCP plugins",
        "swallowed errors",
        "filters that retry",
        "approvals through terminated loops",
        "chat histories resumed in another process",
    ),
    gaps=(
        "sync functions run on the event loop itself: nothing can be cancelled, or time out, while one runs",
        "a kernel that is given to one call (`agent.invoke(kernel=...)`) is protected by itself, not with the agent",
        "prompt functions, agents as plugins and handoffs are no steps: the functions that they call are",
        "tools that a service runs at its own place (code interpreter, file search) are not seen",
        "a filter of yours that terminates a loop does not suspend the saga: raise SagaSuspended in the scope",
        "an agent as a plugin that pauses begins again when it is resumed; what it did is replayed if it is repeated",
        "a runtime that was started before its saga is re-attached by protected orchestrations only",
        "a result that cannot be deep-copied ends the run, by a rule of the framework; the saga rolls back",
        "a streamed function has no replay",
        "own threads, and runs that begin before their scope or go on after it, are outside of the saga",
        "the process framework and realtime clients are not covered",
    ),
)
