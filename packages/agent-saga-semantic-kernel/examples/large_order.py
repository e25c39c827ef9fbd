"""An order of 60 meals waits for a person: one process asks, another one goes on with the answer.

python large_order.py ask
python large_order.py approve     (or: reject)
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import event_tools as desk
from event_model import ScriptedModel
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

from agent_saga_semantic_kernel import protect, resume

STORED = Path("history.json")
CALLS: list[Any] = [[("desk-order_meals", {"day": "2026-12-01", "count": 60})], "Done."]


def make_agent(turns: list[Any]) -> ChatCompletionAgent:
    kernel = Kernel(services=[ScriptedModel(ai_model_id="scripted", service_id="caterer", turns=turns)])
    kernel.add_function("desk", kernel_function(desk.order_meals))
    return protect(ChatCompletionAgent(kernel=kernel, name="caterer"), desk.kit)


async def ask() -> None:
    history = ChatHistory()
    async with desk.kit.transaction("meals", key="reading") as saga:
        told = await make_agent(CALLS).get_response("60 guests!", thread=ChatHistoryAgentThread(chat_history=history))
    history.store_chat_history_to_file(str(STORED))
    print("agent:", *(item.result for item in told.message.items))
    print("saga:", saga.report.outcome)


async def answer(word: str) -> None:
    agent = make_agent(CALLS[1:])
    history = ChatHistory.load_chat_history_from_file(str(STORED))
    async with desk.kit.transaction("meals", key="reading") as saga:  # The same key: the same saga.
        await resume(agent, history, approved=word == "approve")
        told = await agent.get_response(thread=ChatHistoryAgentThread(chat_history=history))
    print("agent:", told.message)
    print("saga:", saga.report.outcome)


def meals() -> int:
    with desk.database() as db:
        return int(db.execute("SELECT count FROM meals").fetchone()[0])


if __name__ == "__main__":
    desk.set_up()
    asyncio.run(ask() if sys.argv[1] == "ask" else answer(sys.argv[1]))
    print("meals:", meals())
