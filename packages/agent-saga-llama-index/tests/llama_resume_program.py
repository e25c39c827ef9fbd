"""Run as `python llama_resume_program.py FOLDER ask|die|go-on`.

An agent writes `a`, then asks a person about `b`. The world is a file with a line for each effect.
"""

import asyncio
import json
import os
import signal
import sys
import warnings
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_scripted import Scripted, turns

from agent_saga import AgentKit, Allow, Ask, Landed, NotLanded, compensator
from agent_saga_llama_index import protect

warnings.simplefilter("ignore", DeprecationWarning)  # The framework reads deprecated attributes of its agents.
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


@compensator("llama_resume.take_back", idempotent=True)
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
    calls = [("write", {"line": "a"}), ("write", {"line": "b"})]
    model = Scripted(turns(*calls), first=0 if mode == "ask" else 2)
    agent = protect(FunctionAgent(llm=model, tools=[write]), kit)
    stored, told = folder / "context", None
    async with kit.transaction("writing", key="k", on_crash="resume") as saga:
        if mode == "ask":
            handler = agent.run(user_msg="go")
        else:
            handler = agent.run(ctx=Context.from_dict(agent, json.loads(stored.read_text())))
            handler.ctx.send_event(HumanResponseEvent(response="yes"))
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult):
                told = event.tool_output.raw_output
            if isinstance(event, InputRequiredEvent):
                stored.write_text(json.dumps(handler.ctx.to_dict()))
                await handler.cancel_run()
                break
        result = None if mode == "ask" else str(await handler)
    print(saga.report.outcome, told, result)


asyncio.run(main())
