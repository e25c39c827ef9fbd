"""Compensation: one transaction that locks what the step changed, compares it with what it left, and writes by key."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import exc
from sqlalchemy.engine import Connection

from agent_saga import ALREADY_DONE, Conflict
from agent_saga_sqlalchemy import _guard_rows as guard_rows
from agent_saga_sqlalchemy._databases import Database
from agent_saga_sqlalchemy._packing import unpacked
from agent_saga_sqlalchemy._rows import Facts, Key, Reference, Row, delete, find, insert, run, update, update_many
from agent_saga_sqlalchemy._transaction import key_after, key_before, same

Change = dict[str, Any]


def restore(connection: Connection, database: Database, transaction_id: str, kept: Any) -> Any:
    """Take the changes of a step back, once, in the transaction of the connection.

    Args:
        kept: the changes, as the log keeps them.

    Returns:
        ALREADY_DONE where they are taken back, or never were committed and cannot be any more.

    Raises:
        Conflict: somebody changed one of the rows since; nothing may be committed.
    """
    database.prepare_restore(connection)
    guard_rows.create(connection, database)
    if not guard_rows.mark(connection, transaction_id, "compensation"):
        return ALREADY_DONE
    if never_landed(connection, transaction_id):
        return ALREADY_DONE
    changes = _changes(connection, kept)
    known: dict[str, Facts] = {}

    def facts_of(name: str) -> Facts:
        if name not in known:
            known[name] = database.describe(connection, name)
        return known[name]

    left = Left(changes)
    try:
        left.check(connection, facts_of)
        _write(connection, changes, facts_of)
        left.check_restored(connection, facts_of)
        if isinstance(kept, dict) and "images" in kept:
            guard_rows.forget_images(connection, kept)
    except exc.IntegrityError as error:
        raise Conflict(f"the database refuses it, because of what others wrote since: {error.orig}") from error
    return None


def _changes(connection: Connection, kept: Any) -> Sequence[Change]:
    if not isinstance(kept, dict):
        return kept  # type: ignore[no-any-return]
    return unpacked(kept["zlib"] if "zlib" in kept else guard_rows.images_of(connection, kept))


def never_landed(connection: Connection, transaction_id: str) -> bool:
    """Tell whether the step's transaction is not committed; from now on it cannot be."""
    if guard_rows.mark(connection, transaction_id, "step", "void"):
        return True
    return guard_rows.state_of(connection, transaction_id, "step") == "void"


def _write(connection: Connection, changes: Sequence[Change], facts_of: Callable[[str], Facts]) -> None:
    """Go back through the states that the step went through; rows of one table that follow each other at once."""
    for (kind, table), group in itertools.groupby(reversed(changes), _kind):
        facts, those = facts_of(table), list(group)
        if kind == "delete":
            insert(connection, facts, [change["before"] for change in those])
        elif kind == "insert":
            delete(connection, facts, [key_after(change) for change in those])
        else:
            _write_back(connection, facts, those)


def _write_back(connection: Connection, facts: Facts, changes: Sequence[Change]) -> None:
    """Update rows, in an order in which no unique key is taken twice: the order of their statement was such a one.

    What a foreign key changed together with its parent is back already, with it.
    """
    todo = [change for change in changes if not change.get("follows")]
    follows = [change for change in changes if change.get("follows")]
    there = {facts.key_of(row): row for row in find(connection, facts, [key_before(change) for change in follows])}
    for change in follows:
        row = there.get(key_before(change))
        if row is None or any(not same(row[name], value) for name, value in change["before"].items()):
            todo.append(change)
    if facts.lock and len(todo) > 1 and _at_once(connection, facts, todo):
        return
    while todo:
        tries = [(change, _tried(connection, update, facts, key_after(change), change["before"])) for change in todo]
        blocked = [change for change, error in tries if error is not None]
        if len(blocked) == len(todo) and tries[0][1] is not None:
            raise tries[0][1]
        todo = blocked


def _at_once(connection: Connection, facts: Facts, changes: Sequence[Change]) -> bool:
    """PostgreSQL: update rows in one statement, at whose end foreign keys are checked; False where a key is taken."""
    keys = [key_after(change) for change in changes]
    if len(set(keys)) < len(keys):
        return False
    now = {facts.key_of(row): row for row in find(connection, facts, keys)}
    names = dict.fromkeys(name for change in changes for name in change["before"])
    if not all(key in now for key in keys):
        return False
    rows = [
        (key, {name: change["before"].get(name, now[key][name]) for name in names})
        for key, change in zip(keys, changes, strict=True)
    ]
    return _tried(connection, update_many, facts, rows) is None


def _tried(connection: Connection, write: Callable[..., None], *arguments: Any) -> exc.IntegrityError | None:
    """Write in a savepoint; return the error that it was rolled back for."""
    run(connection, "SAVEPOINT agent_saga_write")
    try:
        write(connection, *arguments)
    except exc.IntegrityError as error:
        run(connection, "ROLLBACK TO SAVEPOINT agent_saga_write")
        return error
    finally:
        run(connection, "RELEASE SAVEPOINT agent_saga_write")
    return None


