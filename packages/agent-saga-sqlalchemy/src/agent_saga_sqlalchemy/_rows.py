"""Rows as the log keeps them: each column in a form that the database itself reads back unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

Row = dict[str, Any]
"""A row, or the changed part of one: raw values by column name (SQLite's storage classes, PostgreSQL's text)."""
Key = tuple[Any, ...]

OWN: Final = {"agent_saga": "own"}
"""Execution options of our own statements: the hooks leave them alone."""
_VALUES_MAX: Final = 20_000
_KEYS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, as the database describes it.

    Attributes:
        read: SQL that gives its raw value.
        write: SQL that makes a value of the parameter `{}`.
        generated: the database computes it, and nobody may write it.
    """

    name: str
    read: str
    write: str
    generated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A foreign key of another table (`child`) to this one; actions in capitals, empty when the database refuses."""

    child: str
    columns: tuple[str, ...]
    parent_columns: tuple[str, ...]
    on_delete: str
    on_update: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the database says about a table.

    Attributes:
        name: as SQL spells it, the same in every session.
        key: the columns of its primary key.
        unique: the columns of each unique key, the primary one included.
        problem: why changes of it cannot be captured.
        overriding: SQL that lets an insert write identity columns.
        lock: SQL at the end of a select that locks what it finds.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    referenced_by: tuple[Reference, ...]
    problem: str | None
    overriding: str
    lock: str

    def key_of(self, row: Row) -> Key:
        """Return the key of a whole row."""
        return tuple(row[name] for name in self.key)

    def column(self, name: str) -> Column:
        """Return a column by name.

        Raises:
            LookupError: the table has none of this name (any more).
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise LookupError(f"table {self.name} has no column {name!r}: it was changed since the step")


def quoted(name: str) -> str:
    """Return an identifier in quotes, colons escaped for `text()`."""
    return '"' + name.replace('"', '""') + '"'


def run(connection: Connection, sql: str, values: Row | None = None) -> sa.CursorResult[Any]:
    """Run a statement of ours; `{name}` parameters are written `:name`."""
    return connection.execute(sa.text(sql), values or {}, execution_options=OWN)


def escaped(sql: str) -> str:
    """Return SQL without parameters in a form that `text()` passes on unchanged."""
    return sql.replace(":", "\\:")


def read_list(facts: Facts) -> str:
    """Return the select list of all columns."""
    return ", ".join(column.read for column in facts.columns)


def as_row(facts: Facts, values: Sequence[Any]) -> Row:
    """Return a fetched tuple as a row."""
    return {column.name: value for column, value in zip(facts.columns, values, strict=False)}


def condition(facts: Facts, columns: Sequence[str], keys: Sequence[Key]) -> tuple[str, Row]:
    """Return SQL that is true of the rows whose columns have these values, and its parameters."""
    values: Row = {}
    alternatives = []
    for key in keys:
        parts = []
        for name, value in zip(columns, key, strict=True):
            parameter = f"k{len(values)}"
            values[parameter] = value
            parts.append(f"{escaped(quoted(name))} = {facts.column(name).write.format(':' + parameter)}")
        alternatives.append(" AND ".join(parts))
    return " OR ".join(f"({one})" for one in alternatives), values


def find(connection: Connection, facts: Facts, keys: Sequence[Key], columns: Sequence[str] = ()) -> list[Row]:
    """Return, and lock, the rows whose key (or `columns`) has one of these values."""
    rows: list[Row] = []
    wanted = list(dict.fromkeys(key for key in keys if None not in key))
    for begin in range(0, len(wanted), _KEYS_MAX):
        where, values = condition(facts, columns or facts.key, wanted[begin : begin + _KEYS_MAX])
        sql = f"SELECT {escaped(read_list(facts))} FROM {escaped(facts.name)} WHERE {where}{facts.lock}"  # noqa: S608 - quoted names.
        rows += [as_row(facts, found) for found in run(connection, sql, values)]
    return rows


def insert(connection: Connection, facts: Facts, rows: Sequence[Row]) -> None:
    """Insert rows; as few statements as can be, because rows of one table may refer to each other."""
    columns = [facts.column(name) for name in rows[0] if not facts.column(name).generated]
    names = ", ".join(escaped(quoted(column.name)) for column in columns)
    for part in _parts(rows, len(columns)):
        values: Row = {}
        tuples = []
        for row in part:
            first = len(values)
            values |= {f"v{first + i}": row[column.name] for i, column in enumerate(columns)}
            tuples.append(", ".join(column.write.format(f":v{first + i}") for i, column in enumerate(columns)))
        lines = ", ".join(f"({one})" for one in tuples)
        run(connection, f"INSERT INTO {escaped(facts.name)} ({names}) {facts.overriding}VALUES {lines}", values)


def delete(connection: Connection, facts: Facts, keys: Sequence[Key]) -> None:
    """Delete rows by key."""
    for part in _parts(keys, len(facts.key)):
        where, values = condition(facts, facts.key, part)
        run(connection, f"DELETE FROM {escaped(facts.name)} WHERE {where}", values)  # noqa: S608


def update(connection: Connection, facts: Facts, key: Key, changed: Row) -> None:
    """Write some columns of the row with this key."""
    columns = [facts.column(name) for name in changed if not facts.column(name).generated]
    if not columns:
        return
    where, values = condition(facts, facts.key, [key])
    values |= {f"v{i}": changed[column.name] for i, column in enumerate(columns)}
    assigned = ", ".join(
        f"{escaped(quoted(column.name))} = {column.write.format(f':v{i}')}" for i, column in enumerate(columns)
    )
    run(connection, f"UPDATE {escaped(facts.name)} SET {assigned} WHERE {where}", values)  # noqa: S608


def _parts(items: Sequence[Any], width: int) -> Iterator[Sequence[Any]]:
    size = max(1, _VALUES_MAX // max(width, 1))
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
