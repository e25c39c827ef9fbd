"""The demo's outside world: a bank, a cloud and a registrar in one SQLite file.

It counts attempts apart from effects and knows nothing of sagas. What the demo says of the world is read from here.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA: Final = """
CREATE TABLE attempts (no INTEGER PRIMARY KEY, tool TEXT, subject TEXT, key TEXT, answer TEXT, effect INTEGER);
CREATE TABLE charges (id TEXT PRIMARY KEY, key TEXT UNIQUE, customer TEXT, cents INTEGER, refunded INTEGER DEFAULT 0);
CREATE TABLE servers (id TEXT PRIMARY KEY, key TEXT UNIQUE, customer TEXT, size TEXT, running INTEGER DEFAULT 1);
CREATE TABLE domains (name TEXT PRIMARY KEY, customer TEXT);
INSERT INTO domains VALUES ('shop.example', 'zoe');
"""
STANDING: Final = """
SELECT id || ' paid ' || printf('%.2f', cents / 100.0) FROM charges WHERE customer = :customer AND NOT refunded
UNION ALL SELECT id || ' running' FROM servers WHERE customer = :customer AND running
UNION ALL SELECT name || ' registered' FROM domains WHERE customer = :customer
"""


class DomainTaken(Exception):
    """The registrar refused: the name belongs to somebody else, and nothing has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request that the world received.

    Attributes:
        no: its number, from 1.
        key: the idempotency key that came with it, if one did.
        answer: what the world answered, for people.
        effect: whether the world changed.
    """

    no: int
    tool: str
    subject: str
    key: str | None
    answer: str
    effect: bool


class World:
    """A client of the world in a file.

    Args:
        path: the file; see `create`.
        before_answer: called when an effect is in the file and its answer not yet on its way back.
    """

    def __init__(self, path: Path, *, before_answer: Callable[[], None] | None = None) -> None:
        self.path: Final = path
        self._before_answer = before_answer

    @classmethod
    def create(cls, path: Path) -> World:
        """Make a world in which `shop.example` belongs to zoe and nothing else is there."""
        with closing(sqlite3.connect(path)) as db:
            db.executescript(SCHEMA)
        return cls(path)

    # -- requests -----------------------------------------------------------------------------------------------

    def charge(self, customer: str, cents: int, key: str | None) -> str:
        """Take money and return the charge's id; a key that was seen before gets the charge that it got then."""
        with self._request() as db:
            known = db.execute("SELECT id FROM charges WHERE key = ?", (key,)).fetchone()
            charge_id: str = known[0] if known else _new_id(db, "charges", "ch")
            if not known:
                db.execute("INSERT INTO charges VALUES (?, ?, ?, ?, 0)", (charge_id, key, customer, cents))
            _note(db, "charge", f"{customer}, {cents / 100:.2f}", key, charge_id, effect=not known)
        return self._answer(charge_id)

    def refund(self, charge_id: str, key: str | None) -> None:
        """Give a charge back; one that was given back stays so."""
        with self._request() as db:
            paid = db.execute("SELECT cents FROM charges WHERE id = ? AND NOT refunded", (charge_id,)).fetchone()
            db.execute("UPDATE charges SET refunded = 1 WHERE id = ?", (charge_id,))
            answer = f"{paid[0] / 100:.2f} refunded" if paid else "was refunded"
            _note(db, "refund", charge_id, key, answer, effect=bool(paid))
        self._answer(charge_id)

    def launch_server(self, customer: str, size: str, key: str | None) -> str:
        """Start a server and return its id; keys work as for charges."""
        with self._request() as db:
            known = db.execute("SELECT id FROM servers WHERE key = ?", (key,)).fetchone()
            server_id: str = known[0] if known else _new_id(db, "servers", "srv")
            if not known:
                db.execute("INSERT INTO servers VALUES (?, ?, ?, ?, 1)", (server_id, key, customer, size))
            _note(db, "launch_server", f"{customer}, {size}", key, server_id, effect=not known)
        return self._answer(server_id)

    def stop_server(self, server_id: str) -> None:
        """Stop a server; one that was stopped stays so."""
        with self._request() as db:
            changed = db.execute("UPDATE servers SET running = 0 WHERE id = ? AND running", (server_id,)).rowcount > 0
            _note(db, "stop_server", server_id, None, "stopped" if changed else "was stopped", effect=changed)
        self._answer(server_id)

    def register_domain(self, customer: str, name: str) -> str:
        """Register a name.

        Raises:
            DomainTaken: it belongs to somebody.
        """
        with self._request() as db:
            taken = db.execute("SELECT customer FROM domains WHERE name = ?", (name,)).fetchone()
            answer = f"DomainTaken: it belongs to {taken[0]}" if taken else name
            if not taken:
                db.execute("INSERT INTO domains VALUES (?, ?)", (name, customer))
            _note(db, "register_domain", f"{customer}, {name}", None, answer, effect=not taken)
        if taken:
            raise DomainTaken(f"{name} belongs to {taken[0]}")
        return self._answer(name)

    def release_domain(self, name: str) -> None:
        """Give a name back."""
        with self._request() as db:
            changed = db.execute("DELETE FROM domains WHERE name = ?", (name,)).rowcount > 0
            _note(db, "release_domain", name, None, "released" if changed else "was free", effect=changed)
        self._answer(name)

    # -- questions: they change nothing, and are no attempts ------------------------------------------------------

    def charge_of(self, key: str) -> str | None:
        """Return the id of the charge that was made under this key, or None."""
        return next((row[0] for row in self._ask("SELECT id FROM charges WHERE key = :key", key=key)), None)

    def is_refunded(self, charge_id: str) -> bool:
        """Tell whether a charge was given back."""
        return bool(self._ask("SELECT 1 FROM charges WHERE id = :id AND refunded", id=charge_id))

    def is_stopped(self, server_id: str) -> bool:
        """Tell whether a server was stopped."""
        return bool(self._ask("SELECT 1 FROM servers WHERE id = :id AND NOT running", id=server_id))

    def is_free(self, name: str) -> bool:
        """Tell whether a name belongs to nobody."""
        return not self._ask("SELECT 1 FROM domains WHERE name = :name", name=name)

    def standing(self, customer: str) -> list[str]:
        """Return what a customer has: charges not given back, servers that run, names."""
        return [row[0] for row in self._ask(STANDING, customer=customer)]

    def attempts(self, *, after: int = 0) -> list[Attempt]:
        """Return the requests received, in order.

        Args:
            after: only those with a higher number.
        """
        rows = self._ask("SELECT * FROM attempts WHERE no > :after ORDER BY no", after=after)
        return [
            Attempt(no=no, tool=tool, subject=subject, key=key, answer=answer, effect=bool(effect))
            for no, tool, subject, key, answer, effect in rows
        ]

    # -- the file -----------------------------------------------------------------------------------------------

    @contextmanager
    def _request(self) -> Iterator[sqlite3.Connection]:
        """Give a transaction: an attempt and its effect are in the file together."""
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    def _ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as db:
            return db.execute(query, values).fetchall()

    def _answer(self, text: str) -> str:
        if self._before_answer is not None:
            self._before_answer()
        return text


def _new_id(db: sqlite3.Connection, table: str, prefix: str) -> str:
    (count,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - the names are ours.
    return f"{prefix}_{count + 1}"


def _note(db: sqlite3.Connection, tool: str, subject: str, key: str | None, answer: str, *, effect: bool) -> None:
    db.execute("INSERT INTO attempts VALUES (NULL, ?, ?, ?, ?, ?)", (tool, subject, key, answer, effect))
