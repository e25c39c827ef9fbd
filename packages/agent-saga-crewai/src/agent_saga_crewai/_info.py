"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "crewai"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="crewai>=1.15.29",
    capabilities=(
        "crews, agents and flows",
        "native function calling and ReAct",
        "kickoff, kickoff_async, akickoff, kickoff_for_each",
        "parallel calls",
        "streaming",
        "delegation",
        "tools added later",
        "swallowed errors and ToolFailure",
        "retries of tasks and agents, guardrails",
        "cache",
        "human feedback of flows",
    ),
    gaps=(
        "tools that the model's provider runs are not seen",
        "a crew has no pause of its own: SagaSuspended leaves kickoff(), and the run begins again after the approval",
        "a tool's exception does not leave kickoff() as itself, under ToolFailurePolicy.RAISE neither",
        "the parameter that receives the key is hidden in tools that are there when protect() is called",
        "the model's call id is recorded for native calls of crews; else that of CrewAI's event, or none (ReAct)",
        "a crew restored from a checkpoint behind finished tasks with ReAct calls needs on_divergence='keep'",
        "own threads and streams consumed after the scope are outside of the saga",
    ),
)
