"""What a returns desk can do, and how each of it is taken back. The world is ./desk.db and ./notes/.

This module knows no agent framework: `agent-saga recover --import returns_tools.py` loads it too.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_saga import ALREADY_DONE, AgentKit, Allow, Ask, Conflict, Landed, NotLanded, compensator

DATABASE = Path("desk.db")
NOTES = Path("notes")


@contextlib.contextmanager
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(DATABASE, timeout=10)
    try:
        with connection:  # One transaction.
            yield connection
    finally:
        connection.close()


def set_up() -> None:
    NOTES.mkdir(exist_ok=True)
    with database() as db:
        db.execute("CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
        db.execute("CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, name TEXT, cents INTEGER)")
        db.execute("CREATE TABLE IF NOT EXISTS tickets (id TEXT PRIMARY KEY, state TEXT NOT NULL)")
        db.execute("INSERT OR IGNORE INTO accounts VALUES ('ada', 0)")
        db.execute("INSERT OR IGNORE INTO tickets VALUES ('T-7', 'open')")


# -- money: booked once for a key, and booked back ----------------------------------------------------------------


def refund(name: str, cents: int, idempotency_key: str = "by hand") -> dict[str, object]:
    """Pay money back to a customer."""
    with database() as db:
        if db.execute("SELECT 1 FROM bookings WHERE key = ?", (idempotency_key,)).fetchone() is None:
            db.execute("INSERT INTO bookings VALUES (?, ?, ?)", (idempotency_key, name, cents))
            db.execute("UPDATE accounts SET cents = cents + ? WHERE name = ?", (cents, name))
    return {"booking": idempotency_key}


def find_refund(key: str, kwargs: Mapping[str, object]) -> Landed | NotLanded:  # noqa: ARG001 - asked by the key.
    with database() as db:
        found = db.execute("SELECT 1 FROM bookings WHERE key = ?", (key,)).fetchone()
    return NotLanded() if found is None else Landed({"booking": key})


@compensator("returns.take_back")
def take_back(booking: str) -> object:
    with database() as db:
        found = db.execute("DELETE FROM bookings WHERE key = ? RETURNING name, cents", (booking,)).fetchone()
        if found is None:
            return ALREADY_DONE
        db.execute("UPDATE accounts SET cents = cents - ? WHERE name = ?", (found[1], found[0]))
    return None


# -- tickets: restored, unless somebody changed them since --------------------------------------------------------


def close_ticket(ticket: str) -> dict[str, str]:
    """Close a ticket."""
    with database() as db:
        (before,) = db.execute("SELECT state FROM tickets WHERE id = ?", (ticket,)).fetchone()
        db.execute("UPDATE tickets SET state = 'closed' WHERE id = ?", (ticket,))
    return {"before": before}


@compensator("returns.reopen", idempotent=True)
def reopen(ticket: str, before: str) -> object:
    with database() as db:
        (now,) = db.execute("SELECT state FROM tickets WHERE id = ?", (ticket,)).fetchone()
        if now == before:
            return ALREADY_DONE
        if now != "closed":
            raise Conflict(before=before, ours="closed", now=now)
        db.execute("UPDATE tickets SET state = ? WHERE id = ?", (before, ticket))
    return None


# -- notes: files -------------------------------------------------------------------------------------------------


def write_note(number: str, text: str) -> str:
    """Write a credit note."""
    (NOTES / f"{number}.txt").write_text(text, encoding="utf-8")
    return number


@compensator("returns.shred", safe_if_absent=True)
def shred(number: str) -> object:
    file = NOTES / f"{number}.txt"
    if not file.exists():
        return ALREADY_DONE
    file.unlink()
    return None


class AskAboutMoney:
    """Refunds of 50.00 and more wait for a person."""

    LIMIT = 5_000

    def decide(self, call: Any, saga: Any) -> Allow | Ask:
        """Ask about large amounts; the saga, and the run in it, pause until somebody answers."""
        cents = call.kwargs["cents"] if call.tool == "refund" else 0
        if cents < self.LIMIT:
            return Allow()
        return Ask(f"refund {cents / 100:.2f} to {call.kwargs['name']}?", suspend=True, expires_s=86_400)


kit = AgentKit(policies=[AskAboutMoney()])  # ./agent-saga.db
kit.declare("refund", effect="compensable", compensate=take_back.bind(booking="result.booking"), probe=find_refund)
kit.declare("close_ticket", effect="reversible", compensate=reopen.bind(ticket="kwargs.ticket", before="result.before"))
kit.declare("write_note", effect="compensable", compensate=shred.bind(number="kwargs.number"))
kit.declare("notify", effect="irreversible")
