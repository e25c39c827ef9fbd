"""What an event desk can do, and how each of it is taken back. The world is ./event.db and ./badges/.

This module knows no agent framework: `agent-saga recover --import event_tools.py` loads it too.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_saga import ALREADY_DONE, AgentKit, Allow, Ask, Conflict, Landed, NotLanded, compensator

DATABASE = Path("event.db")
BADGES = Path("badges")


@contextlib.contextmanager
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(DATABASE, timeout=10)
    try:
        with connection:  # One transaction.
            yield connection
    finally:
        connection.close()


def set_up() -> None:
    BADGES.mkdir(exist_ok=True)
    with database() as db:
        db.execute("CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, room TEXT, day TEXT)")
        db.execute("CREATE TABLE IF NOT EXISTS meals (day TEXT PRIMARY KEY, count INTEGER NOT NULL)")
        db.execute("INSERT OR IGNORE INTO meals VALUES ('2026-12-01', 4)")


# -- rooms: booked once for a key, and given back ------------------------------------------------------------------


def book_room(room: str, day: str, idempotency_key: str = "by hand") -> dict[str, str]:
    """Book a room for a day."""
    with database() as db:
        db.execute("INSERT OR IGNORE INTO bookings VALUES (?, ?, ?)", (idempotency_key, room, day))
    return {"booking": idempotency_key}


def find_booking(key: str, kwargs: Mapping[str, object]) -> Landed | NotLanded:  # noqa: ARG001 - asked by the key.
    with database() as db:
        found = db.execute("SELECT 1 FROM bookings WHERE key = ?", (key,)).fetchone()
    return NotLanded() if found is None else Landed({"booking": key})


@compensator("event.give_back")
def give_back(booking: str) -> object:
    with database() as db:
        gone = db.execute("DELETE FROM bookings WHERE key = ?", (booking,)).rowcount == 0
    return ALREADY_DONE if gone else None


# -- meals: restored, unless somebody changed them since ----------------------------------------------------------


def order_meals(day: str, count: int) -> dict[str, int]:
    """Set how many meals are delivered on a day."""
    with database() as db:
        (before,) = db.execute("SELECT count FROM meals WHERE day = ?", (day,)).fetchone()
        db.execute("UPDATE meals SET count = ? WHERE day = ?", (count, day))
    return {"before": before}


@compensator("event.restore_meals", idempotent=True)
def restore_meals(day: str, before: int, ours: int) -> object:
    with database() as db:
        (now,) = db.execute("SELECT count FROM meals WHERE day = ?", (day,)).fetchone()
        if now == before:
            return ALREADY_DONE
        if now != ours:
            raise Conflict(before=before, ours=ours, now=now)
        db.execute("UPDATE meals SET count = ? WHERE day = ?", (before, day))
    return None


# -- badges: files ------------------------------------------------------------------------------------------------


def print_badge(name: str) -> str:
    """Print a badge."""
    (BADGES / f"{name}.txt").write_text(f"Hello, I am {name}.\n", encoding="utf-8")
    return name


@compensator("event.shred", safe_if_absent=True)
def shred(name: str) -> object:
    file = BADGES / f"{name}.txt"
    if not file.exists():
        return ALREADY_DONE
    file.unlink()
    return None


# -- invitations: another one says that nothing comes of it -------------------------------------------------------


def invite(event: str) -> str:
    """Invite the guests."""
    with (BADGES / "mail.log").open("a", encoding="utf-8") as mail:
        mail.write(f"come to the {event}\n")
    return event


@compensator("event.call_off", idempotent=True)
def call_off(event: str) -> None:
    with (BADGES / "mail.log").open("a", encoding="utf-8") as mail:
        mail.write(f"there is no {event}\n")


class AskAboutMeals:
    """Orders of 50 meals and more wait for a person."""

    LIMIT = 50

    def decide(self, call: Any, saga: Any) -> Allow | Ask:
        """Ask about large orders; the saga, and the loop in it, pause until somebody answers."""
        if call.tool != "order_meals" or call.kwargs["count"] < self.LIMIT:
            return Allow()
        return Ask(f"order {call.kwargs['count']} meals?", suspend=True, expires_s=86_400)


kit = AgentKit(policies=[AskAboutMeals()])  # ./agent-saga.db
kit.declare("book_room", effect="compensable", compensate=give_back.bind(booking="result.booking"), probe=find_booking)
kit.declare(
    "order_meals",
    effect="reversible",
    compensate=restore_meals.bind(day="kwargs.day", before="result.before", ours="kwargs.count"),
)
kit.declare("print_badge", effect="compensable", compensate=shred.bind(name="kwargs.name"))
kit.declare("invite", effect="compensable", compensate=call_off.bind(event="kwargs.event"))
