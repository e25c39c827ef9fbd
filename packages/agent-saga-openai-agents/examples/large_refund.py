"""A refund of 99.00 waits for a person: one process asks, another one goes on with the answer.

python large_refund.py ask
python large_refund.py approve     (or: reject)
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import desk_tools as desk
from agents import Agent, Runner, RunState, function_tool
from desk_model import ScriptedModel

from agent_saga_openai_agents import protect

STATE = Path("paused.json")
CALLS = [[("refund", {"name": "ada", "cents": 9_900})], "Done."]


def make_agent(turns: list[object]) -> Agent:
    agent = Agent(name="billing", model=ScriptedModel("billing", turns), tools=[function_tool(desk.refund)])
    return protect(agent, desk.kit)


async def ask() -> None:
    async with desk.kit.transaction("refund", key="ticket T-7") as saga:
        result = await Runner.run(make_agent(CALLS), "My wardrobe came broken.")
    save(result.to_state().to_json())
    print("waits for:", *(f"{item.name} {item.arguments}" for item in result.interruptions))
    print("saga:", saga.report.outcome)


async def answer(word: str) -> None:
    agent = make_agent(CALLS[1:])
    state = await RunState.from_json(agent, load())
    for item in state.get_interruptions():
        state.approve(item) if word == "approve" else state.reject(item)
    async with desk.kit.transaction("refund", key="ticket T-7") as saga:  # The same key: the same saga.
        result = await Runner.run(agent, state)
    print("agent:", result.final_output)
    print("saga:", saga.report.outcome)


def save(state: dict[str, Any]) -> None:
    STATE.write_text(json.dumps(state), encoding="utf-8")


def load() -> dict[str, Any]:
    return json.loads(STATE.read_text("utf-8"))


def balance() -> int:
    with desk.database() as db:
        return int(db.execute("SELECT cents FROM accounts WHERE name = 'ada'").fetchone()[0])


if __name__ == "__main__":
    desk.set_up()
    asyncio.run(ask() if sys.argv[1] == "ask" else answer(sys.argv[1]))
    print("balance:", balance())
