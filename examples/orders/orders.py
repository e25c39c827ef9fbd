"""Order to cash: LangChain takes the order, a plain function takes the money, AutoGen writes the invoice.

python orders.py 2            a small order goes through
python orders.py 20           a large one is suspended until somebody approves its charge
agent-saga approvals list     shows it, with the command that approves
python orders.py 20           goes on where it stopped: the order is not placed again
python orders.py 20 --kill    dies when the money is taken
agent-saga recover --import order_tools.py
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where the scripted models are

import models
import order_tools as shop
from autogen_agentchat.agents import AssistantAgent
from langchain.agents import create_agent
from langchain_core.tools import tool

from agent_saga import SagaSuspended
from agent_saga_autogen import protect
from agent_saga_langgraph import SagaMiddleware

kit = shop.kit
LAMP_CENTS = 9_900


def make_clerk(order_id: str, count: int) -> Any:
    calls = [
        ("place_order", {"order_id": order_id, "sku": "lamp", "count": count}),
        ("reserve", {"sku": "lamp", "count": count}),
    ]
    model = models.for_langchain(calls, f"{order_id} is placed.")
    return create_agent(model, [tool(shop.place_order), tool(shop.reserve)], middleware=[SagaMiddleware(kit)])


def make_bookkeeper(order_id: str, cents: int) -> Any:
    model = models.for_autogen([("write_invoice", {"order_id": order_id, "cents": cents})], "It is written.")
    agent = AssistantAgent("bookkeeper", model, tools=[shop.write_invoice], max_tool_iterations=5)
    return protect(agent, kit)


async def main(count: int, *words: str) -> None:
    order_id, cents = f"order-{count}", count * LAMP_CENTS
    shop.DIE_WHEN_CHARGED = "--kill" in words
    clerk, bookkeeper = make_clerk(order_id, count), make_bookkeeper(order_id, cents)
    try:
        async with kit.transaction("order to cash", key=order_id) as saga:  # The same key is the same saga.
            await clerk.ainvoke({"messages": [("user", f"{count} lamps, please.")]})
            shop.charge(order_id=order_id, cents=cents)
            await bookkeeper.run(task="Write the invoice.")
    except SagaSuspended as pause:
        print(pause)
    print(saga.report.format_text())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
