"""A planner agent has a desk agent as its plugin, which prepares an event in three steps; inviting the guests fails.

python event_planner.py            the mail server does not answer: everything is taken back
python event_planner.py --kill     the process dies in the third step, the badge already on disk
agent-saga recover --import event_tools.py
python event_planner.py --ok       nothing fails
"""

import argparse
import asyncio
import hashlib
import os
import signal
import sqlite3

import event_tools as desk
from event_model import ScriptedModel
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.functions import kernel_function

from agent_saga import SagaRolledBack
from agent_saga_semantic_kernel import protect


class Desk:
    """The functions of the desk agent."""

    book_room = staticmethod(kernel_function(desk.book_room))
    order_meals = staticmethod(kernel_function(desk.order_meals))

    def __init__(self, *, kill: bool) -> None:
        self.kill = kill

    @kernel_function
    async def print_badge(self, name: str) -> str:
        """Print a badge."""
        printed = desk.print_badge(name)
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)  # The effect has happened, and its outcome is not recorded.
        return printed


def make_planner(*, kill: bool, ok: bool) -> ChatCompletionAgent:
    @kernel_function
    async def invite(event: str) -> str:
        """Invite the guests."""
        if not ok:
            raise ConnectionRefusedError("the mail server does not answer")
        return desk.invite(event)

    steps = [
        [("desk-book_room", {"room": "blue", "day": "2026-12-01"})],
        [("desk-order_meals", {"day": "2026-12-01", "count": 12})],
        [("desk-print_badge", {"name": "Ada"})],
        "The blue room, 12 meals and a badge.",
    ]
    plan = [
        [("helper-helper", {"messages": "Prepare the reading on December 1."})],
        [("mail-invite", {"event": "reading"})],
        "All is prepared.",  # Which it says in any case.
    ]
    helping = Kernel(services=[ScriptedModel(ai_model_id="scripted", service_id="helper", turns=steps)])
    helping.add_plugin(Desk(kill=kill), "desk")
    helper = ChatCompletionAgent(kernel=helping, name="helper", description="Prepares events.")
    planning = Kernel(services=[ScriptedModel(ai_model_id="scripted", service_id="planner", turns=plan)])
    planning.add_plugin(helper, "helper")
    planning.add_function("mail", invite)
    planner = ChatCompletionAgent(kernel=planning, name="planner")
    return protect(planner, desk.kit)  # The helper is protected with it.


def world() -> str:
    """Return a digest of the database's dump and of every badge."""
    connection = sqlite3.connect(desk.DATABASE)
    dump = "\n".join(connection.iterdump())
    connection.close()
    files = [f"{path.name}: {path.read_text('utf-8')}" for path in sorted(desk.BADGES.iterdir())]
    return hashlib.sha256("\n".join([dump, *files]).encode()).hexdigest()[:16]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", action="store_true", help="die in the third step")
    parser.add_argument("--ok", action="store_true", help="let the mail server work")
    options = parser.parse_args()

    desk.set_up()
    planner = make_planner(kill=options.kill, ok=options.ok)
    print("before:", world(), flush=True)
    try:
        async with desk.kit.transaction("reading") as saga:
            print("agent: ", (await planner.get_response("Plan a reading.")).message)
    except SagaRolledBack as error:
        print("saga:  ", error)
    print("after: ", world())
    print(saga.report.format_text())


if __name__ == "__main__":
    asyncio.run(main())
