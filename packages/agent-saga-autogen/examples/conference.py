"""A planner books a room and writes a page, a host accepts the talk; telling the speaker fails.

python conference.py            the mail server does not answer: everything is taken back
python conference.py --kill     the process dies in the second step, the page already on disk
agent-saga recover --import event_tools.py
python conference.py --ok       nothing fails
"""

import argparse
import asyncio
import hashlib
import os
import signal
import sqlite3

import event_tools as event
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from event_model import scripted

from agent_saga import SagaRolledBack
from agent_saga_autogen import protect


def make_team(*, kill: bool, ok: bool) -> RoundRobinGroupChat:
    def write_page(name: str, text: str) -> str:
        """Write a page of the programme."""
        written = event.write_page(name, text)
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)  # The effect has happened, and its outcome is not recorded.
        return written

    async def accept_talk(title: str) -> dict[str, str]:
        """Accept a talk, and tell the speaker."""
        if not ok:
            raise ConnectionRefusedError("the mail server does not answer")
        return await event.accept_talk(title)

    planner = AssistantAgent(
        "planner",
        model_client=scripted(
            [("book_room", {"room": "Blue", "seats": 120})],
            [("write_page", {"name": "monday", "text": "10:00 Sagas, Blue room\n"})],
            "The room is booked.",
        ),
        tools=[event.book_room, write_page],
        max_tool_iterations=5,
    )
    host = AssistantAgent(
        "host",
        model_client=scripted([("accept_talk", {"title": "Sagas"})], "All is arranged."),
        tools=[accept_talk],
        reflect_on_tool_use=True,
    )
    return protect(RoundRobinGroupChat([planner, host], max_turns=2), event.kit)  # The one line.


def world() -> str:
    """Return a digest of the database's dump and of every page."""
    connection = sqlite3.connect(event.DATABASE)
    dump = "\n".join(connection.iterdump())
    connection.close()
    files = [f"{path.name}: {path.read_text('utf-8')}" for path in sorted(event.PROGRAMME.iterdir())]
    return hashlib.sha256("\n".join([dump, *files]).encode()).hexdigest()[:16]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kill", action="store_true", help="die in the second step")
    parser.add_argument("--ok", action="store_true", help="let the mail server work")
    options = parser.parse_args()

    event.set_up()
    team = make_team(kill=options.kill, ok=options.ok)
    print("before:", world(), flush=True)
    try:
        async with event.kit.transaction("monday") as saga:
            result = await team.run(task="Arrange the talk on sagas.")
            print("team:  ", result.messages[-1].to_text())  # It is content, whatever happened.
    except SagaRolledBack as error:
        print("saga:  ", error)
    print("after: ", world())
    print(saga.report.format_text())


if __name__ == "__main__":
    asyncio.run(main())
