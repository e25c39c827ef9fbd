"""What the order agent can do, and how each of it is taken back. The world is ./orders.db and ./invoices/.

This module knows no agent framework: `agent-saga recover --import order_tools.py` loads it too.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from agent_saga import ALREADY_DONE, AgentKit, Conflict, Landed, NotLanded, compensator

DATABASE = Path("orders.db")
INVOICES = Path("invoices")
kit = AgentKit()  # ./agent-saga.db


@contextlib.contextmanager
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(DATABASE, timeout=10)
    try:
        with connection:  # One transaction.
            yield connection
    finally:
        connection.close()


def set_up() -> None:
    INVOICES.mkdir(exist_ok=True)
    with database() as db:
        db.execute("CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, count INTEGER NOT NULL CHECK (count >= 0))")
        db.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT, sku TEXT, count INTEGER)")
        db.execute("CREATE TABLE IF NOT EXISTS pickups (number TEXT PRIMARY KEY)")
        db.execute("INSERT OR IGNORE INTO stock VALUES ('lamp', 10), ('desk', 3)")


# -- stock: restored exactly, unless somebody changed it since ----------------------------------------------------


def reserve(sku: str, count: int) -> dict[str, int]:
    """Take some of a product from the stock."""
    with database() as db:
        (before,) = db.execute("SELECT count FROM stock WHERE sku = ?", (sku,)).fetchone()
        db.execute("UPDATE stock SET count = ? WHERE sku = ?", (before - count, sku))
    return {"before": before, "after": before - count}


@compensator("orders.restock")
def restock(sku: str, before: int, after: int) -> object:
    with database() as db:
        (now,) = db.execute("SELECT count FROM stock WHERE sku = ?", (sku,)).fetchone()
        if now == before:
            return ALREADY_DONE
        if now != after:
            raise Conflict(before=before, ours=after, now=now)
        db.execute("UPDATE stock SET count = ? WHERE sku = ?", (before, sku))
    return None


# -- orders: named by the key of their step, so a lost one can be found -------------------------------------------


def place_order(customer: str, sku: str, count: int, idempotency_key: str) -> dict[str, str]:
    """Place an order."""
    with database() as db:
        db.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", (idempotency_key, customer, sku, count))
    return {"id": idempotency_key}


def find_order(key: str, kwargs: dict[str, object]) -> Landed | NotLanded:  # noqa: ARG001 - a probe is given both.
    with database() as db:
        found = db.execute("SELECT id FROM orders WHERE id = ?", (key,)).fetchone()
    return Landed({"id": key}) if found else NotLanded()


@compensator("orders.cancel", idempotent=True)
def cancel_order(order_id: str) -> None:
    with database() as db:
        db.execute("DELETE FROM orders WHERE id = ?", (order_id,))


# -- invoices: a file is removed by its name, whether it is there or not ------------------------------------------


def write_invoice(number: str, text: str) -> str:
    """Write an invoice."""
    with (INVOICES / f"{number}.txt").open("x", encoding="utf-8") as file:
        file.write(text)
    return f"invoice {number} written"


@compensator("orders.remove_invoice", idempotent=True, safe_if_absent=True)
def remove_invoice(number: str) -> None:
    (INVOICES / f"{number}.txt").unlink(missing_ok=True)


# -- couriers -----------------------------------------------------------------------------------------------------


def book_courier(number: str) -> dict[str, str]:
    """Book a courier."""
    with database() as db:
        db.execute("INSERT INTO pickups VALUES (?)", (number,))
    return {"number": number}


@compensator("orders.cancel_courier", idempotent=True)
def cancel_courier(number: str) -> None:
    with database() as db:
        db.execute("DELETE FROM pickups WHERE number = ?", (number,))


kit.declare(
    "reserve",
    effect="reversible",
    compensate=restock.bind(sku="kwargs.sku", before="result.before", after="result.after"),
)
kit.declare("place_order", effect="compensable", probe=find_order, compensate=cancel_order.bind(order_id="result.id"))
kit.declare("write_invoice", effect="compensable", compensate=remove_invoice.bind(number="kwargs.number"))
kit.declare(
    "book_courier",
    effect="compensable",
    compensate=cancel_courier.bind(number="result.number"),
    no_effect_on=ConnectionRefusedError,
)
