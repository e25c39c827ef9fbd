"""From an order to its money: what each step does, and how it is taken back. The world is ./orders.db.

This module knows no framework: `agent-saga recover --import order_tools.py` loads it too.
"""

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from agent_saga import ALREADY_DONE, AgentKit, Allow, Ask, Conflict, Landed, NotLanded, compensator

TABLES = """
CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, free INTEGER NOT NULL CHECK (free >= 0));
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, sku TEXT, count INTEGER, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS invoices (key TEXT PRIMARY KEY, order_id TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS payments (key TEXT PRIMARY KEY, order_id TEXT NOT NULL, cents INTEGER NOT NULL);
INSERT OR IGNORE INTO stock VALUES ('lamp', 50);
"""
LARGE_CENTS = 100_000
DIE_WHEN_CHARGED = False


class AskAboutLargeCharges:
    """Charges of 1,000.00 and more wait for somebody's word; the saga is suspended meanwhile."""

    def decide(self, call: Any, saga: Any) -> Allow | Ask:
        if call.tool != "charge" or call.kwargs["cents"] < LARGE_CENTS:
            return Allow()
        return Ask(f"charge {call.kwargs['cents'] / 100:.2f}?", suspend=True, expires_s=86_400)


kit = AgentKit(policies=[AskAboutLargeCharges()])  # ./agent-saga.db


@contextlib.contextmanager
def world() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect("orders.db", timeout=10)
    try:
        connection.executescript(TABLES)
        with connection:  # One transaction.
            yield connection
    finally:
        connection.close()


def standing() -> dict[str, list[Any]]:
    with world() as db:
        tables = ("stock", "orders", "invoices", "payments")
        return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables}


# -- the order: it stays, as a cancelled one --------------------------------------------------------------------------


def place_order(order_id: str, sku: str, count: int) -> str:
    """Place an order."""
    with world() as db:
        db.execute("INSERT INTO orders VALUES (?, ?, ?, 'placed')", (order_id, sku, count))
    return order_id


def find_order(key: str, kwargs: Mapping[str, Any]) -> Landed | NotLanded:  # noqa: ARG001 - its number is its own.
    with world() as db:
        found = db.execute("SELECT 1 FROM orders WHERE id = ?", (kwargs["order_id"],)).fetchone()
    return Landed(kwargs["order_id"]) if found else NotLanded()


@compensator("orders.cancel", idempotent=True)
def cancel_order(order_id: str) -> None:
    with world() as db:
        db.execute("UPDATE orders SET state = 'cancelled' WHERE id = ?", (order_id,))


# -- the stock: restored, unless somebody changed it since ------------------------------------------------------------


def reserve(sku: str, count: int) -> dict[str, int]:
    """Take some of a product from the stock."""
    with world() as db:
        (before,) = db.execute("SELECT free FROM stock WHERE sku = ?", (sku,)).fetchone()
        db.execute("UPDATE stock SET free = ? WHERE sku = ?", (before - count, sku))
    return {"before": before, "ours": before - count}


@compensator("orders.restock", idempotent=True)
def restock(sku: str, before: int, ours: int) -> object:
    with world() as db:
        (now,) = db.execute("SELECT free FROM stock WHERE sku = ?", (sku,)).fetchone()
        if now == before:
            return ALREADY_DONE
        if now != ours:
            raise Conflict(before=before, ours=ours, now=now)
        db.execute("UPDATE stock SET free = ? WHERE sku = ?", (before, sku))
    return None


# -- the money --------------------------------------------------------------------------------------------------------


def find_payment(key: str, kwargs: Mapping[str, Any]) -> Landed | NotLanded:  # noqa: ARG001 - asked by the key.
    with world() as db:
        found = db.execute("SELECT 1 FROM payments WHERE key = ?", (key,)).fetchone()
    return Landed({"payment": key}) if found else NotLanded()


@compensator("orders.refund")
def refund(payment: str, idempotency_key: str) -> None:
    with world() as db:
        db.execute(
            "INSERT OR IGNORE INTO payments SELECT ?, order_id, -cents FROM payments WHERE key = ?",
            (idempotency_key, payment),
        )


@kit.tool(effect="compensable", compensate=refund.bind(payment="result.payment"), probe=find_payment)
def charge(order_id: str, cents: int, idempotency_key: str) -> dict[str, str]:
    """Take the money for an order."""
    with world() as db:
        db.execute("INSERT OR IGNORE INTO payments VALUES (?, ?, ?)", (idempotency_key, order_id, cents))
    if DIE_WHEN_CHARGED:
        os.kill(os.getpid(), signal.SIGKILL)  # The money is taken, and the outcome is not recorded.
    return {"payment": idempotency_key}


# -- the invoice: an irreversible call asks by itself; a credit note makes it compensable -----------------------------


def write_invoice(order_id: str, cents: int, idempotency_key: str) -> str:
    """Write an invoice."""
    with world() as db:
        db.execute("INSERT OR IGNORE INTO invoices VALUES (?, ?, ?)", (idempotency_key, order_id, cents))
    return f"invoice for {order_id}"


@compensator("orders.credit_note", safe_if_absent=True, idempotent=True)
def credit_note(invoice: str) -> None:
    with world() as db:
        db.execute(
            "INSERT OR IGNORE INTO invoices SELECT key || ':credit', order_id, -cents FROM invoices WHERE key = ?",
            (invoice,),
        )


kit.declare("place_order", effect="compensable", compensate=cancel_order.bind(order_id="result"), probe=find_order)
kit.declare(
    "reserve",
    effect="reversible",
    compensate=restock.bind(sku="kwargs.sku", before="result.before", ours="result.ours"),
)
kit.declare("write_invoice", effect="compensable", compensate=credit_note.bind(invoice="key"))
