"""Six tools for six frameworks, over a database, files and an HTTP service; also what recovery imports.

The world is in the folder MIXED_WORLD, the service at MIXED_BANK. MIXED_FAIL names a tool that raises instead of
acting, MIXED_KILL one that kills its process, `before:NAME` or `after:NAME` its effect.
"""

import json
import os
import signal
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path

from agent_saga import ALREADY_DONE, AgentKit, Conflict, Landed, NotLanded, compensator

WORLD = Path(os.environ.get("MIXED_WORLD", "."))
kit = AgentKit("agent-saga.db")  # in the working folder, which is the world's


def open_world(folder):
    """Use another world from now on."""
    global WORLD
    WORLD = Path(folder)
    os.chdir(folder)


def set_up():
    """Make the world as it is before any run."""
    (WORLD / "site").mkdir()
    (WORLD / "outbox").mkdir()
    (WORLD / "site" / "index.html").write_text("welcome")
    with database() as db:
        db.executescript(
            "CREATE TABLE rooms(room TEXT, key TEXT UNIQUE); CREATE TABLE users(name TEXT PRIMARY KEY, role TEXT);"
            "CREATE TABLE grants(key TEXT PRIMARY KEY, name TEXT, before TEXT, after TEXT);"
            "INSERT INTO users VALUES('ann', 'reader')"
        )


class database:
    """A connection whose transaction commits at the end, and which is closed."""

    def __enter__(self):
        self.db = sqlite3.connect(WORLD / "world.db", timeout=30)
        return self.db

    def __exit__(self, *error):
        (self.db.rollback if error[0] else self.db.commit)()
        self.db.close()


def call_bank(path, body=None, key=""):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        os.environ["MIXED_BANK"] + path, data, {"Idempotency-Key": key, "Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def at(moment, name):
    if os.environ.get("MIXED_KILL") == f"{moment}:{name}":
        os.kill(os.getpid(), signal.SIGKILL)
    if moment == "before" and os.environ.get("MIXED_FAIL") == name:
        raise RuntimeError(f"{name} is down")


def effect(name):
    """Make a body's effect one that can fail, or end the process."""

    def decorate(body):
        def run(**kwargs):
            at("before", name)
            result = body(**kwargs)
            at("after", name)
            return result

        return run

    return decorate


# -- the bodies: each framework wraps one ---------------------------------------------------------------------------


@effect("reserve_room")
def reserve_room(room, idempotency_key):
    with database() as db:
        db.execute("INSERT OR IGNORE INTO rooms VALUES(?, ?)", (room, idempotency_key))
    return {"room": room, "key": idempotency_key}


@effect("publish_page")
def publish_page(slug, text):
    (WORLD / "site" / f"{slug}.html").write_text(text)
    return {"page": slug}


@effect("charge_card")
def charge_card(customer, amount, idempotency_key):
    return call_bank("/charge", {"customer": customer, "amount": amount}, idempotency_key)


@effect("book_courier")
def book_courier(parcel, idempotency_key):
    return call_bank("/courier", {"parcel": parcel}, idempotency_key)


@effect("grant_role")
def grant_role(name, role, idempotency_key):
    with database() as db:
        (before,) = db.execute("SELECT role FROM users WHERE name = ?", (name,)).fetchone()
        db.execute("UPDATE users SET role = ? WHERE name = ?", (role, name))
        db.execute("INSERT INTO grants VALUES(?, ?, ?, ?)", (idempotency_key, name, before, role))
    return {"key": idempotency_key}


@effect("notify_team")
def notify_team(team, text):
    (WORLD / "outbox" / f"{team}.txt").write_text(text)
    return {"team": team}


# -- the compensations ----------------------------------------------------------------------------------------------


@compensator("mixed.release", safe_if_absent=True, idempotent=True)
def release(key: str) -> None:
    with database() as db:
        db.execute("DELETE FROM rooms WHERE key = ?", (key,))


@compensator("mixed.unpublish", safe_if_absent=True, idempotent=True)
def unpublish(slug: str, text: str) -> object:
    file = WORLD / "site" / f"{slug}.html"
    if not file.exists():
        return ALREADY_DONE
    if file.read_text() != text:
        raise Conflict(before=None, ours=text, now=file.read_text())
    file.unlink()
    return None


def find_order(key, kwargs):
    try:
        return Landed(call_bank(f"/any?key={key}"))
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return NotLanded()


@compensator("mixed.refund", idempotent=True)
def refund(order: str, idempotency_key: str) -> None:
    call_bank("/charge/undo", {"of": order}, idempotency_key)


@compensator("mixed.cancel_courier", idempotent=True)
def cancel_courier(order: str, idempotency_key: str) -> None:
    call_bank("/courier/undo", {"of": order}, idempotency_key)


def find_grant(key, kwargs):
    with database() as db:
        found = db.execute("SELECT 1 FROM grants WHERE key = ?", (key,)).fetchone()
    return NotLanded() if found is None else Landed({"key": key})


@compensator("mixed.revoke", idempotent=True)
def revoke(key: str) -> object:
    with database() as db:
        found = db.execute("SELECT name, before, after FROM grants WHERE key = ?", (key,)).fetchone()
        if found is None:
            return ALREADY_DONE
        name, before, after = found
        (now,) = db.execute("SELECT role FROM users WHERE name = ?", (name,)).fetchone()
        if now != after:
            raise Conflict(before=before, ours=after, now=now)
        db.execute("UPDATE users SET role = ? WHERE name = ?", (before, name))
        db.execute("DELETE FROM grants WHERE key = ?", (key,))
    return None


@compensator("mixed.unsend", safe_if_absent=True, idempotent=True)
def unsend(team: str) -> None:
    (WORLD / "outbox" / f"{team}.txt").unlink(missing_ok=True)


kit.declare("reserve_room", effect="reversible", compensate=release.bind(key="key"))
kit.declare("publish_page", effect="reversible", compensate=unpublish.bind(slug="kwargs.slug", text="kwargs.text"))
kit.declare("charge_card", effect="compensable", compensate=refund.bind(order="result.key"), probe=find_order)
kit.declare("book_courier", effect="compensable", compensate=cancel_courier.bind(order="result.key"), probe=find_order)
kit.declare("grant_role", effect="reversible", compensate=revoke.bind(key="result.key"), probe=find_grant)
kit.declare("notify_team", effect="compensable", compensate=unsend.bind(team="kwargs.team"))
TOOLS = ("reserve_room", "publish_page", "charge_card", "book_courier", "grant_role", "notify_team")
