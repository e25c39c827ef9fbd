"""Run as `python resume_program.py FOLDER agent|graph ask|answer|die|go-on [DURABILITY]`.

An agent places `plain:a`; then, in one turn, `command:b`, which answers with a Command, and `plain:c`, which asks a
person or dies after its effect. The world is a file with a line for each effect.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt
from scripted import Runner, Scripted, ask, thread

from agent_saga import AgentKit, Landed, NotLanded, compensator

folder, form, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
durability = sys.argv[4] if len(sys.argv) > 4 else "sync"
kit = AgentKit(folder / "agent-saga.db")


def happened(line: str) -> bool:
    file = folder / "world"
    return file.exists() and line in file.read_text().split()


def write(line: str) -> None:
    with (folder / "world").open("a") as file:
        file.write(line + "\n")


@compensator("resume.take_back", idempotent=True)
def take_back(line: str) -> None:
    write(f"-{line}")


def find(key, kwargs):
    line = f"plain:{kwargs['thing']}"
    return Landed({"line": line}) if happened(line) else NotLanded()


@tool
def plain(thing: str) -> dict:
    """Write a line; thing c asks first, or dies afterwards."""
    if thing == "c" and mode in {"ask", "answer"} and interrupt("sure?") != "yes":
        raise ValueError("no")
    write(f"plain:{thing}")
    if thing == "c" and mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"line": f"plain:{thing}"}


@tool
def command(thing: str, tool_call_id: Annotated[str, InjectedToolCallId]):
    """Write a line, and answer with a Command."""
    write(f"command:{thing}")
    message = ToolMessage(f"wrote {thing}", tool_call_id=tool_call_id, artifact={"line": f"command:{thing}"})
    return Command(update={"messages": [message]})


kit.declare("plain", effect="compensable", compensate=take_back.bind(line="result.line"), probe=find)
kit.declare("command", effect="compensable", compensate=take_back.bind(line="result.update.messages.0.artifact.line"))
# The calls of one turn run one after the other, so that the death comes after the sibling's end.
model = Scripted(
    turns=[
        [("plain", {"thing": "a"}, "c1")],
        [("command", {"thing": "b"}, "c2"), ("plain", {"thing": "c"}, "c3")],
    ]
)
given = {"ask": ask(), "die": ask(), "answer": Command(resume="yes"), "go-on": None}[mode]
config = {**thread(), "max_concurrency": 1}
with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
    runner = Runner(kit)
    make = runner.agent if form == "agent" else runner.graph
    graph = make([plain, command], model=model, checkpointer=saver)
    if mode == "go-on" and not graph.get_state(config).values:
        given = ask()  # Nothing was saved before the death: the run begins anew.
    with kit.transaction("write", key="w1", on_crash="resume") as saga:
        graph.invoke(given, config, durability=durability)
    kept = saga.report.kept
    print(saga.report.outcome, len(kept) if saga.report.outcome == "committed" else "")
