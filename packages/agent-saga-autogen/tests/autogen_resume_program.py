"""Run as `python autogen_resume_program.py FOLDER ask|die|go-on`.

A team's writer writes `a`, then asks a person about `b`. The world is a file with a line for each effect.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_scripted import Scripted, answers, turns

from agent_saga import AgentKit, Allow, Ask, Landed, NotLanded, compensator
from agent_saga_autogen import protect

folder, mode = Path(sys.argv[1]), sys.argv[2]


class AskAboutB:
    def decide(self, call, saga):
        return Ask("b?", suspend=True) if call.kwargs["line"] == "b" else Allow()


kit = AgentKit(folder / "agent-saga.db", policies=[AskAboutB()])


def happened(line: str) -> bool:
    file = folder / "world"
    return file.exists() and line in file.read_text().split()


def put(line: str) -> None:
    with (folder / "world").open("a") as file:
        file.write(line + "\n")


@compensator("autogen_resume.take_back", idempotent=True)
def take_back(line: str) -> None:
    put(f"-{line}")


def find(key, kwargs):
    return Landed({"line": kwargs["line"]}) if happened(kwargs["line"]) else NotLanded()


def write(line: str) -> dict:
    """Write a line."""
    put(line)
    if mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"line": line}


async def main():
    kit.declare("write", effect="compensable", compensate=take_back.bind(line="result.line"), probe=find)
    calls = [("write", {"line": "a"}), ("write", {"line": "b"})] if mode == "ask" else []
    writer = AssistantAgent("writer", model_client=Scripted(turns(*calls)), tools=[write], max_tool_iterations=5)
    team = protect(RoundRobinGroupChat([writer], max_turns=1), kit)
    task = "go"
    if mode != "ask":
        state, approval = json.loads((folder / "state").read_text())
        await team.load_state(state)
        task = TextMessage(content="Yes.", source="ann", metadata={"agent_saga_approve": approval})
    async with kit.transaction("writing", key="k", on_crash="resume") as saga:
        result = await team.run(task=task)
    last = result.messages[-1]
    if mode == "ask":
        (folder / "state").write_text(json.dumps([await team.save_state(), last.metadata["agent_saga_waits"]]))
    print(saga.report.outcome, answers(result)[0], type(last).__name__)


asyncio.run(main())
