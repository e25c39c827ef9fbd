"""Run as `python agents_resume_program.py FOLDER ask|die|go-on`.

An agent writes `a`, then asks a person about `b`. The world is a file with a line for each effect.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from agents import Agent, Runner, RunState, function_tool
from agents_scripted import Scripted, answers, turns

from agent_saga import AgentKit, Landed, NotLanded, compensator
from agent_saga_openai_agents import protect

folder, mode = Path(sys.argv[1]), sys.argv[2]
kit = AgentKit(folder / "agent-saga.db")


def happened(line: str) -> bool:
    file = folder / "world"
    return file.exists() and line in file.read_text().split()


def put(line: str) -> None:
    with (folder / "world").open("a") as file:
        file.write(line + "\n")


@compensator("agents_resume.take_back", idempotent=True)
def take_back(line: str) -> None:
    put(f"-{line}")


def find(key, kwargs):
    return Landed({"line": kwargs["line"]}) if happened(kwargs["line"]) else NotLanded()


@function_tool
def write(line: str) -> dict:
    """Write a line."""
    put(line)
    if mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"line": line}


async def by_rule(context, arguments, call_id):
    return arguments["line"] == "b"


async def main():
    write.needs_approval = by_rule
    kit.declare("write", effect="compensable", compensate=take_back.bind(line="result.line"), probe=find)
    calls = [("write", {"line": "a"}), ("write", {"line": "b"})]
    model = Scripted(turns(*calls), first=0 if mode == "ask" else 2)
    agent = protect(Agent(name="writer", model=model, tools=[write]), kit)
    given = "go"
    if mode != "ask":
        given = await RunState.from_json(agent, json.loads((folder / "state").read_text()))
        given.approve(given.get_interruptions()[0])
    async with kit.transaction("writing", key="k", on_crash="resume") as saga:
        result = await Runner.run(agent, given)
    if mode == "ask":
        (folder / "state").write_text(json.dumps(result.to_state().to_json()))
    print(saga.report.outcome, answers(result)[-1], result.final_output)


asyncio.run(main())
