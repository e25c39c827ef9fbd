"""A crew takes an order in four steps, and the fourth fails. Its world is the folder it runs in.

python order_crew.py            the courier does not answer: everything is taken back
python order_crew.py --kill     the process dies in the third step, the invoice already on disk
agent-saga recover --import order_tools.py
python order_crew.py --ok       nothing fails
"""

import argparse
import hashlib
import json
import os
import signal
import sqlite3
from typing import Any

import order_tools as shop
from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool
from pydantic import Field

from agent_saga import SagaRolledBack
from agent_saga_crewai import protect

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("reserve", {"sku": "lamp", "count": 2}),
    ("place_order", {"customer": "Ada", "sku": "lamp", "count": 2}),
    ("write_invoice", {"number": "2026-0001", "text": "2 lamps for Ada: 58.00 EUR\n"}),
    ("book_courier", {"number": "2026-0001"}),
]


class ScriptedModel(BaseLLM):
    """A model that needs no key: it makes its calls, in order."""

    calls: list[tuple[str, dict[str, Any]]] = Field(default_factory=lambda: list(CALLS))

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *args: Any, **options: Any) -> Any:
        if not self.calls:
            return "The lamps are on their way."
        name, arguments = self.calls.pop(0)
        function = {"name": name, "arguments": json.dumps(arguments)}
        return [{"id": f"call-{len(self.calls)}", "type": "function", "function": function}]


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
            raise ConnectionRefusedError("the courier does not answer")  # CrewAI tells it to the model, and goes on.
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
    clerk = Agent(
        role="clerk",
        goal="take orders",
        backstory="Knows every lamp.",
        llm=ScriptedModel(model="scripted"),
        tools=tools(kill=options.kill, ok=options.ok),
    )
    task = Task(description="Two lamps for Ada, please.", expected_output="what was done", agent=clerk)
    crew = protect(Crew(agents=[clerk], tasks=[task]), shop.kit)
    print("before:", world(), flush=True)
    try:
        with shop.kit.transaction("order") as saga:
            print("crew:  ", crew.kickoff().raw)
    except SagaRolledBack as error:
        print("saga:  ", str(error).splitlines()[0])
    print("after: ", world())
    assert saga.report is not None
    print(saga.report.format_text())


if __name__ == "__main__":
    main()
