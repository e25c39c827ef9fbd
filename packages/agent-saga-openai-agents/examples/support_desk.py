"""A triage agent hands over to billing, which pays a customer back in three steps; telling the customer fails.

python support_desk.py            the mail server does not answer: everything is taken back
python support_desk.py --kill     the process dies in the third step, the credit note already on disk
agent-saga recover --import desk_tools.py
python support_desk.py --ok       nothing fails
"""

import argparse
import asyncio
import hashlib
import os
import signal
import sqlite3

import desk_tools as desk
from agents import Agent, Runner, UserError, function_tool
from desk_model import ScriptedModel

from agent_saga_openai_agents import protect


def make_desk(*, kill: bool, ok: bool) -> Agent:
    @function_tool
    def write_note(number: str, text: str) -> str:
        """Write a credit note."""
        written = desk.write_note(number, text)
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)  # The effect has happened, and its outcome is not recorded.
        return written

    @function_tool(failure_error_function=None)  # An error ends the run.
    async def close_ticket(ticket: str) -> dict[str, str]:
        """Close a ticket, and tell the customer."""
        if not ok:
            raise ConnectionRefusedError("the mail server does not answer")
        return desk.close_ticket(ticket)

    billing = Agent(
        name="billing",
        model=ScriptedModel(
            "billing",
            [
                [("refund", {"name": "ada", "cents": 1_250})],
                [("write_note", {"number": "2026-0001", "text": "12.50 EUR to Ada\n"})],
                [("close_ticket", {"ticket": "T-7"})],
                "Ada has 12.50 back.",
            ],
        ),
        tools=[function_tool(desk.refund), write_note, close_ticket],
    )
    triage = Agent(name="triage", model=ScriptedModel("triage", [[("transfer_to_billing", {})]]), handoffs=[billing])
    return protect(triage, desk.kit)  # Billing is protected with it.


def world() -> str:
    """Return a digest of the database's dump and of every note."""
    connection = sqlite3.connect(desk.DATABASE)
    dump = "\n".join(connection.iterdump())
    connection.close()
    files = [f"{path.name}: {path.read_text('utf-8')}" for path in sorted(desk.NOTES.iterdir())]
    return hashlib.sha256("\n".join([dump, *files]).encode()).hexdigest()[:16]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", action="store_true", help="die in the third step")
    parser.add_argument("--ok", action="store_true", help="let the mail server work")
    options = parser.parse_args()

    desk.set_up()
    agent = make_desk(kill=options.kill, ok=options.ok)
    print("before:", world(), flush=True)
    try:
        async with desk.kit.transaction("ticket T-7") as saga:
            result = await Runner.run(agent, "My lamp came broken.")
            print("agent: ", result.final_output)
    except UserError as error:
        print("agent:  failed:", error)
    print("after: ", world())
    print(saga.report.format_text())


if __name__ == "__main__":
    asyncio.run(main())
