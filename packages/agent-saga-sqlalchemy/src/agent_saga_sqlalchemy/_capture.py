"""Before and after one statement: which rows it changes, and what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.sql import dml, visitors
from sqlalchemy.sql.elements import BindParameter

from agent_saga_sqlalchemy import _inserts as inserts
from agent_saga_sqlalchemy._rows import OWN, Facts, Key, Reference, Row, as_row, find
from agent_saga_sqlalchemy._statements import NotCapturable
from agent_saga_sqlalchemy._transaction import Work

FactsOf = Callable[[str], Facts]


@dataclass(slots=True, kw_only=True)
class _Kid:
    """A row of another table that the database itself is going to change."""

    facts: Facts
    row: Row
    parent: Key
    reference: Reference


@dataclass(slots=True, kw_only=True)
class Pending:
    """A statement on its way.

    Attributes:
        rows: the rows that it may change, by key.
        new_keys: what their keys become, where the statement sets them.
        kids: what foreign keys change with them, innermost first.
    """

    facts: Facts
    table: sa.Table
    statement: dml.UpdateBase
    parameters: Sequence[Mapping[str, Any]]
    rows: dict[Key, Row] = field(default_factory=dict)
    new_keys: dict[Key, Key] = field(default_factory=dict)
    kids: list[_Kid] = field(default_factory=list)


def before(
    connection: Connection,
    work: Work,
    statement: dml.UpdateBase,
    parameters: Sequence[Mapping[str, Any]],
    *,
    facts: Facts,
    facts_of: FactsOf,
) -> dml.UpdateBase:
    """Read what the statement is going to change, and return the statement to run.

    Raises:
        NotCapturable: it cannot be captured.
    """
    table = table_of(statement)
    if not facts.key:
        raise NotCapturable(f"table {facts.name} has no primary key, so its rows cannot be found again")
    if facts.problem is not None:
        raise NotCapturable(f"table {facts.name} cannot be captured: {facts.problem}; the statement did not run")
    pending = Pending(facts=facts, table=table, statement=statement, parameters=parameters)
    if isinstance(statement, dml.Insert):
        statement, pending.rows = inserts.prepare(connection, statement, parameters, facts, table)
    elif isinstance(statement, dml.Update):
        _before_update(connection, statement, pending, facts_of)
    else:
        for given in parameters:
            pending.rows |= {facts.key_of(row): row for row, _ in _matching(connection, pending, given, [])}
        seen = {(facts.name, key) for key in pending.rows}
        pending.kids = _deleted_kids(connection, facts, list(pending.rows.values()), facts_of, seen)
    work.pending = pending
    return statement


def after(connection: Connection, work: Work, result: sa.CursorResult[Any]) -> None:
    """Read what the statement has left, and note the differences.

    Raises:
        NotCapturable: it changed more than was seen before; the transaction must not commit.
    """
    pending: Pending = work.pending
    work.pending = None
    if isinstance(pending.statement, dml.Insert):
        for old, new in inserts.finish(connection, pending, result):
            work.add(pending.facts, old, new)
        return
    if result.rowcount > len(pending.rows):
        raise NotCapturable(
            f"{result.rowcount} rows of {pending.facts.name} were changed and {len(pending.rows)} were seen before: "
            "another transaction added some meanwhile; run the transaction again"
        )
    left = {pending.facts.key_of(row): row for row in find(connection, pending.facts, _keys_now(pending))}
    kids = [(kid, _kid_now(connection, kid, left, pending)) for kid in pending.kids]
    for kid, now in kids:
        work.add(kid.facts, kid.row, now)
    for key, row in pending.rows.items():
        now = left.get(pending.new_keys.get(key, key))
        if now is None and isinstance(pending.statement, dml.Update):
            raise NotCapturable(f"an update moved a row of {pending.facts.name} where it cannot be found: {key}")
        work.add(pending.facts, row, now)


def table_of(statement: dml.UpdateBase) -> sa.Table:
    """Return the table itself: ORM statements carry an annotated copy."""
    table = statement.table
    assert isinstance(table, sa.Table)
    return table.metadata.tables.get(table.key, table)


def _keys_now(pending: Pending) -> list[Key]:
    return [pending.new_keys.get(key, key) for key in pending.rows]


# -- what a WHERE finds -----------------------------------------------------------------------------------------------


def _matching(
    connection: Connection, pending: Pending, given: Mapping[str, Any], extra: Sequence[Any]
) -> Iterable[tuple[Row, Key]]:
    """Yield, locked, the rows that the statement's WHERE finds, and the values of some expressions for each."""
    facts = pending.facts
    raw: list[Any] = [sa.literal_column(column.read).label(f"agent_saga_{i}") for i, column in enumerate(facts.columns)]
    query = sa.select(*raw, *(one.label(f"agent_saga_x{i}") for i, one in enumerate(extra))).select_from(pending.table)
    where = pending.statement.whereclause  # type: ignore[attr-defined]
    if where is not None:
        query = query.where(where)
    if facts.lock:
        query = query.with_for_update(of=pending.table)
    wanted = {part.key for part in visitors.iterate(query) if isinstance(part, BindParameter)}
    values = {name: value for name, value in given.items() if name in wanted}
    for found in connection.execute(query, values, execution_options=OWN).all():
        yield as_row(facts, found), tuple(found[len(facts.columns) :])


