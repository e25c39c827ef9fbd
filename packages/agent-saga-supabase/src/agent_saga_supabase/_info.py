"""What the adapter covers."""

from __future__ import annotations

from typing import Final

from agent_saga.spi import AdapterInfo

NAME: Final = "supabase"

INFO: Final = AdapterInfo(
    name=NAME,
    framework="supabase>=2.34",
    capabilities=(
        "sync and async clients; insert, update, upsert and delete, also of many rows at once",
        "the database itself captures the images, and writes them back in one transaction, once",
        "ON DELETE and ON UPDATE actions of foreign keys, where the tables that they reach are protected too",
        "conflicts with three values; recovery asks the database",
        "storage uploads, moves and copies, and users made by auth.admin, each offset by its inverse",
    ),
    gaps=(
        "a database without the migration, and tables that it does not protect: writes are refused",
        "tables with triggers of their own, rules, heirs or without a primary key, and views: refused",
        "an update of a primary key is refused by the database",
        "rpc and functions.invoke are refused until declared, and what they write is left to their declaration",
        "storage: removing, updating and upserting files and all calls on buckets are refused until declared",
        "storage inverses do not look whether others replaced the file since",
        "auth: what changes or invites users cannot be taken back, and asks",
        "realtime does not go over HTTP, and is not seen; other HTTP clients of the program neither",
        "a table is asked about once in a process: dropping its triggers under a running program is not seen",
        "results of calls whose answer was lost are not made up: a retry that finds the first try landed gets 204",
        "sequences stay where they are; files at rest of deleted rows are not touched",
        "guard rows and images stay in the schema agent_saga: delete those of pruned sagas yourself",
    ),
)
