"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "sqlalchemy"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="sqlalchemy>=2.0.36,<2.2",
    capabilities=(
        "SQLite (pysqlite, aiosqlite) and PostgreSQL (psycopg, asyncpg), sync and async engines",
        "ORM flushes, ORM and Core insert, update, delete, executemany, INSERT from SELECT, upserts, OR REPLACE",
        "changed keys, composite keys, identities, computed columns, many-to-many",
        "ON DELETE and ON UPDATE actions of foreign keys",
        "savepoints",
        "conflicts with three values; exactly once by guard rows in the same database",
    ),
    gaps=(
        "raw DBAPI cursors and COPY fire no event: what they write is not seen, neither captured nor refused",
        "functions that write (SELECT f()), sequences and sqlite_sequence: their effects stay",
        "tables with triggers, rules, heirs or without a primary key, views and virtual tables: refused",
        "text() and exec_driver_sql that may write, MERGE, UPDATE OR, writes in a CTE, schema changes: refused",
        "SQLite tables defined with ON CONFLICT, upserts whose conflict target has no plain values: refused",
        "one statement that swaps primary keys: refused; many parameter sets of which one fails: must be rolled back",
        "AUTOCOMMIT, schema_translate_map and two-phase transactions: refused",
        "images above 700 kB (packed) stay in the table agent_saga_images, and the log holds their digest",
        "rows are compared by value: what others set to the very value that a step left looks like the step's own",
        "a database transaction is never replayed: a resumed saga that makes it again diverges, and rolls back",
        "an approval cannot be carried across a pause for a transaction: approve the tool that makes it",
        "writes in threads without the saga's context are outside of it: saga.bind, or protect(requires_saga=True)",
        "what a tool with a compensation of its own writes is left to that compensation",
        "rows stay in agent_saga_guard and agent_saga_images: delete those of pruned sagas yourself",
    ),
)