def _kind(change: Change) -> tuple[str, str]:
    if change["before"] is None:
        return "insert", change["table"]
    return ("delete" if change["after"] is None else "update"), change["table"]


class Left:
    """What a step has left, by table and key.

    Attributes:
        rows: the columns that it wrote, with their values; None where there is no row.
        made: the rows that it inserted.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        """Follow the changes in order."""
        self.rows: dict[tuple[str, Key], Row | None] = {}
        self.made: set[tuple[str, Key]] = set()
        self._before: dict[tuple[str, Key], Row | None] = {}
        self._origin: dict[tuple[str, Key], tuple[str, Key] | None] = {}  # Where a row was before the step.
        for change in changes:
            self._follow(change)

    def _follow(self, change: Change) -> None:
        old, new = (change["table"], key_before(change)), (change["table"], key_after(change))
        if change["before"] is None:
            self._before.setdefault(new, None)
            self._origin[new] = None
            self.rows[new] = dict(change["after"])
            self.made.add(new)
            return
        origin, known = self._origin.pop(old, old), self.rows.get(old) or {}
        if origin is not None:  # The first image of a column is the one from before the step.
            self._before[origin] = {**change["before"], **(self._before.get(origin) or {})}
        made = old in self.made
        self.made.discard(old)
        self.rows[old] = None
        if change["after"] is not None:
            self._before.setdefault(new, None)
            self._origin[new] = origin
            self.rows[new] = {**known, **change["after"]}
            if made:
                self.made.add(new)

    def check(self, connection: Connection, facts_of: Callable[[str], Facts]) -> None:
        """Lock what is there now, and compare.

        Raises:
            Conflict: it is not what the step left.
        """
        for table in dict.fromkeys(name for name, _ in self.rows):
            facts = facts_of(table)
            keys = [key for name, key in self.rows if name == table]
            now = {facts.key_of(row): row for row in find(connection, facts, keys)}
            for key in keys:
                self._compare((table, key), now.get(key))
            for reference in facts.referenced_by:
                ours = [self.rows[one] for one in self.rows if one[0] == table and self._takes(one, reference)]
                if ours:
                    parents = [tuple(row[name] for name in reference.parent_columns) for row in ours if row]
                    child = facts_of(reference.child)
                    for row in find(connection, child, parents, reference.columns):
                        self._check_dependent(child, row, reference.columns, table)

    def _takes(self, place: tuple[str, Key], reference: Reference) -> bool:
        """Tell whether to take a row back would change rows that refer to it."""
        row = self.rows[place]
        if row is None or not row.keys() >= set(reference.parent_columns):
            return False
        if place in self.made:
            return bool(reference.on_delete)
        return reference.on_update in {"SET NULL", "SET DEFAULT"}

    def check_restored(self, connection: Connection, facts_of: Callable[[str], Facts]) -> None:
        """Read what is there now.

        Raises:
            LookupError: it is not what was there before the step; nothing may be committed.
        """
        for table in dict.fromkeys(name for name, _ in self._before):
            facts = facts_of(table)
            keys = [key for name, key in self._before if name == table]
            now = {facts.key_of(row): row for row in find(connection, facts, keys)}
            written = {column.name for column in facts.columns if not column.generated}
            for key in keys:
                before, row = self._before[table, key], now.get(key)
                right = (before is None) == (row is None) and all(
                    same(value, (row or {})[name]) for name, value in (before or {}).items() if name in written
                )
                if not right:
                    raise LookupError(
                        f"{table} {', '.join(map(str, key))} could not be restored: it was {before!r}, and what could "
                        f"be written is {row!r}; nothing was committed"
                    )

    def _compare(self, place: tuple[str, Key], now: Row | None) -> None:
        ours = self.rows[place]
        if ours is None and now is None:
            return
        if ours is None or now is None:
            raise self._conflict(place, ours, now)
        missing = [name for name in ours if name not in now]
        if missing:
            raise LookupError(f"{place[0]} has no column {', '.join(missing)} any more: the table was changed")
        if any(not same(ours[name], now[name]) for name in ours):
            differs = [name for name in ours if not same(ours[name], now[name])]
            raise self._conflict(place, {n: ours[n] for n in differs}, {n: now[n] for n in differs})

    def _conflict(self, place: tuple[str, Key], ours: Row | None, now: Row | None) -> Conflict:
        before = self._before.get(place)
        if before is not None and ours is not None:
            before = {name: before[name] for name in ours if name in before}
        what = f"{place[0]} {', '.join(map(str, place[1]))}"
        return Conflict(
            f"{what} was changed since: before {before!r}, ours {ours!r}, now {now!r}",
            before=before,
            ours=ours,
            now=now,
        )

    def _check_dependent(self, child: Facts, row: Row, columns: Sequence[str], table: str) -> None:
        """A row that refers to one of ours, and is not ours, would go with it, or lose its reference."""
        place = (child.name, child.key_of(row) if child.key else ())
        ours = self.rows.get(place)
        if ours is None or (place not in self.made and not set(columns) <= ours.keys()):
            raise Conflict(
                f"{child.name} {', '.join(map(str, place[1]))} refers to a row of {table} that the step inserted, and "
                "was written since",
                before=None,
                ours=None,
                now=row,
            )