def _raw_value(facts: Facts, column: sa.Column[Any], expression: Any) -> Any:
    """Return an expression whose result is the raw value of what a column is set to."""
    if facts.lock:
        return sa.cast(sa.cast(expression, column.type), sa.Text)
    return sa.func.coalesce(expression, sa.null(), type_=sa.types.NullType())


# -- update -------------------------------------------------------------------------------------------------------


def _before_update(connection: Connection, statement: dml.Update, pending: Pending, facts_of: FactsOf) -> None:
    facts, columns = pending.facts, {column.name: column for column in pending.table.columns}
    constant: dict[Any, Any] = dict(getattr(statement, "_ordered_values", None) or statement._values or {})  # noqa: SLF001
    for given in pending.parameters:
        assigned = {getattr(column, "name", column): value for column, value in constant.items()}
        by_key = {column.key: column for column in pending.table.columns}
        assigned |= {
            by_key[key].name: sa.literal(value, by_key[key].type) for key, value in given.items() if key in by_key
        }
        moved = any(name in assigned for name in facts.key)
        extra = (
            [_raw_value(facts, columns[name], assigned.get(name, columns[name])) for name in facts.key] if moved else []
        )
        found = list(_matching(connection, pending, given, extra))
        for row, new_key in found:
            key = facts.key_of(row)
            pending.rows.setdefault(key, row)
            if moved:
                pending.new_keys[key] = new_key
        for reference in facts.referenced_by:
            if reference.on_update and not assigned.keys().isdisjoint(reference.parent_columns):
                pending.kids += _kids(connection, facts, [row for row, _ in found], reference, facts_of)


def _kids(
    connection: Connection, facts: Facts, rows: Sequence[Row], reference: Reference, facts_of: FactsOf
) -> list[_Kid]:
    """Return the rows that refer to these."""
    child = facts_of(reference.child)
    parents = {tuple(row[name] for name in reference.parent_columns): facts.key_of(row) for row in rows}
    return [
        _Kid(
            facts=child,
            row=row,
            parent=parents[tuple(row[name] for name in reference.columns)],
            reference=reference,
        )
        for row in find(connection, child, list(parents), reference.columns)
        if tuple(row[name] for name in reference.columns) in parents
    ]


def _kid_now(connection: Connection, kid: _Kid, left: Mapping[Key, Row], pending: Pending) -> Row | None:
    """Return what has become of a row that refers to a changed one; its key may contain what it refers by."""
    row = dict(kid.row)
    parent = left.get(pending.new_keys.get(kid.parent, kid.parent)) if kid.reference.on_update else None
    if isinstance(pending.statement, dml.Update) and parent is not None and kid.reference.on_update == "CASCADE":
        row |= {
            name: parent[other] for name, other in zip(kid.reference.columns, kid.reference.parent_columns, strict=True)
        }
    found = find(connection, kid.facts, [kid.facts.key_of(row)])
    if not found and isinstance(pending.statement, dml.Update):
        raise NotCapturable(f"an update moved a row of {kid.facts.name} where it cannot be found")
    return found[0] if found else None


# -- delete -------------------------------------------------------------------------------------------------------


def _deleted_kids(
    connection: Connection, facts: Facts, rows: Sequence[Row], facts_of: FactsOf, seen: set[tuple[str, Key]]
) -> list[_Kid]:
    """Return the rows that the database deletes or changes with these, innermost first."""
    kids: list[_Kid] = []
    for reference in facts.referenced_by if rows else ():
        if not reference.on_delete:
            continue
        found = _kids(connection, facts, rows, reference, facts_of)
        new = [kid for kid in found if (kid.facts.name, kid.facts.key_of(kid.row)) not in seen]
        if new and (new[0].facts.problem or not new[0].facts.key):
            raise NotCapturable(
                f"{reference.child} refers to {facts.name}, would change with it, and cannot be captured"
            )
        seen |= {(kid.facts.name, kid.facts.key_of(kid.row)) for kid in new}
        if reference.on_delete == "CASCADE":
            kids += _deleted_kids(connection, new[0].facts, [kid.row for kid in new], facts_of, seen) if new else []
        kids += new
    return kids
