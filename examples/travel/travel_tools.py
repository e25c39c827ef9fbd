"""What a travel desk can do, and how each of it is taken back. The world is ./travel.db: an airline, a hotel, a bank.

This module knows no framework: `agent-saga recover --import travel_tools.py` loads it too.
"""

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from agent_saga import AgentKit, Landed, NotLanded, compensator

TABLES = """
CREATE TABLE IF NOT EXISTS seats (flight TEXT PRIMARY KEY, free INTEGER NOT NULL CHECK (free >= 0));
CREATE TABLE IF NOT EXISTS tickets (key TEXT PRIMARY KEY, flight TEXT NOT NULL, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rooms (key TEXT PRIMARY KEY, hotel TEXT NOT NULL, nights INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS payments (key TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL);
INSERT OR IGNORE INTO seats VALUES ('OSL-1', 3);
"""
kit = AgentKit()  # ./agent-saga.db
DIE_WHEN_PAID = False


@contextlib.contextmanager
def world() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect("travel.db", timeout=10)
    try:
        connection.executescript(TABLES)
        with connection:  # One transaction.
            yield connection
    finally:
        connection.close()


def standing() -> dict[str, list[Any]]:
    with world() as db:
        tables = ("seats", "tickets", "rooms", "payments")
        return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables}


# -- the airline: a ticket and a seat less, found again by the key ---------------------------------------------------


def book_seat(flight: str, name: str, idempotency_key: str) -> dict[str, str]:
    """Book a seat for somebody."""
    with world() as db:
        db.execute("UPDATE seats SET free = free - 1 WHERE flight = ?", (flight,))
        db.execute("INSERT INTO tickets VALUES (?, ?, ?)", (idempotency_key, flight, name))
    return {"ticket": idempotency_key}


def find_ticket(key: str, kwargs: Mapping[str, Any]) -> Landed | NotLanded:  # noqa: ARG001 - asked by the key.
    with world() as db:
        found = db.execute("SELECT 1 FROM tickets WHERE key = ?", (key,)).fetchone()
    return Landed({"ticket": key}) if found else NotLanded()


def no_ticket(ticket: str) -> bool:
    """A read-back: with it the report can say `verified`."""
    with world() as db:
        return db.execute("SELECT 1 FROM tickets WHERE key = ?", (ticket,)).fetchone() is None


@compensator("travel.cancel_seat", idempotent=True, verify=no_ticket)
def cancel_seat(ticket: str) -> None:
    with world() as db:
        for (flight,) in db.execute("DELETE FROM tickets WHERE key = ? RETURNING flight", (ticket,)).fetchall():
            db.execute("UPDATE seats SET free = free + 1 WHERE flight = ?", (flight,))


# -- the hotel: cancelled by its key, whether the room was booked or not ----------------------------------------------


def book_room(hotel: str, nights: int, idempotency_key: str) -> str:
    """Book a room."""
    with world() as db:
        db.execute("INSERT OR IGNORE INTO rooms VALUES (?, ?, ?)", (idempotency_key, hotel, nights))
    return f"{nights} nights at the {hotel}"


@compensator("travel.cancel_room", idempotent=True, safe_if_absent=True)
def cancel_room(key: str) -> None:
    with world() as db:
        db.execute("DELETE FROM rooms WHERE key = ?", (key,))


# -- the bank: a refund is a payment of its own, and a trace stays ---------------------------------------------------


def find_payment(key: str, kwargs: Mapping[str, Any]) -> Landed | NotLanded:  # noqa: ARG001 - asked by the key.
    with world() as db:
        found = db.execute("SELECT 1 FROM payments WHERE key = ?", (key,)).fetchone()
    return Landed({"payment": key}) if found else NotLanded()


@compensator("travel.refund")
def refund(payment: str, idempotency_key: str) -> None:
    with world() as db:
        db.execute(
            "INSERT OR IGNORE INTO payments SELECT ?, customer, -cents FROM payments WHERE key = ?",
            (idempotency_key, payment),
        )


@kit.tool(effect="compensable", compensate=refund.bind(payment="result.payment"), probe=find_payment)
def pay(customer: str, cents: int, idempotency_key: str) -> dict[str, str]:
    """Take a customer's money."""
    with world() as db:
        db.execute("INSERT OR IGNORE INTO payments VALUES (?, ?, ?)", (idempotency_key, customer, cents))
    if DIE_WHEN_PAID:
        os.kill(os.getpid(), signal.SIGKILL)  # The payment has happened, and its outcome is not recorded.
    return {"payment": idempotency_key}


class NoCar(Exception):
    """Nothing was rented."""


def rent_car(place: str) -> str:
    """Rent a car."""
    if place == "Oslo":
        raise NoCar("there is no car left in Oslo")
    return f"a car in {place}"


kit.declare("book_seat", effect="compensable", compensate=cancel_seat.bind(ticket="result.ticket"), probe=find_ticket)
kit.declare("book_room", effect="compensable", compensate=cancel_room.bind(key="key"))
kit.declare(
    "rent_car", effect="compensable", compensate=cancel_room.bind(key="key"), no_effect_on=NoCar, resolves="same_tool"
)
