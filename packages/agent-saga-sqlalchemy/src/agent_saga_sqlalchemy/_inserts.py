"""Inserts and upserts: which rows they have made, which they have found, and which they have replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy
from sqlalchemy.sql import dml
from sqlalchemy.sql.elements import BindParameter

from agent_saga_sqlalchemy import _cascades as cascades
from agent_saga_sqlalchemy._rows import OWN, Facts, Key, Row, as_row, condition, escaped, find, run
from agent_saga_sqlalchemy._statements import NotCapturable, prefix_of

if TYPE_CHECKING:
    from agent_saga_sqlalchemy._capture import Pending
    from agent_saga_sqlalchemy._transaction import Work

_AT_ONCE: Final = 200


def prepare(connection: Connection, pending: Pending, facts_of: cascades.FactsOf) -> dml.Insert:
    """Return the insert to run; note which rows it may meet, and what changes with them.

    Raises:
        NotCapturable: the rows that it makes could not be found again.
    """
    statement, facts, table = pending.statement, pending.facts, pending.table
    assert isinstance(statement, dml.Insert)
    if any(name not in {column.name for column in table.columns} for name in facts.key):
        raise NotCapturable(f"the primary key of {facts.name} is not a part of its Table object; nothing ran")
    if _updates(statement) or _replaces(pending):
        wanted = _candidates(connection, statement, pending)
        pending.rows = {facts.key_of(row): row for row in _by_values(connection, facts, table, wanted)}
        met = list(pending.rows.values())
        if _replaces(pending):
            pending.kids = cascades.of_delete(connection, facts, met, facts_of)
        else:
            pending.kids = cascades.of_update(connection, facts, met, _assigned(statement, table), facts_of)
        pending.count = None if facts.lock else _count(connection, facts)
    return _telling_keys(statement, pending)


def finish(connection: Connection, work: Work, pending: Pending, result: sa.CursorResult[Any]) -> None:
    """Note each row that was inserted, updated or replaced, before and after.

    Raises:
        NotCapturable: some of them cannot be found, or others were changed too; the transaction must not commit.
    """
    facts, statement = pending.facts, pending.statement
    assert isinstance(statement, dml.Insert)
    if _tells_keys(statement, pending):
        primary = [column.name for column in pending.table.primary_key.columns]
        keys = list(result.context.inserted_primary_key_rows)
        wanted = [dict(zip(primary, key or (None,), strict=False)) for key in keys]
        rows = _by_values(connection, facts, pending.table, wanted)
    else:
        keys = _peeked(result, pending)
        rows = find(connection, facts, keys, lock=not _updates(statement))  # A lock would hide who wrote the row.
    made = {facts.key_of(row): row for row in rows}
    if len(made) != len(set(keys)):
        raise NotCapturable(f"{len(keys)} rows were inserted into {facts.name}, and {len(made)} of them found again")
    if _updates(statement) or _replaces(pending):
        _note_met(connection, work, pending, made)
    for key, row in made.items():
        if key not in pending.rows:
            work.add(facts, None, row)


def _note_met(connection: Connection, work: Work, pending: Pending, made: Mapping[Key, Row]) -> None:
    """Note what became of the rows that were there; nothing else may have been."""
    facts, replaces = pending.facts, _replaces(pending)
    left = {facts.key_of(row): row for row in find(connection, facts, list(pending.rows))}
    if not replaces and len(left) < len(pending.rows):
        raise NotCapturable(f"an upsert moved a row of {facts.name} where it cannot be found")
    fresh = [key for key in made if key not in pending.rows]
    if pending.count is None:
        _check_not_raced(connection, facts, fresh)
    elif pending.count + len(fresh) - (len(pending.rows) - len(left)) != _count(connection, facts):
        raise NotCapturable(f"an insert met rows of {facts.name} that could not be told before")
    parents = {(facts.name, key): left.get(key) for key in pending.rows}
    for kid, row in cascades.now(connection, pending.kids, parents, deleted=replaces):
        work.add(kid.facts, kid.row, row, follows=not replaces and kid.reference.on_update == "CASCADE")
    for key, row in pending.rows.items():
        work.add(facts, row, left.get(key))


def _updates(statement: dml.UpdateBase) -> bool:
    return hasattr(getattr(statement, "_post_values_clause", None), "update_values_to_set")


def _replaces(pending: Pending) -> bool:
    return not pending.facts.lock and prefix_of(pending.statement) == "OR REPLACE"


def _ignores(statement: dml.Insert) -> bool:
    clause = getattr(statement, "_post_values_clause", None)
    return (clause is not None and not _updates(statement)) or prefix_of(statement) == "OR IGNORE"


def _assigned(statement: dml.UpdateBase, table: sa.Table) -> frozenset[str]:
    assigned = dict(statement._post_values_clause.update_values_to_set)  # type: ignore[attr-defined]  # noqa: SLF001
    names = {column.key: column.name for column in table.columns}
    keys = [getattr(column, "key", column) for column in assigned]
    return frozenset(names.get(key, key) for key in keys)


# -- the keys of what was inserted ------------------------------------------------------------------------------------


def _telling_keys(statement: dml.Insert, pending: Pending) -> dml.Insert:
    """Return the insert with a RETURNING from which the keys of its rows can be told."""
    if _tells_keys(statement, pending):
        return statement
    own = list(statement._returning)  # noqa: SLF001 - no public reader.
    named = [part for one in own for part in (one.c if isinstance(one, sa.FromClause) else [one])]
    wanted = [column for column in _key_columns(pending) if not any(_is_column(part, column) for part in named)]
    if wanted and statement._return_defaults:  # noqa: SLF001
        raise NotCapturable(f"an insert into {pending.facts.name} must return its primary key, or no column at all")
    pending.hides = len(wanted) if own else 0
    return statement.returning(*wanted) if wanted else statement


def _tells_keys(statement: dml.Insert, pending: Pending) -> bool:
    """Tell whether SQLAlchemy itself learns the keys of the new rows."""
    if statement._returning or _updates(statement) or _ignores(statement) or _replaces(pending):  # noqa: SLF001
        return False
    plain = statement.select is None and not statement._multi_values  # noqa: SLF001
    return plain and (len(pending.parameters) == 1 or bool(statement._return_defaults))  # noqa: SLF001


def _key_columns(pending: Pending) -> list[sa.Column[Any]]:
    columns = {column.name: column for column in pending.table.columns}
    return [columns[name] for name in pending.facts.key]


def _peeked(result: sa.CursorResult[Any], pending: Pending) -> list[Key]:
    """Return the keys among what RETURNING gives, and leave for the program the rows that it has asked for."""
    context: Any = result.context
    entries = context.compiled._result_columns  # noqa: SLF001 - no public reader.
    places = []
    for column in _key_columns(pending):
        place = [i for i, entry in enumerate(entries) if any(_is_column(part, column) for part in entry[2])]
        if not place:
            raise NotCapturable(f"RETURNING of an insert into {pending.facts.name} does not tell its primary key")
        places.append(place[0])
    rows = list(result.cursor_strategy.fetchall(result, result.cursor))
    context._rowcount = len(rows)  # noqa: SLF001 - as its execution option preserve_rowcount does.
    result.cursor_strategy = FullyBufferedCursorFetchStrategy(result.cursor, initial_buffer=rows)
    keys = [tuple(row[i] if not pending.facts.lock else str(row[i]) for i in places) for row in rows]
    if not pending.statement._returning:  # noqa: SLF001
        result.close()
    elif pending.hides:
        result.columns(*range(len(entries) - pending.hides))  # Changes the result itself.
    return keys


def _is_column(part: Any, column: sa.Column[Any]) -> bool:
    table = getattr(part, "table", None)
    return isinstance(part, sa.Column) and part.name == column.name and getattr(table, "key", "") == column.table.key


# -- rows by values of the program ----------------------------------------------------------------------------------


def _by_values(connection: Connection, facts: Facts, table: sa.Table, wanted: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return, and lock, the rows with these values, which are the program's own, not raw ones."""
    columns = {column.name: column for column in table.columns}
    raw: list[Any] = [sa.literal_column(column.read).label(f"agent_saga_{i}") for i, column in enumerate(facts.columns)]
    rows = []
    for begin in range(0, len(wanted), _AT_ONCE):
        query = sa.select(*raw).select_from(table).where(_any_of(columns, wanted[begin : begin + _AT_ONCE]))
        if facts.lock:
            query = query.with_for_update(of=table)
        rows += [as_row(facts, found) for found in connection.execute(query, execution_options=OWN).all()]
    return rows


