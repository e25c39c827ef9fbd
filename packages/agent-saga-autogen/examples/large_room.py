"""A room for 900 waits for a person: one process asks, another one goes on with the answer.

python large_room.py ask
python large_room.py approve     (or: reject)
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import event_tools as event
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from event_model import scripted

from agent_saga_autogen import protect

STATE = Path("paused.json")
CALLS = [[("book_room", {"room": "Hall", "seats": 900})]]


def make_agent(turns: Sequence[Any]) -> AssistantAgent:
    client = scripted(*turns)
    agent = AssistantAgent("planner", model_client=client, tools=[event.book_room], max_tool_iterations=5)
    return protect(agent, event.kit)


async def ask() -> None:
    agent = make_agent(CALLS)
    async with event.kit.transaction("keynote", key="talk 1") as saga:
        result = await agent.run(task="We need room for 900.")
    last = result.messages[-1]
    save({"agent": await agent.save_state(), "waits": last.metadata["agent_saga_waits"]})
    print("agent:", last.to_text())
    print("saga:", saga.report.outcome)


async def answer(word: str) -> None:
    stored = load()
    agent = make_agent(["Done."])
    await agent.load_state(stored["agent"])
    message = TextMessage(content=word, source="ann", metadata={f"agent_saga_{word}": stored["waits"]})
    async with event.kit.transaction("keynote", key="talk 1") as saga:  # The same key: the same saga.
        result = await agent.run(task=message)
    print("agent:", result.messages[-1].to_text())
    print("saga:", saga.report.outcome)


def save(state: dict[str, Any]) -> None:
    STATE.write_text(json.dumps(state), encoding="utf-8")


def load() -> dict[str, Any]:
    return json.loads(STATE.read_text("utf-8"))


def rooms() -> list[str]:
    with event.database() as db:
        return [room for (room,) in db.execute("SELECT room FROM bookings")]


if __name__ == "__main__":
    event.set_up()
    asyncio.run(ask() if sys.argv[1] == "ask" else answer(sys.argv[1]))
    print("rooms:", *rooms())
