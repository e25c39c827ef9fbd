"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "llama-index"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="llama-index-core>=0.14.25",
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
    gaps=(
        "agents tell the model of every exception of a tool; in workflows of one's own they leave the run",
        "a run that begins before its saga is outside of it: requires_saga=True, or saga.attach()",
        "a run that waits in a workflow's own step does not suspend the saga: raise SagaSuspended in the scope",
        "an agent that is run by a tool, and has a question, waits until its events are passed on",
        "a tool's callback that makes an error of a result comes after the step, which has succeeded",
        "calls in a workflow's own steps have no id: stored in flight and resumed in the same saga, they repeat",
        "tools in a workflow's resources, or deeper than a list or dict in its attributes, are not found",
        "CodeActAgent: functions of the code must be those of protected tools; other processes are outside",
        "a memory keeps what a rolled back saga did: tell the model before you go on with it",
        "an async tool that ignores its cancellation has no late outcome",
        "a plain answer to a restored context may be lost while all workers of the step are busy: say `approval=`",
        "predict_and_call has no call ids and cannot wait: SagaSuspended leaves it",
    ),
)
