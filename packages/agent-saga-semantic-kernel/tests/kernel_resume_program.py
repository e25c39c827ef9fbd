"""Run as `python kernel_resume_program.py FOLDER ask|die|go-on|again`.

An agent writes `a`, then asks a person about `b`. The world is a file with a line for each effect. Mode `again` begins
the whole run again, without the stored history.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from kernel_scripted import agent_of, answers, kernel_of
from semantic_kernel.agents import ChatHistoryAgentThread
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

from agent_saga import AgentKit, Allow, Ask, Landed, NotLanded, compensator
from agent_saga_semantic_kernel import protect, resume

folder, mode = Path(sys.argv[1]), sys.argv[2]


class AskAboutB:
    def decide(self, call, saga):
        return Ask("write b?", suspend=True) if call.kwargs["line"] == "b" else Allow()


kit = AgentKit(folder / "agent-saga.db", policies=[AskAboutB()])


def happened(line: str) -> bool:
    file = folder / "world"
    return file.exists() and line in file.read_text().split()


def put(line: str) -> None:
    with (folder / "world").open("a") as file:
        file.write(line + "\n")


@compensator("kernel_resume.take_back", idempotent=True)
def take_back(line: str) -> None:
    put(f"-{line}")


def find(key, kwargs):
    return Landed({"line": kwargs["line"]}) if happened(kwargs["line"]) else NotLanded()


@kernel_function
def write(line: str) -> dict:
    """Write a line."""
    put(line)
    if mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"line": line}


async def main():
    kit.declare("write", effect="compensable", compensate=take_back.bind(line="result.line"), probe=find)
    calls = [("p-write", {"line": "a"}), ("p-write", {"line": "b"})]
    asks = mode in {"ask", "again"}
    agent = protect(agent_of(kernel_of(write, calls=calls if asks else ["done"], plugin="p")), kit)
    stored = folder / "history.json"
    history = ChatHistory() if asks else ChatHistory.load_chat_history_from_file(str(stored))
    async with kit.transaction("writing", key="k", on_crash="resume") as saga:
        if not asks:
            await resume(agent, history, approved=True)
        thread = ChatHistoryAgentThread(chat_history=history)
        told = (await agent.get_response("go" if asks else None, thread=thread)).message
    history.store_chat_history_to_file(str(stored))
    print(saga.report.outcome, answers(history)[-1], told)


asyncio.run(main())
