"""Guard rows: what a database itself knows of the steps and compensations that were committed in it.

A step's transaction writes `('step', 'done')`, and a compensation's `('compensation', 'done')`, each under the id of
the step's transaction; the primary key lets each of them commit once. A probe that finds no row writes
`('step', 'void')`: from then on that transaction cannot commit any more, so "not landed" stays true.
"""

from __future__ import annotations

import hashlib
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from agent_saga_sqlalchemy._databases import Database
from agent_saga_sqlalchemy._rows import OWN, run

TABLE: Final = "agent_saga_guard"
IMAGES: Final = "agent_saga_images"
_CHUNK_BYTES: Final = 4_000_000


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


def images_table(metadata: sa.MetaData) -> sa.Table:
    """Return the table of images that are more than the log keeps of one step, for migrations as guard_table is."""
    if IMAGES in metadata.tables:
        return metadata.tables[IMAGES]
    return sa.Table(
        IMAGES,
        metadata,
        sa.Column("transaction_id", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


_guard: Final = guard_table(sa.MetaData())
_images: Final = images_table(sa.MetaData())


def create(connection: Connection, database: Database) -> None:
    """Create the table, in this transaction, unless it exists."""
    database.prepare_guard(connection)
    connection.execute(sa.schema.CreateTable(_guard, if_not_exists=True), execution_options=OWN)


def create_images(connection: Connection, database: Database) -> None:
    """Create the table of images, in this transaction, unless it exists."""
    database.prepare_guard(connection)
    connection.execute(sa.schema.CreateTable(_images, if_not_exists=True), execution_options=OWN)


def keep_images(connection: Connection, transaction_id: str, data: bytes) -> dict[str, object]:
    """Write images into the step's own transaction, and return what the log says of them.

    Durability: they are committed together with the changes that they are images of, or not at all.
    """
    for number, begin in enumerate(range(0, len(data), _CHUNK_BYTES)):
        row = {"transaction_id": transaction_id, "number": number, "data": data[begin : begin + _CHUNK_BYTES]}
        connection.execute(_images.insert().values(row), execution_options=OWN)
    return {"images": transaction_id, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def images_of(connection: Connection, kept: dict[str, object]) -> bytes:
    """Return images.

    Raises:
        LookupError: they are not there, or not what the log says of them.
    """
    query = sa.select(_images.c.data).where(_images.c.transaction_id == kept["images"]).order_by(_images.c.number)
    data = b"".join(row[0] for row in connection.execute(query, execution_options=OWN))
    if hashlib.sha256(data).hexdigest() != kept["sha256"]:
        raise LookupError(
            f"the images of transaction {kept['images']} in table {IMAGES} are not those that the log names: "
            f"{len(data)} bytes of {kept['bytes']}; nothing was restored"
        )
    return data


def forget_images(connection: Connection, kept: dict[str, object]) -> None:
    """Delete images of what was restored, in the transaction that restores it."""
    connection.execute(_images.delete().where(_images.c.transaction_id == kept["images"]), execution_options=OWN)


def mark(connection: Connection, transaction_id: str, part: str, state: str = "done") -> bool:
    """Write a row; False when there is one. Waits for an open transaction that has written the same one."""
    sql = f"INSERT INTO {TABLE} VALUES (:i, :p, :s) ON CONFLICT DO NOTHING"  # noqa: S608 - a constant.
    return run(connection, sql, {"i": transaction_id, "p": part, "s": state}).rowcount == 1


def state_of(connection: Connection, transaction_id: str, part: str) -> str | None:
    """Return what a row says, or None without one."""
    sql = f"SELECT state FROM {TABLE} WHERE transaction_id = :i AND part = :p"  # noqa: S608 - a constant.
    return run(connection, sql, {"i": transaction_id, "p": part}).scalar()
