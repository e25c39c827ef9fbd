"""A refund of 99.00 waits for a person: one process asks, another one goes on with the answer.

python large_return.py ask
python large_return.py yes     (or: no)
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import returns_tools as desk
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from returns_model import scripted_model

from agent_saga_llama_index import protect

STORED = Path("paused.json")
CALLS = [[("refund", {"name": "ada", "cents": 9_900})], "Done."]


def make_agent(turns: list[object]) -> FunctionAgent:
    return protect(FunctionAgent(llm=scripted_model("billing", turns), tools=[desk.refund]), desk.kit)


async def ask() -> None:
    async with desk.kit.transaction("refund", key="ticket T-7") as saga:
        handler = make_agent(CALLS).run(user_msg="My wardrobe came broken.")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                print("waits for:", event.get("tool"), event.get("kwargs"))
                save({"context": handler.ctx.to_dict(), "approval": event.get("approval")})
                await handler.cancel_run()  # And the saga is suspended with it.
                break
    print("saga:", saga.report.outcome)


async def answer(word: str) -> None:
    agent, stored = make_agent(CALLS[1:]), load()
    async with desk.kit.transaction("refund", key="ticket T-7") as saga:  # The same key: the same saga.
        handler = agent.run(ctx=Context.from_dict(agent, stored["context"]))
        handler.ctx.send_event(HumanResponseEvent(response=word, approval=stored["approval"], by="ann"))
        print("agent:", await handler)
    print("saga:", saga.report.outcome)


def save(stored: dict[str, Any]) -> None:
    STORED.write_text(json.dumps(stored), encoding="utf-8")


def load() -> dict[str, Any]:
    return json.loads(STORED.read_text("utf-8"))


def balance() -> int:
    with desk.database() as db:
        return int(db.execute("SELECT cents FROM accounts WHERE name = 'ada'").fetchone()[0])


if __name__ == "__main__":
    desk.set_up()
    asyncio.run(ask() if sys.argv[1] == "ask" else answer(sys.argv[1]))
    print("balance:", balance())
