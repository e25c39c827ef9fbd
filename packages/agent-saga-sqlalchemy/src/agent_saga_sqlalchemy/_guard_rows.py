"""Guard rows: what a database itself knows of the steps and compensations that were committed in it.

A step's transaction writes `('step', 'done')`, and a compensation's `('compensation', 'done')`, each under the id of
the step's transaction; the primary key lets each of them commit once. A probe that finds no row writes
`('step', 'void')`: from then on that transaction cannot commit any more, so "not landed" stays true.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from agent_saga_sqlalchemy._databases import Database
from agent_saga_sqlalchemy._rows import OWN, run

TABLE: Final = "agent_saga_guard"


def guard_table(metadata: sa.MetaData) -> sa.Table:
    """Return the table of guard rows, for migrations of databases in which the program may not create tables.

    Args:
        metadata: to which it is added; a table that is there already is returned.
    """
    if TABLE in metadata.tables:
        return metadata.tables[TABLE]
    return sa.Table(
        TABLE,
        metadata,
        sa.Column("transaction_id", sa.String(64), primary_key=True),
        sa.Column("part", sa.String(16), primary_key=True),
        sa.Column("state", sa.String(8), nullable=False),
    )


_guard: Final = guard_table(sa.MetaData())


def create(connection: Connection, database: Database) -> None:
    """Create the table, in this transaction, unless it exists."""
    database.prepare_guard(connection)
    connection.execute(sa.schema.CreateTable(_guard, if_not_exists=True), execution_options=OWN)


def mark(connection: Connection, transaction_id: str, part: str, state: str = "done") -> bool:
    """Write a row; False when there is one. Waits for an open transaction that has written the same one."""
    sql = f"INSERT INTO {TABLE} VALUES (:i, :p, :s) ON CONFLICT DO NOTHING"  # noqa: S608 - a constant.
    return run(connection, sql, {"i": transaction_id, "p": part, "s": state}).rowcount == 1


def state_of(connection: Connection, transaction_id: str, part: str) -> str | None:
    """Return what a row says, or None without one."""
    sql = f"SELECT state FROM {TABLE} WHERE transaction_id = :i AND part = :p"  # noqa: S608 - a constant.
    return run(connection, sql, {"i": transaction_id, "p": part}).scalar()
