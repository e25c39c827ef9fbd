"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "autogen"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="autogen-agentchat>=0.7.5",
    capabilities=(
        "run and run_stream",
        "sync and async functions, other tools, streaming tools",
        "workbenches, MCP servers among them",
        "teams and teams within teams",
        "agents and teams as tools",
        "handoffs",
        "parallel calls",
        "cancellation tokens, without AutoGen's deadlocks",
        "tools added later",
        "swallowed errors",
        "runtimes that were started before the saga",
        "approvals that end the run, which goes on in another process from save_state",
    ),
    gaps=(
        "AutoGen tells every error to the model: none leaves the run; the saga does not commit",
        "tools or workbenches that are protected without their agent cannot end its run: it goes on, told to wait",
        "a run that is cancelled through its token returns; what was done before is kept, unless you raise",
        "an agent or team used as a tool is no step, and AutoGen does not save its state with the agent's",
        "GraphFlow and MagenticOne stop for an approval, but do not go on with the agent that asked",
        "a team that ran before it was protected does not stop for an approval; the saga is suspended all the same",
        "a code executor runs what a model wrote past every hook: refused, unless it is said to change nothing",
        "core's ToolAgent: protect its tools; in a runtime started before the saga their calls are outside of it",
        "runtimes on other machines (gRPC) lose the saga",
    ),
)
