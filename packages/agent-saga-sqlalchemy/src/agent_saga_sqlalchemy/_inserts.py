"""Inserts and upserts: which rows they have made, and which they have found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine.cursor import FullyBufferedCursorFetchStrategy
from sqlalchemy.sql import dml
from sqlalchemy.sql.elements import BindParameter

from agent_saga_sqlalchemy._rows import OWN, Facts, Key, Row, as_row, condition, find, run
from agent_saga_sqlalchemy._statements import NotCapturable

if TYPE_CHECKING:
    from agent_saga_sqlalchemy._capture import Pending

_AT_ONCE: Final = 200


def prepare(
    connection: Connection,
    statement: dml.Insert,
    parameters: Sequence[Mapping[str, Any]],
    facts: Facts,
    table: sa.Table,
) -> tuple[dml.Insert, dict[Key, Row]]:
    """Return the insert to run, and the rows that it may find there (by key).

    Raises:
        NotCapturable: the rows that it makes could not be found again.
    """
    if any(name not in {column.name for column in table.columns} for name in facts.key):
        raise NotCapturable(f"the primary key of {facts.name} is not a part of its Table object; nothing ran")
    if is_upsert(statement):
        found = _by_values(connection, facts, table, _candidates(statement, parameters, facts, table))
        return statement, {facts.key_of(row): row for row in found}
    if not statement._returning and not _tells_keys(statement, parameters):  # noqa: SLF001 - no public reader.
        statement = statement.returning(*_key_columns(table, facts))
    return statement, {}


def finish(
    connection: Connection, pending: Pending, result: sa.CursorResult[Any]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield each row that was inserted or updated, before and after."""
    statement, facts, table = pending.statement, pending.facts, pending.table
    assert isinstance(statement, dml.Insert)
    if is_upsert(statement):
        candidates = _candidates(statement, pending.parameters, facts, table)
        rows = find(connection, facts, list(pending.rows))
        rows += _by_values(connection, facts, table, candidates, lock=False)  # A lock would hide who wrote the row.
        now = {facts.key_of(row): row for row in rows}
        if any(key not in now for key in pending.rows):
            raise NotCapturable(f"an upsert moved a row of {facts.name} where it cannot be found")
        _check_not_raced(connection, facts, [key for key in now if key not in pending.rows])
        yield from ((pending.rows.get(key), row) for key, row in now.items())
        return
    if _tells_keys(statement, pending.parameters):
        keys = list(result.context.inserted_primary_key_rows)
        primary = list(table.primary_key.columns)
    elif statement._returning:  # noqa: SLF001 - no public reader.
        keys, primary = _peeked(result, _key_columns(table, facts), facts), _key_columns(table, facts)
        rows = find(connection, facts, keys) if facts.lock else []
        if facts.lock:
            yield from _all_found(rows, len(keys), facts)
            return
    else:
        keys, primary = [tuple(row) for row in result.fetchall()], _key_columns(table, facts)
    wanted = [dict(zip((c.name for c in primary), key or (None,), strict=False)) for key in keys]
    yield from _all_found(_by_values(connection, facts, table, wanted), len(keys), facts)


def _all_found(rows: list[Row], count: int, facts: Facts) -> Iterator[tuple[None, Row]]:
    if len({facts.key_of(row) for row in rows}) != count:
        raise NotCapturable(f"{count} rows were inserted into {facts.name}, and {len(rows)} of them found again")
    yield from ((None, row) for row in rows)


def is_upsert(statement: dml.Insert) -> bool:
    """Tell whether an insert may update."""
    return getattr(statement, "_post_values_clause", None) is not None


