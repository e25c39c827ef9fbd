"""What SQLite and PostgreSQL say about a table, and how each of them is asked."""

# ruff: noqa: S608 - SQL about catalogs is put together of constants and quoted names.
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from agent_saga.errors import UsageError
from agent_saga_sqlalchemy._rows import OWN, Column, Facts, Reference, escaped, quoted, run
from agent_saga_sqlalchemy._statements import without_quotes

_NAME: Final = re.compile(r'((?:"(?:[^"]|"")*"\.)?)"((?:[^"]|"")*)"')
_CONFLICT_CLAUSE: Final = re.compile(r"\bON\s+CONFLICT\s+(?!ABORT\b)", re.IGNORECASE)


class Database(Protocol):
    """One kind of database."""

    def name_of(self, connection: Connection, table: sa.Table) -> str:
        """Return a table's name as SQL spells it, the same in every session."""
        ...

    def stamp(self, connection: Connection, name: str) -> str:
        """Return something that changes whenever `describe` could."""
        ...

    def describe(self, connection: Connection, name: str) -> Facts:
        """Return what the database says about a table."""
        ...

    def begin(self, connection: Connection) -> None:
        """See to it that what is read from now on cannot be changed by others before it is written."""
        ...

    def prepare_restore(self, connection: Connection) -> None:
        """Begin a compensation: constraints that can be checked at its end are checked there."""
        ...

    def prepare_guard(self, connection: Connection) -> None:
        """Let one process at a time create the table of guard rows."""
        ...


def database_of(dialect: str) -> Database:
    """Return the kind of database of a dialect.

    Raises:
        UsageError: it is none of those that this package knows.
    """
    known: dict[str, Database] = {"sqlite": Sqlite(), "postgresql": Postgres()}
    if dialect not in known:
        raise UsageError(f"engines of {dialect} cannot be protected: only {', '.join(sorted(known))}")
    return known[dialect]


class Sqlite:
    """SQLite: raw values are its five storage classes."""

    def name_of(self, connection: Connection, table: sa.Table) -> str:
        """See Database.name_of. As it was created: SQLite takes a name in any case."""
        prefix = f"{quoted(table.schema)}." if table.schema else ""
        sql = f"SELECT name FROM {escaped(prefix)}sqlite_master WHERE lower(name) = lower(:n) AND type <> 'index'"
        found = _all(connection, f"{sql} AND type <> 'trigger'", n=table.name)
        return prefix + quoted(str(found[0][0]) if found else table.name)

    def stamp(self, connection: Connection, name: str) -> str:
        """See Database.stamp."""
        return str(_all(connection, f"PRAGMA {_parts(name)[0]}schema_version")[0][0])

    def describe(self, connection: Connection, name: str) -> Facts:
        """See Database.describe."""
        prefix, short = _parts(name)
        found = _all(connection, f"PRAGMA {prefix}table_xinfo({escaped(quoted(short))})")
        keys = sorted((row[5], row[1]) for row in found if row[5])
        key = tuple(column for _, column in keys)
        return Facts(
            name=name,
            columns=tuple(
                Column(name=row[1], read=f"{name}.{quoted(row[1])}", write="{}", generated=row[6] > 1) for row in found
            ),
            key=key,
            unique=tuple(dict.fromkeys((key, *self._unique(connection, prefix, short)))),
            referenced_by=tuple(self._references(connection, prefix, short, key)),
            problem=self._problem(connection, prefix, short),
            overriding="",
            lock="",
        )

    def _problem(self, connection: Connection, prefix: str, name: str) -> str | None:
        kinds = _all(connection, f"SELECT type, sql FROM {prefix}sqlite_master WHERE name = :n", n=name)
        if not kinds or kinds[0][0] != "table" or str(kinds[0][1]).upper().startswith("CREATE VIRTUAL"):
            return "it is no ordinary table"
        if _CONFLICT_CLAUSE.search(without_quotes(str(kinds[0][1]))):
            return "its definition has a clause ON CONFLICT, which deletes or ends more than a statement says"
        triggers = f"SELECT name FROM {prefix}sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(:n)"
        return _trigger_problem(_all(connection, triggers, n=name))

    def _unique(self, connection: Connection, prefix: str, name: str) -> list[tuple[str, ...]]:
        indexes = _all(connection, f"PRAGMA {prefix}index_list({escaped(quoted(name))})")
        sets = []
        for index in indexes:
            if index[2] and not index[4]:
                columns = [
                    row[2] for row in _all(connection, f"PRAGMA {prefix}index_info({escaped(quoted(index[1]))})")
                ]
                if None not in columns:
                    sets.append(tuple(columns))
        return sets

    def _references(self, connection: Connection, prefix: str, name: str, key: tuple[str, ...]) -> list[Reference]:
        references: dict[tuple[str, int], list[Any]] = {}
        tables = _all(connection, f"SELECT name FROM {prefix}sqlite_master WHERE type = 'table'")
        own = _all(connection, f"PRAGMA {prefix}table_xinfo({escaped(quoted(name))})")
        spelled = {row[1].lower(): row[1] for row in own}  # A foreign key may spell what it refers to in another case.
        for (child,) in tables:
            for row in _all(connection, f"PRAGMA {prefix}foreign_key_list({escaped(quoted(child))})"):
                if row[2].lower() == name.lower():
                    references.setdefault((child, row[0]), []).append(row)
        return [
            Reference(
                child=f"{prefix}{quoted(child)}",
                columns=tuple(row[3] for row in rows),
                parent_columns=tuple(spelled[row[4].lower()] if row[4] else key[i] for i, row in enumerate(rows)),
                on_delete=_action(rows[0][6]),
                on_update=_action(rows[0][5]),
            )
            for (child, _), rows in references.items()
        ]

    def begin(self, connection: Connection) -> None:
        """See Database.begin. The driver's own transactions begin only at the first write, after our read."""
        if not connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
            connection.exec_driver_sql("BEGIN IMMEDIATE", execution_options=OWN)

    def prepare_restore(self, connection: Connection) -> None:
        """See Database.prepare_restore."""
        self.begin(connection)
        run(connection, "PRAGMA defer_foreign_keys = ON")

    def prepare_guard(self, connection: Connection) -> None:
        """See Database.prepare_guard: whoever writes is alone."""
        self.begin(connection)


