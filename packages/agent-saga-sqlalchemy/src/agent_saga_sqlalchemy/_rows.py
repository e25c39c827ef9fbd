"""Rows as the log keeps them: each column in a form that the database itself reads back unchanged."""

from __future__ import annotations

import json
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
_KEYS_MAX: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, as the database describes it.

    Attributes:
        read: SQL that gives its raw value.
        write: SQL that makes a value of the parameter `{}`.
        generated: the database computes it, and nobody may write it.
        kind: of a column of PostgreSQL, the name of its type.
    """

    name: str
    read: str
    write: str
    generated: bool
    kind: str = ""


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
        unique_names: what PostgreSQL calls them, in the same order.
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
    unique_names: tuple[str, ...] = ()

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
    """Return an identifier in quotes."""
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


def condition(facts: Facts, columns: Sequence[str], keys: Sequence[Key], name: str = "k") -> tuple[str, Row]:
    """Return SQL that is true of the rows whose columns have one of these values, and its parameters.

    Few parameters, and no chain of OR: neither database takes either of them by the thousand.
    """
    those = [facts.column(column) for column in columns]
    left = ", ".join(f"{escaped(facts.name)}.{escaped(quoted(column.name))}" for column in those)
    left = f"({left})" if len(those) > 1 else left
    if facts.lock and not any(column.kind.endswith("]") for column in those):
        arrays = {f"{name}{i}": _array([key[i] for key in keys]) for i in range(len(those))}
        listed = ", ".join(f"CAST(CAST(:{name}{i} AS text) AS {escaped(c.kind)}[])" for i, c in enumerate(those))
        return f"{left} IN (SELECT * FROM unnest({listed}))", arrays  # noqa: S608 - quoted names.
    if not facts.lock and all(_is_plain(value) for key in keys for value in key):
        listed = ", ".join(f"json_extract(value, '$[{i}]')" for i in range(len(those)))
        sql = f"{left} IN (SELECT {listed} FROM json_each(:{name}))"  # noqa: S608 - quoted names.
        return sql, {name: json.dumps([list(key) for key in keys])}
    values: Row = {f"{name}{i}_{j}": value for i, key in enumerate(keys) for j, value in enumerate(key)}
    rows = (
        ", ".join(column.write.format(f":{name}{i}_{j}") for j, column in enumerate(those)) for i in range(len(keys))
    )
    return f"{left} IN (VALUES {', '.join(f'({row})' for row in rows)})", values


def _array(values: Sequence[Any]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\""})
    return "{" + ",".join(f'"{str(value).translate(escapes)}"' for value in values) + "}"


def _is_plain(value: Any) -> bool:
    """Tell whether JSON in SQLite gives a value back as it was."""
    return type(value) is int or (type(value) is str and "\0" not in value)


def find(
    connection: Connection, facts: Facts, keys: Sequence[Key], columns: Sequence[str] = (), *, lock: bool = True
) -> list[Row]:
    """Return, and lock, the rows whose key (or `columns`) has one of these values."""
    rows: list[Row] = []
    wanted = list(dict.fromkeys(key for key in keys if None not in key))
    for begin in range(0, len(wanted), _KEYS_MAX):
        where, values = condition(facts, columns or facts.key, wanted[begin : begin + _KEYS_MAX])
        sql = f"SELECT {escaped(read_list(facts))} FROM {escaped(facts.name)} WHERE {where}{facts.lock if lock else ''}"  # noqa: S608 - quoted names.
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
    for begin in range(0, len(keys), _KEYS_MAX):
        where, values = condition(facts, facts.key, keys[begin : begin + _KEYS_MAX])
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


def update_many(connection: Connection, facts: Facts, rows: Sequence[tuple[Key, Row]]) -> None:
    """Write the same columns of many rows, of PostgreSQL, by key, in as few statements as can be."""
    columns = [facts.column(name) for name in rows[0][1] if not facts.column(name).generated]
    those = [facts.column(name) for name in facts.key]
    names = [f"k{i}" for i in range(len(those))] + [f"v{i}" for i in range(len(columns))]
    table = escaped(facts.name)
    assigned = ", ".join(f"{escaped(quoted(column.name))} = agent_saga_new.v{i}" for i, column in enumerate(columns))
    where = " AND ".join(f"{table}.{escaped(quoted(c.name))} = agent_saga_new.k{i}" for i, c in enumerate(those))
    for part in _parts(rows if columns else [], len(names)):
        values: Row = {}
        tuples = []
        for number, (key, changed) in enumerate(part):
            row = (*key, *(changed[column.name] for column in columns))
            values |= {f"p{number}_{i}": value for i, value in enumerate(row)}
            made = (c.write.format(f":p{number}_{i}") for i, c in enumerate((*those, *columns)))
            tuples.append(f"({', '.join(made)})")
        source = f"(VALUES {', '.join(tuples)}) AS agent_saga_new({', '.join(names)})"
        run(connection, f"UPDATE {table} SET {assigned} FROM {source} WHERE {where}", values)  # noqa: S608


def _parts(items: Sequence[Any], width: int) -> Iterator[Sequence[Any]]:
    size = max(1, _VALUES_MAX // max(width, 1))
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