def _any_of(columns: Mapping[str, sa.Column[Any]], wanted: Sequence[Mapping[str, Any]]) -> Any:
    if len(wanted[0]) == 1 and all(one.keys() == wanted[0].keys() for one in wanted):
        (name,) = wanted[0]
        return columns[name].in_([one[name] for one in wanted])
    return sa.or_(*(sa.and_(*(columns[name] == value for name, value in one.items())) for one in wanted))


def _candidates(connection: Connection, statement: dml.Insert, pending: Pending) -> list[dict[str, Any]]:
    """Return the values by which the rows of an upsert may meet others: those of its target, or of each key."""
    facts = pending.facts
    needed = _target(statement, facts)
    candidates = []
    for values in _values_of(connection, statement, pending):
        known = [keys for keys in needed if all(values.get(name) is not None for name in keys)]
        if not needed or (not _replaces(pending) and any(values.get(name, ...) is ... for k in needed for name in k)):
            raise NotCapturable(
                f"an upsert into {facts.name} must name its conflict target (index_elements, or a constraint), and "
                "give the target's columns plain values; it did not run"
            )
        candidates += [{name: values[name] for name in keys} for keys in known]
    return candidates


def _target(statement: dml.Insert, facts: Facts) -> list[tuple[str, ...]]:
    """Return the unique keys by which an upsert can meet a row."""
    clause = statement._post_values_clause  # noqa: SLF001 - no public reader.
    name = getattr(clause, "constraint_target", None)
    if name is not None:
        return [keys for keys, known in zip(facts.unique, facts.unique_names, strict=False) if known == str(name)]
    elements = getattr(clause, "inferred_target_elements", None) or ()
    target = {getattr(column, "name", column) for column in elements}
    return [keys for keys in facts.unique if set(keys) == target] if target else list(facts.unique)


