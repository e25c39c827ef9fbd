"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "openai-agents"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="openai-agents>=0.20",
    capabilities=(
        "run, run_sync and run_streamed",
        "sync and async tools",
        "parallel calls",
        "handoffs",
        "agents as tools",
        "MCP servers",
        "guardrails",
        "tools added later",
        "swallowed errors",
        "approvals through interruptions",
        "RunState resumed in another process",
    ),
    gaps=(
        "hosted tools (web and file search, code interpreter, image generation) run at OpenAI: no step, no rollback",
        "hosted MCP, computer, shell, apply_patch and custom tools cannot be guarded: only as read_only do they run",
        "a run that pauses for one of those does not suspend the saga: raise SagaSuspended in the scope",
        "an agent used as a tool is no step: when its own run fails, only its tools' failures count",
        "tools that are protected in a list, and not with their agent, cannot pause the run: SagaSuspended leaves it",
        "where a policy may ask, a call whose arguments are no JSON object pauses the run too (the framework's rule)",
        "approve(always_approve=True) answers every later question about that tool in that run",
        "a call that was approved is known by its id: an equal one of that agent in another run is the same",
        "an async tool that ignores its cancellation, and a sync one with a typed output, have no late outcome",
        "a session keeps what a rolled back saga did: tell the model before you go on with it",
        "own threads, and runs that begin before their scope or go on after it, are outside of the saga",
        "realtime and voice agents are not protected",
    ),
)
