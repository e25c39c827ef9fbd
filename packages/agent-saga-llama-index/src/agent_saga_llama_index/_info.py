"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "llama-index"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="llama-index-core>=0.14.22",
    capabilities=(
        "FunctionAgent, ReActAgent, CodeActAgent and AgentWorkflow with handoffs",
        "workflows that hold tools or agents",
        "predict_and_call and apredict_and_call",
        "sync and async tools, query engines, retrievers, other tools",
        "parallel calls",
        "streamed events",
        "tools added later, tool retrievers",
        "swallowed errors",
        "tools that wait for an event",
        "step retries",
        "approvals through InputRequiredEvent and HumanResponseEvent",
        "a Context resumed in another process",
    ),
)