def _tells_keys(statement: dml.Insert, parameters: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether SQLAlchemy itself learns the keys of the new rows."""
    if statement._returning:  # noqa: SLF001
        return False
    plain = statement.select is None and not statement._multi_values  # noqa: SLF001
    return plain and (len(parameters) == 1 or bool(statement._return_defaults))  # noqa: SLF001


def _key_columns(table: sa.Table, facts: Facts) -> list[sa.Column[Any]]:
    columns = {column.name: column for column in table.columns}
    return [columns[name] for name in facts.key]


def _peeked(result: sa.CursorResult[Any], columns: Sequence[sa.Column[Any]], facts: Facts) -> list[Key]:
    """Return the keys among what a RETURNING of the program's own gives, and leave the rows for the program."""
    compiled: Any = result.context.compiled
    entries = compiled._result_columns  # noqa: SLF001 - no public reader.
    places = []
    for column in columns:
        place = [i for i, entry in enumerate(entries) if any(_is_column(part, column) for part in entry[2])]
        if not place:
            raise NotCapturable(f"RETURNING of an insert into {facts.name} must name its primary key inside a saga")
        places.append(place[0])
    rows = result.cursor_strategy.fetchall(result, result.cursor)
    result.cursor_strategy = FullyBufferedCursorFetchStrategy(result.cursor, initial_buffer=rows)
    return [tuple(row[i] if not facts.lock else str(row[i]) for i in places) for row in rows]


def _is_column(part: Any, column: sa.Column[Any]) -> bool:
    table = getattr(part, "table", None)
    return isinstance(part, sa.Column) and part.name == column.name and getattr(table, "key", "") == column.table.key


# -- rows by values of the program ----------------------------------------------------------------------------------


def _by_values(
    connection: Connection,
    facts: Facts,
    table: sa.Table,
    wanted: Sequence[Mapping[str, Any]],
    *,
    lock: bool = True,
) -> list[Row]:
    """Return, and lock, the rows with these values, which are the program's own, not raw ones."""
    columns = {column.name: column for column in table.columns}
    raw: list[Any] = [sa.literal_column(column.read).label(f"agent_saga_{i}") for i, column in enumerate(facts.columns)]
    rows = []
    for begin in range(0, len(wanted), _AT_ONCE):
        query = sa.select(*raw).select_from(table).where(_any_of(columns, wanted[begin : begin + _AT_ONCE]))
        if facts.lock and lock:
            query = query.with_for_update(of=table)
        rows += [as_row(facts, found) for found in connection.execute(query, execution_options=OWN).all()]
    return rows


def _any_of(columns: Mapping[str, sa.Column[Any]], wanted: Sequence[Mapping[str, Any]]) -> Any:
    if len(wanted[0]) == 1 and all(one.keys() == wanted[0].keys() for one in wanted):
        (name,) = wanted[0]
        return columns[name].in_([one[name] for one in wanted])
    return sa.or_(*(sa.and_(*(columns[name] == value for name, value in one.items())) for one in wanted))


def _candidates(
    statement: dml.Insert, parameters: Sequence[Mapping[str, Any]], facts: Facts, table: sa.Table
) -> list[dict[str, Any]]:
    """Return the values of each unique key that the rows of an upsert have: what they may meet, and are found by."""
    clause = statement._post_values_clause  # noqa: SLF001 - no public reader.
    target = [getattr(column, "name", column) for column in getattr(clause, "inferred_target_elements", None) or ()]
    updates = hasattr(clause, "update_values_to_set")
    candidates = []
    for values in _values_of(statement, parameters, facts, table):
        known = [keys for keys in facts.unique if all(values.get(name) is not None for name in keys)]
        needed = [keys for keys in facts.unique if set(keys) == set(target)] if target else list(facts.unique)
        if not known or (updates and (not needed or any(keys not in known for keys in needed))):
            raise NotCapturable(
                f"an upsert into {facts.name} must name the columns of its conflict target (index_elements) and give "
                "their values as plain values; it did not run"
            )
        candidates += [{name: values[name] for name in keys} for keys in known]
    return candidates


def _values_of(
    statement: dml.Insert, parameters: Sequence[Mapping[str, Any]], facts: Facts, table: sa.Table
) -> list[dict[str, Any]]:
    if statement.select is not None:
        raise NotCapturable(f"an upsert into {facts.name} from a SELECT cannot be captured; it did not run")
    names = {column.key: column.name for column in table.columns}
    rows: list[Any] = [row for rows in statement._multi_values for row in rows]  # noqa: SLF001
    rows = rows or [{**(statement._values or {}), **given} for given in parameters]  # noqa: SLF001
    plain = []
    for row in rows:
        pairs = row.items() if isinstance(row, Mapping) else zip((c.key for c in table.columns), row, strict=False)
        values = {getattr(column, "key", column): _plain(value) for column, value in pairs}
        plain.append({names[key]: value for key, value in values.items() if key in names})
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, BindParameter):
        return value.effective_value
    return None if isinstance(value, sa.sql.ClauseElement) else value


def _check_not_raced(connection: Connection, facts: Facts, keys: Sequence[Key]) -> None:
    """PostgreSQL: a row that nobody saw may have been there all the same, committed by another one meanwhile."""
    for begin in range(0, len(keys) if facts.lock else 0, _AT_ONCE):
        where, values = condition(facts, facts.key, keys[begin : begin + _AT_ONCE])
        sql = f"SELECT count(*) FROM {facts.name} WHERE ({where}) AND CAST(xmax AS text) <> '0'"  # noqa: S608
        if run(connection, sql, values).scalar():
            raise NotCapturable(
                f"another transaction inserted a row of {facts.name} at the same time; run the transaction again"
            )
