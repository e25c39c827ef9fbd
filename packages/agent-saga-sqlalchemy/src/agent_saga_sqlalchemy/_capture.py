"""Before and after one statement: which rows it changes, and what they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.sql import dml, operators, visitors
from sqlalchemy.sql.elements import BinaryExpression, BindParameter, BooleanClauseList

from agent_saga_sqlalchemy import _cascades as cascades
from agent_saga_sqlalchemy import _inserts as inserts
from agent_saga_sqlalchemy._cascades import FactsOf, Kid
from agent_saga_sqlalchemy._rows import OWN, Facts, Key, Row, as_row, condition, find
from agent_saga_sqlalchemy._statements import NotCapturable
from agent_saga_sqlalchemy._transaction import Work


@dataclass(slots=True, kw_only=True)
class Pending:
    """A statement on its way.

    Attributes:
        rows: the rows that it may change, by key.
        new_keys: what their keys become, where the statement sets them.
        kids: what foreign keys change with them, parents first.
        count: how many rows the table had, where that tells whether others were met than those.
        hides: how many columns of RETURNING the program has not asked for.
    """

    facts: Facts
    table: sa.Table
    statement: dml.UpdateBase
    parameters: Sequence[Mapping[str, Any]]
    rows: dict[Key, Row] = field(default_factory=dict)
    new_keys: dict[Key, Key] = field(default_factory=dict)
    kids: list[Kid] = field(default_factory=list)
    count: int | None = None
    hides: int = 0


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
        statement = inserts.prepare(connection, pending, facts_of)
    elif isinstance(statement, dml.Update):
        _before_update(connection, statement, pending, facts_of)
    else:
        for given in parameters:
            pending.rows |= {facts.key_of(row): row for row, _ in _matching(connection, pending, given, [])}
        pending.kids = cascades.of_delete(connection, facts, list(pending.rows.values()), facts_of)
    work.pending = pending
    return statement if isinstance(statement, dml.Insert) else _pinned(statement, pending)


def after(connection: Connection, work: Work, result: sa.CursorResult[Any]) -> None:
    """Read what the statement has left, and note the differences.

    Raises:
        NotCapturable: what it has left cannot be found again; the transaction must not commit.
    """
    pending: Pending = work.pending
    work.pending = None
    if isinstance(pending.statement, dml.Insert):
        inserts.finish(connection, work, pending, result)
        return
    left = {pending.facts.key_of(row): row for row in find(connection, pending.facts, _keys_now(pending))}
    moved = isinstance(pending.statement, dml.Update)
    now = {(pending.facts.name, key): left.get(pending.new_keys.get(key, key)) for key in pending.rows}
    if moved and None in now.values():
        raise NotCapturable(f"an update moved a row of {pending.facts.name} where it cannot be found")
    for kid, row in cascades.now(connection, pending.kids, now, deleted=not moved):
        work.add(kid.facts, kid.row, row, follows=moved and kid.reference.on_update == "CASCADE")
    moves = [(place, place[1] if row is None else pending.facts.key_of(row)) for place, row in now.items()]
    for place in cascades.vacated_first(moves):
        work.add(pending.facts, pending.rows[place[1]], now[place])


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


def _pinned(statement: dml.UpdateBase, pending: Pending) -> dml.UpdateBase:
    """Return the statement for the rows that were seen, and no others.

    What its WHERE says may be true of others by now: of rows that another transaction has added, or because it asks
    other tables, or chance.
    """
    facts, where = pending.facts, statement.whereclause  # type: ignore[attr-defined]
    if _names_key(where, pending):
        return statement
    sql, values = condition(facts, facts.key, [key for key in pending.rows if None not in key], "agent_saga_k")
    seen = sa.text(sql).bindparams(*(sa.bindparam(name, value, unique=False) for name, value in values.items()))
    froms = sa.select(sa.literal(1)).select_from(pending.table)
    alone = where is None or len(froms.where(where).get_final_froms()) == 1
    if alone and pending.parameters == [{}]:
        statement = statement._generate()  # noqa: SLF001 - as its own methods do.
        statement._where_criteria = ()  # type: ignore[attr-defined]  # noqa: SLF001
    return statement.where(seen)  # type: ignore[attr-defined, no-any-return]


def _names_key(where: Any, pending: Pending) -> bool:
    """Tell whether a WHERE says the whole key (as that of each flush does): no other row can be meant."""
    parts = where.clauses if isinstance(where, BooleanClauseList) and where.operator is operators.and_ else [where]
    named = {
        part.left.name
        for part in parts
        if isinstance(part, BinaryExpression)
        and part.operator is operators.eq
        and isinstance(part.right, BindParameter)
        and isinstance(part.left, sa.Column)
        and part.left.table.key == pending.table.key
    }
    return named.issuperset(pending.facts.key)


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
        changed = frozenset(assigned)
        pending.kids += cascades.of_update(connection, facts, [row for row, _ in found], changed, facts_of)
