"""A triage agent hands over to billing, which pays a customer back in three steps; telling the customer fails.

python returns_desk.py            the mail server does not answer: everything is taken back
python returns_desk.py --kill     the process dies in the second step, the credit note already on disk
agent-saga recover --import returns_tools.py
python returns_desk.py --ok       nothing fails
"""

import argparse
import asyncio
import hashlib
import os
import signal
import sqlite3

import returns_tools as desk
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from returns_model import scripted_model

from agent_saga import SagaRolledBack
from agent_saga_llama_index import protect


def make_desk(*, kill: bool, ok: bool) -> AgentWorkflow:
    def write_note(number: str, text: str) -> str:
        """Write a credit note."""
        written = desk.write_note(number, text)
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)  # The effect has happened, and its outcome is not recorded.
        return written

    async def close_ticket(ticket: str) -> dict[str, str]:
        """Close a ticket, and tell the customer."""
        if not ok:
            raise ConnectionRefusedError("the mail server does not answer")  # The model is told, as text.
        return desk.close_ticket(ticket)

    billing = FunctionAgent(
        name="billing",
        description="Pays customers back.",
        llm=scripted_model(
            "billing",
            [
                [("refund", {"name": "ada", "cents": 1_250})],
                [("write_note", {"number": "2026-0001", "text": "12.50 EUR to Ada\n"})],
                [("close_ticket", {"ticket": "T-7"})],
                "Ada has 12.50 back.",
            ],
        ),
        tools=[desk.refund, write_note, close_ticket],
    )
    hand_over = [[("handoff", {"to_agent": "billing", "reason": "money"})]]
    triage = FunctionAgent(name="triage", description="Listens.", llm=scripted_model("triage", hand_over))
    return protect(AgentWorkflow(agents=[triage, billing], root_agent="triage"), desk.kit)


def world() -> str:
    """Return a digest of the database's dump and of every note."""
    connection = sqlite3.connect(desk.DATABASE)
    dump = "\n".join(connection.iterdump())
    connection.close()
    files = [f"{path.name}: {path.read_text('utf-8')}" for path in sorted(desk.NOTES.iterdir())]
    return hashlib.sha256("\n".join([dump, *files]).encode()).hexdigest()[:16]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", action="store_true", help="die in the second step")
    parser.add_argument("--ok", action="store_true", help="let the mail server work")
    options = parser.parse_args()

    desk.set_up()
    agents = make_desk(kill=options.kill, ok=options.ok)
    print("before:", world(), flush=True)
    try:
        async with desk.kit.transaction("ticket T-7") as saga:
            print("agent: ", await agents.run(user_msg="My lamp came broken."))
    except SagaRolledBack:
        print("agent:  was content; the saga was not")
    print("after: ", world())
    print(saga.report.format_text())


if __name__ == "__main__":
    asyncio.run(main())