def _values_of(connection: Connection, statement: dml.Insert, pending: Pending) -> list[dict[str, Any]]:
    """Return, by column name, the values that the rows to insert have; of an expression there is none (...)."""
    names = {column.key: column.name for column in pending.table.columns}
    if statement.select is not None:
        keys = [names[getattr(key, "key", key)] for key in statement._select_names or ()]  # noqa: SLF001
        (given,) = pending.parameters
        found = connection.execute(statement.select, given, execution_options=OWN)
        return [dict(zip(keys, row, strict=True)) for row in found]
    rows: list[Any] = [row for rows in statement._multi_values for row in rows]  # noqa: SLF001
    rows = rows or [{**(statement._values or {}), **given} for given in pending.parameters]  # noqa: SLF001
    plain = []
    for row in rows:
        keyed = [column.key for column in pending.table.columns]
        pairs = row.items() if isinstance(row, Mapping) else zip(keyed, row, strict=False)
        values = {getattr(column, "key", column): _plain(value) for column, value in pairs}
        plain.append({names[key]: value for key, value in values.items() if key in names})
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, BindParameter):
        return value.effective_value
    return ... if isinstance(value, sa.sql.ClauseElement) else value


def _count(connection: Connection, facts: Facts) -> int:
    return int(run(connection, f"SELECT count(*) FROM {escaped(facts.name)}").scalar_one())  # noqa: S608


def _check_not_raced(connection: Connection, facts: Facts, keys: Sequence[Key]) -> None:
    """PostgreSQL: a row that nobody saw may have been there all the same, committed by another one meanwhile."""
    if not keys:
        return
    where, values = condition(facts, facts.key, keys)
    sql = f"SELECT count(*) FROM {escaped(facts.name)} WHERE {where} AND CAST(xmax AS text) <> '0'"  # noqa: S608
    if run(connection, sql, values).scalar():
        raise NotCapturable(
            f"another transaction inserted a row of {facts.name} at the same time; run the transaction again"
        )
