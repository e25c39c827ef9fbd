"""A travel desk of two frameworks and a plain function in one saga: LangChain flies, AutoGen sleeps and drives.

python travel.py                 there is no car in Oslo, and AutoGen tells the model so: all is taken back
python travel.py --elsewhere     the model finds a car in Moss: all is kept
python travel.py --kill          the process dies once the money is taken, before anybody could write that down
agent-saga recover --import travel_tools.py
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where the scripted models are

import models
import travel_tools as desk
from autogen_agentchat.agents import AssistantAgent
from langchain.agents import create_agent
from langchain_core.tools import tool

from agent_saga import SagaRolledBack
from agent_saga_autogen import protect
from agent_saga_langgraph import SagaMiddleware

kit = desk.kit


def make_flyer() -> Any:
    calls = [("book_seat", {"flight": "OSL-1", "name": name}) for name in ("Ada", "Bob")]
    model = models.for_langchain(calls, "Ada and Bob fly with OSL-1.")
    return create_agent(model, [tool(desk.book_seat)], middleware=[SagaMiddleware(kit)])


def make_planner(*, elsewhere: bool) -> Any:
    calls = [("book_room", {"hotel": "Grand", "nights": 2}), ("rent_car", {"place": "Oslo"})]
    if elsewhere:
        calls.append(("rent_car", {"place": "Moss"}))  # Another place, so the declaration says resolves="same_tool".
    model = models.for_autogen(calls, "A room, and perhaps a car.")
    return protect(AssistantAgent("planner", model, tools=[desk.book_room, desk.rent_car], max_tool_iterations=5), kit)


async def main(*words: str) -> None:
    flyer, planner = make_flyer(), make_planner(elsewhere="--elsewhere" in words)
    desk.DIE_WHEN_PAID = "--kill" in words
    try:
        async with kit.transaction("trip to Oslo") as saga:
            await flyer.ainvoke({"messages": [("user", "Two seats to Oslo, please.")]})
            desk.pay(customer="Ada", cents=64_000)
            print((await planner.run(task="A room and a car.")).messages[-1].content)
    except SagaRolledBack as error:
        print(error)
    print(saga.report.format_text())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