def _parts(name: str) -> tuple[str, str]:
    """Return what is written before a table's name, and the bare name."""
    found = _NAME.fullmatch(name)
    assert found is not None
    return escaped(found[1] or ""), found[2].replace('""', '"')


def _action(word: str) -> str:
    return word if word in {"CASCADE", "SET NULL", "SET DEFAULT"} else ""


def _trigger_problem(triggers: Sequence[Sequence[Any]]) -> str | None:
    names = ", ".join(str(row[0]) for row in triggers)
    return f"it has triggers ({names}), whose writes cannot be seen" if names else None


def _all(connection: Connection, sql: str, **values: Any) -> list[Any]:
    return list(run(connection, sql, values).all())


_ACTIONS: Final = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
GUARD_LOCK: Final = 0x5A6A0001
_TABLE: Final = "CAST(:t AS regclass)"


class Postgres:
    """PostgreSQL: raw values are the text of each value, which its type reads back without loss."""

    def name_of(self, connection: Connection, table: sa.Table) -> str:
        """See Database.name_of. Qualified, so that it means the same under another search path."""
        preparer = connection.dialect.identifier_preparer
        spelled = preparer.format_table(table)
        spelled = spelled.replace("%%", "%") if preparer._double_percents else spelled  # noqa: SLF001 - here it is a value.
        sql = (
            "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {_TABLE}"
        )
        return str(_all(connection, sql, t=spelled)[0][0])

    def stamp(self, connection: Connection, name: str) -> str:
        """See Database.stamp: a new column, trigger, rule or reference writes the table's row in pg_class."""
        return str(_all(connection, f"SELECT CAST(xmin AS text) FROM pg_class WHERE oid = {_TABLE}", t=name)[0][0])

    def describe(self, connection: Connection, name: str) -> Facts:
        """See Database.describe."""
        found = _all(
            connection,
            "SELECT attname, format_type(atttypid, atttypmod), CAST(attgenerated AS text) FROM pg_attribute "
            f"WHERE attrelid = {_TABLE} AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            t=name,
        )
        unique = _all(
            connection,
            "SELECT i.indisprimary, (SELECT array_agg(CAST(a.attname AS text) ORDER BY k.n) "
            "FROM unnest(i.indkey) WITH ORDINALITY k(no, n) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.no WHERE k.n <= i.indnkeyatts), "
            "(SELECT CAST(relname AS text) FROM pg_class WHERE oid = i.indexrelid) "
            f"FROM pg_index i WHERE i.indrelid = {_TABLE} AND i.indisunique AND i.indpred IS NULL "
            "AND i.indexprs IS NULL ORDER BY i.indisprimary DESC",
            t=name,
        )
        return Facts(
            name=name,
            columns=tuple(_postgres_column(name, *row) for row in found),
            key=tuple(unique[0][1]) if unique and unique[0][0] else (),
            unique=tuple(tuple(row[1]) for row in unique),
            referenced_by=tuple(self._references(connection, name)),
            problem=self._problem(connection, name),
            overriding="OVERRIDING SYSTEM VALUE ",
            lock=" FOR UPDATE",
            unique_names=tuple(row[2] for row in unique),
        )

    def _problem(self, connection: Connection, name: str) -> str | None:
        kind = _all(
            connection,
            "SELECT CAST(relkind AS text), relhasrules, EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) "
            f"FROM pg_class c WHERE oid = {_TABLE}",
            t=name,
        )[0]
        if kind[0] not in {"r", "p"} or kind[1] or (kind[0] == "r" and kind[2]):
            return "it is no ordinary table (a view, or one with rules or heirs)"
        sql = f"SELECT tgname FROM pg_trigger WHERE tgrelid = {_TABLE} AND NOT tgisinternal AND tgenabled <> 'D'"
        return _trigger_problem(_all(connection, sql, t=name))

    def _references(self, connection: Connection, name: str) -> list[Reference]:
        names = (
            "(SELECT array_agg(CAST(a.attname AS text) ORDER BY k.n) FROM unnest(c.{0}) WITH ORDINALITY k(no, n) "
            "JOIN pg_attribute a ON a.attrelid = c.{1} AND a.attnum = k.no)"
        )
        rows = _all(
            connection,
            "SELECT quote_ident(n.nspname) || '.' || quote_ident(t.relname), "
            f"{names.format('conkey', 'conrelid')}, {names.format('confkey', 'confrelid')}, "
            "CAST(c.confdeltype AS text), CAST(c.confupdtype AS text) "
            "FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid JOIN pg_namespace n ON n.oid = t.relnamespace "
            f"WHERE c.contype = 'f' AND c.confrelid = {_TABLE} AND c.conparentid = 0",
            t=name,
        )
        return [
            Reference(
                child=row[0],
                columns=tuple(row[1]),
                parent_columns=tuple(row[2]),
                on_delete=_ACTIONS.get(row[3], ""),
                on_update=_ACTIONS.get(row[4], ""),
            )
            for row in rows
        ]

    def begin(self, connection: Connection) -> None:
        """See Database.begin: a select locks what it finds."""

    def prepare_restore(self, connection: Connection) -> None:
        """See Database.prepare_restore."""
        run(connection, "SET CONSTRAINTS ALL DEFERRED")

    def prepare_guard(self, connection: Connection) -> None:
        """See Database.prepare_guard: two that create one table at once would fail."""
        run(connection, "SELECT pg_advisory_xact_lock(:n)", {"n": GUARD_LOCK})


def _postgres_column(table: str, name: str, kind: str, generated: str) -> Column:
    full = f"{table}.{quoted(name)}"
    if kind.endswith("with time zone") and kind.startswith("timestamp"):
        # The text of one depends on the session's time zone, so it is read in UTC.
        read = f"(to_json({full} AT TIME ZONE 'UTC') #>> '{{}}') || CASE WHEN isfinite({full}) THEN '+00' ELSE '' END"
    elif kind == "date" or (kind.startswith("timestamp") and not kind.endswith("with time zone")):
        read = f"to_json({full}) #>> '{{}}'"  # ... and of these on its DateStyle.
    else:
        read = f"CAST({full} AS text)"
    spelled = escaped(kind).replace("{", "{{").replace("}", "}}")
    return Column(
        name=name, read=read, write=f"CAST(CAST({{}} AS text) AS {spelled})", generated=generated != "", kind=kind
    )
