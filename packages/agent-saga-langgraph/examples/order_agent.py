"""An agent takes an order in four steps, and the fourth fails. Its world is the folder it runs in.

python order_agent.py            the courier does not answer: everything is taken back
python order_agent.py --kill     the process dies in the third step, the invoice already on disk
agent-saga recover --import order_tools.py
python order_agent.py --ok       nothing fails
"""

import argparse
import hashlib
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import order_tools as shop
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from agent_saga_langgraph import SagaMiddleware


class ScriptedModel(GenericFakeChatModel):
    """A chat model that needs no key: it says what it was given, in order."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "ScriptedModel":
        return self


def script() -> Iterator[AIMessage]:
    calls = [
        ("reserve", {"sku": "lamp", "count": 2}),
        ("place_order", {"customer": "Ada", "sku": "lamp", "count": 2}),
        ("write_invoice", {"number": "2026-0001", "text": "2 lamps for Ada: 58.00 EUR\n"}),
        ("book_courier", {"number": "2026-0001"}),
    ]
    for number, (name, args) in enumerate(calls, 1):
        yield AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{number}", "type": "tool_call"}])
    yield AIMessage("The lamps are on their way.")


def tools(*, kill: bool, ok: bool) -> list[Any]:
    @tool
    def write_invoice(number: str, text: str) -> str:
        """Write an invoice."""
        written = shop.write_invoice(number, text)
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)  # The effect has happened, and its outcome is not recorded.
        return written

    @tool
    def book_courier(number: str) -> dict[str, str]:
        """Book a courier."""
        if not ok:
            raise ConnectionRefusedError("the courier does not answer")
        return shop.book_courier(number)

    return [tool(shop.reserve), tool(shop.place_order), write_invoice, book_courier]


def world() -> str:
    """Return a digest of the database's dump and of every invoice."""
    connection = sqlite3.connect(shop.DATABASE)
    dump = "\n".join(connection.iterdump())
    connection.close()
    files = [f"{path.name}: {path.read_text('utf-8')}" for path in sorted(shop.INVOICES.iterdir())]
    return hashlib.sha256("\n".join([dump, *files]).encode()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", action="store_true", help="die in the third step")
    parser.add_argument("--ok", action="store_true", help="let the courier work")
    options = parser.parse_args()

    shop.set_up()
    agent = create_agent(
        ScriptedModel(messages=script()),
        tools(kill=options.kill, ok=options.ok),
        middleware=[SagaMiddleware(shop.kit)],
    )
    print("before:", world(), flush=True)
    try:
        with shop.kit.transaction("order") as saga:
            result = agent.invoke({"messages": [("user", "Two lamps for Ada, please.")]})
            print("agent: ", result["messages"][-1].content)
    except ConnectionRefusedError as error:
        print("agent:  failed:", error)
    print("after: ", world())
    print(saga.report.format_text())


if __name__ == "__main__":
    main()
