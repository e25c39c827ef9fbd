"""What one database transaction has changed since it began, as a part of a saga."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy.engine import Connection

from agent_saga_sqlalchemy._rows import Facts, Key, Row

_HERE: Final = "agent_saga"


@dataclass(slots=True)
class Work:
    """The captured changes of a transaction.

    Attributes:
        saga_id: the saga inside which its statements run.
        changes: in order; each has `table`, `key`, and the row `before` and `after` it (None: there was none).
        marks: the open savepoints, each with its name and how many changes there were at it.
        broken: why it must not commit.
        broken_at: how many savepoints were open then: a rollback to one of them mends it.
        committed: the database has it.
        pending: what the statement that runs now is going to change.
        facts: of the tables that it has met.
    """

    saga_id: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    changes: list[dict[str, Any]] = field(default_factory=list)
    marks: list[tuple[str, int]] = field(default_factory=list)
    broken: str | None = None
    broken_at: int = 0
    committed: bool = False
    pending: Any = None
    facts: dict[tuple[str | None, str], Facts] = field(default_factory=dict)

    def add(self, facts: Facts, before: Row | None, after: Row | None, *, follows: bool = False) -> None:
        """Note a change of one row: of an update only what differs; `follows`: the database made it with another."""
        if before is None or after is None:
            row = after if before is None else before
            if row is None:
                return
            self.changes.append({"table": facts.name, "key": _named(facts, row), "before": before, "after": after})
            return
        differs = [name for name in before if not same(before[name], after.get(name))]
        if differs:
            self.changes.append(
                {
                    "table": facts.name,
                    "key": _named(facts, after),
                    "before": {name: before[name] for name in differs},
                    "after": {name: after[name] for name in differs},
                    **({"follows": True} if follows else {}),
                }
            )

    def breaks(self, reason: str) -> None:
        """The transaction, or what is open of it since its last savepoint, must not commit."""
        if self.broken is None:
            self.broken, self.broken_at = reason, len(self.marks)

    def rolled_back_to(self, name: str) -> None:
        """Forget what was changed since a savepoint, and the savepoints inside of it."""
        place = self._place(name)
        self.pending = None
        if place is None:
            self.breaks(f"savepoint {name!r} was rolled back, and began before the saga did")
            return
        del self.changes[self.marks[place][1] :]
        del self.marks[place:]
        if self.broken_at > place:
            self.broken, self.broken_at = None, 0

    def released(self, name: str) -> None:
        """Keep what was changed since a savepoint."""
        place = self._place(name)
        if place is not None:
            del self.marks[place:]
            self.broken_at = min(self.broken_at, place)

    def _place(self, name: str) -> int | None:
        return next((i for i, (known, _) in enumerate(self.marks) if known == name), None)


def same(one: Any, other: Any) -> bool:
    """Compare raw values: 1 and 1.0 are two (SQLite keeps them apart)."""
    return type(one) is type(other) and one == other


def _named(facts: Facts, row: Row) -> Row:
    return {name: row[name] for name in facts.key}


def key_before(change: dict[str, Any]) -> Key:
    """Return the key that a changed row had before."""
    return tuple((change["before"] or {}).get(name, value) for name, value in change["key"].items())


def key_after(change: dict[str, Any]) -> Key:
    """Return the key that a changed row has since."""
    return tuple(change["key"].values())


def work_of(connection: Connection) -> Work | None:
    """Return the work of the open transaction, if it has any."""
    return connection.info.get(_HERE)


def begin_work(connection: Connection, saga_id: str) -> Work:
    """Return the work of the open transaction, begun now if need be."""
    work = work_of(connection)
    if work is None:
        work = connection.info[_HERE] = Work(saga_id)
    return work


def forget_work(connection: Connection) -> None:
    """The transaction is over."""
    if not connection.invalidated and not connection.closed:
        connection.info.pop(_HERE, None)
