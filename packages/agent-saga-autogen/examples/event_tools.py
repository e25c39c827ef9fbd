"""What the office of a conference can do, and how each of it is taken back. The world is ./event.db and ./programme/.

This module knows no agent framework: `agent-saga recover --import event_tools.py` loads it too.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_saga import ALREADY_DONE, AgentKit, Allow, Ask, Conflict, Landed, NotLanded, compensator

DATABASE = Path("event.db")
PROGRAMME = Path("programme")


@contextlib.contextmanager
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(DATABASE, timeout=10)
    try:
        with connection:  # One transaction.
            yield connection
    finally:
        connection.close()


def set_up() -> None:
    PROGRAMME.mkdir(exist_ok=True)
    with database() as db:
        db.execute("CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, room TEXT, seats INTEGER)")
        db.execute("CREATE TABLE IF NOT EXISTS talks (title TEXT PRIMARY KEY, state TEXT NOT NULL)")
        db.execute("INSERT OR IGNORE INTO talks VALUES ('Sagas', 'submitted')")


# -- rooms: booked once for a key, and given back -----------------------------------------------------------------


def book_room(room: str, seats: int, idempotency_key: str = "by hand") -> dict[str, object]:
    """Book a room."""
    with database() as db:
        db.execute("INSERT OR IGNORE INTO bookings VALUES (?, ?, ?)", (idempotency_key, room, seats))
    return {"booking": idempotency_key}


def find_booking(key: str, kwargs: Mapping[str, object]) -> Landed | NotLanded:  # noqa: ARG001 - asked by the key.
    with database() as db:
        found = db.execute("SELECT 1 FROM bookings WHERE key = ?", (key,)).fetchone()
    return NotLanded() if found is None else Landed({"booking": key})


@compensator("event.give_back")
def give_back(booking: str) -> object:
    with database() as db:
        found = db.execute("DELETE FROM bookings WHERE key = ? RETURNING room", (booking,)).fetchone()
    return ALREADY_DONE if found is None else None


# -- talks: restored, unless somebody changed them since ----------------------------------------------------------


async def accept_talk(title: str) -> dict[str, str]:
    """Accept a talk."""
    with database() as db:
        (before,) = db.execute("SELECT state FROM talks WHERE title = ?", (title,)).fetchone()
        db.execute("UPDATE talks SET state = 'accepted' WHERE title = ?", (title,))
    return {"before": before}


@compensator("event.restore", idempotent=True)
def restore(title: str, before: str) -> object:
    with database() as db:
        (now,) = db.execute("SELECT state FROM talks WHERE title = ?", (title,)).fetchone()
        if now == before:
            return ALREADY_DONE
        if now != "accepted":
            raise Conflict(before=before, ours="accepted", now=now)
        db.execute("UPDATE talks SET state = ? WHERE title = ?", (before, title))
    return None


# -- the programme: files -----------------------------------------------------------------------------------------


def write_page(name: str, text: str) -> str:
    """Write a page of the programme."""
    (PROGRAMME / f"{name}.txt").write_text(text, encoding="utf-8")
    return name


@compensator("event.tear_out", safe_if_absent=True)
def tear_out(name: str) -> object:
    page = PROGRAMME / f"{name}.txt"
    if not page.exists():
        return ALREADY_DONE
    page.unlink()
    return None


class AskAboutLargeRooms:
    """Rooms for more than 500 wait for a person."""

    LIMIT = 500

    def decide(self, call: Any, saga: Any) -> Allow | Ask:
        """Ask about large rooms; the run ends, and the saga waits, until somebody answers."""
        if call.tool != "book_room" or call.kwargs["seats"] <= self.LIMIT:
            return Allow()
        return Ask(f"book {call.kwargs['room']} for {call.kwargs['seats']}?", suspend=True, expires_s=86_400)


kit = AgentKit(policies=[AskAboutLargeRooms()])  # ./agent-saga.db
kit.declare("book_room", effect="compensable", compensate=give_back.bind(booking="result.booking"), probe=find_booking)
kit.declare("accept_talk", effect="reversible", compensate=restore.bind(title="kwargs.title", before="result.before"))
kit.declare("write_page", effect="compensable", compensate=tear_out.bind(name="kwargs.name"))
