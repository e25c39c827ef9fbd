"""The tables of a log in SQLite, and how a file becomes one. Nothing here needs more than SQLite 3.40."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from agent_saga.errors import LogUnusable
from agent_saga.machine.row import Row
from agent_saga.model.records import FORMAT, FORMAT_MINOR
from agent_saga.store.port import StoredRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

APPLICATION_ID: Final = 0x53414741
"""`SAGA`: the SQLite `application_id` of a log."""

TABLES: Final = (
    "CREATE TABLE meta(name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE records(pos INTEGER PRIMARY KEY NOT NULL, saga TEXT NOT NULL, n INTEGER NOT NULL,
  body BLOB NOT NULL, payload BLOB, hash BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX records_by_saga ON records(saga, n)",
    """CREATE TABLE sagas(saga TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, key TEXT, incarnation INTEGER NOT NULL,
  state TEXT NOT NULL, owner TEXT, epoch INTEGER NOT NULL, on_crash TEXT NOT NULL, opened_at INTEGER NOT NULL,
  due_at INTEGER, work INTEGER NOT NULL, human INTEGER NOT NULL, sealed INTEGER NOT NULL, amends TEXT,
  head BLOB NOT NULL, count INTEGER NOT NULL, amendments INTEGER NOT NULL, leaf INTEGER) WITHOUT ROWID""",
    "CREATE INDEX sagas_unsealed ON sagas(saga) WHERE sealed = 0",
    "CREATE INDEX sagas_for_humans ON sagas(saga) WHERE human > 0",
    "CREATE INDEX sagas_amending ON sagas(amends) WHERE amends IS NOT NULL",
    "CREATE UNIQUE INDEX sagas_by_leaf ON sagas(leaf) WHERE leaf IS NOT NULL",
    "CREATE TABLE keys(key TEXT PRIMARY KEY NOT NULL, saga TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE facts(kind TEXT NOT NULL, name TEXT NOT NULL, saga TEXT NOT NULL, no INTEGER NOT NULL,
  value TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY(kind, name, saga, no)) WITHOUT ROWID""",
    "CREATE INDEX facts_by_saga ON facts(saga)",
    "CREATE TRIGGER records_stay BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END",
    "CREATE TRIGGER records_keep BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records are append-only'); END",
)

ROW_COLUMNS: Final = (
    "saga, name, key, incarnation, state, owner, epoch, on_crash, opened_at, due_at, work, human, sealed, amends, "
    "head, count, amendments, leaf"
)


SELECT_FACT: Final = (
    "SELECT kind, name, saga, no, value, at FROM facts WHERE kind = ? AND name = ? AND saga = ? AND no = ?"
)
SELECT_FACTS: Final = "SELECT kind, name, saga, no, value, at FROM facts WHERE kind = ?"
SELECT_HALTS: Final = (
    "SELECT kind, name, saga, no, value, at FROM facts WHERE kind >= 'drain' AND kind <= 'quarantine' AND kind <> 'key'"
)
"""One walk over a few neighbours of the primary key, in its order: it is read before each intent, and never cached,
because only a read can tell whether another process has written. (`PRAGMA data_version` costs no less.)"""
SELECT_FACTS_OF_SAGA: Final = (
    "SELECT kind, name, saga, no, value, at FROM facts WHERE saga = ? ORDER BY kind, name, saga, no"
)


DATA_KEY: Final = "key "
"""Before the id of a saga: the name of its wrapped data key in `meta`."""
DATA_KEYS_END: Final = "key!"
"""After all of those names."""
PUT_DATA_KEY: Final = "INSERT INTO meta VALUES(?, ?)"
REWRAP: Final = "UPDATE meta SET value = ? WHERE name = ? AND value = ?"
DROP_DATA_KEY: Final = "DELETE FROM meta WHERE name = ?"
SELECT_DATA_KEY: Final = "SELECT value FROM meta WHERE name = ?"
SELECT_DATA_KEYS: Final = "SELECT name, value FROM meta WHERE name > ? AND name < ? ORDER BY name LIMIT ?"
RAISE_MINOR: Final = "UPDATE meta SET value = ?1 WHERE name = 'minor' AND value < ?1"
"""A reader that knows no more than the minor version of before must not take what is new for damage."""


def create_file(path: Path, *, vfs: str | None = None) -> None:
    """Make a new, empty log at `path`, unless somebody else made one meanwhile.

    The file is built under a hidden name and linked into place, so a log is never seen half made.

    Raises:
        LogUnusable: leftovers of a lost log are in the way.
        OSError, apsw.Error: it could not be made.
    """
    leftover = Path(f"{path}-wal")
    if leftover.exists() and leftover.stat().st_size:
        if path.exists():
            return  # Another process made the log, and uses it already.
        raise LogUnusable(
            f"there is no log at {path}, and {leftover.name} of a lost one lies beside it, which SQLite would mix "
            "with a new one: bring the log back, or move that file away"
        )
    hidden = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        os.close(os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        _fill(hidden, vfs)
        with contextlib.suppress(FileExistsError):
            os.link(hidden, path)
    finally:
        for name in (hidden, Path(f"{hidden}-wal"), Path(f"{hidden}-shm"), Path(f"{hidden}-journal")):
            name.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _fill(path: Path, vfs: str | None) -> None:
    connection = apsw.Connection(str(path), vfs=vfs, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        run = connection.execute
        run("PRAGMA synchronous=FULL")
        run("BEGIN IMMEDIATE")
        run(f"PRAGMA application_id={APPLICATION_ID}")
        for statement in TABLES:
            run(statement)
        meta = {"format": str(FORMAT), "minor": str(FORMAT_MINOR), "log": secrets.token_hex(16), "sync": "0"}
        connection.executemany("INSERT INTO meta VALUES(?, ?)", meta.items())
        run("COMMIT")
        run("PRAGMA journal_mode=wal")
    finally:
        connection.close()


_SELECT_META: Final = f"SELECT name, value FROM meta WHERE name < '{DATA_KEY}' OR name > '{DATA_KEYS_END}'"  # noqa: S608


def check_schema(connection: apsw.Connection, location: str) -> str:
    """Check that a file is a log that this version can read; return the log's id.

    Raises:
        LogUnusable: it is not.
        apsw.Error: SQLite cannot read it.
    """
    found = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if (
        connection.pragma("application_id") != APPLICATION_ID
        or not {"meta", "records", "sagas", "keys", "facts"} <= found
    ):
        raise LogUnusable(f"{location} is an SQLite database, and not a log of agent-saga")
    meta = {str(name): str(value) for name, value in connection.execute(_SELECT_META)}
    if meta.get("format") != str(FORMAT) or "log" not in meta:
        found_format = meta.get("format", "unknown")
        raise LogUnusable(
            f"{location} has log format {found_format}, and this version of agent-saga knows format {FORMAT}: "
            "use the version that wrote it, or a newer one"
        )
    return meta["log"]


def schema_damage(connection: apsw.Connection) -> str | None:
    """Return what differs from the schema of a log, or None. SQLite's own objects (statistics) do not count."""
    objects = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'"
    found = {str(sql) for (sql,) in connection.execute(objects)}
    missing = [statement.split("(")[0].split(" ON ")[0] for statement in TABLES if statement not in found]
    if missing:
        return f"the schema differs at: {', '.join(missing)}"
    return f"the schema has {len(found) - len(TABLES)} objects more than a log" if len(found) != len(TABLES) else None


def stored_row(values: Sequence[Any]) -> StoredRow:
    """Return the row in the columns `ROW_COLUMNS`; `load` and `verify` compare each value with the fold."""
    saga_id, name, key, incarnation, state, owner, epoch, on_crash, opened_at, due_at, work, human = values[:12]
    sealed, amends, head, count, amendments, leaf = values[12:]
    row = Row(
        name=name,
        key=key,
        incarnation=incarnation,
        state=state,
        owner=owner,
        epoch=epoch,
        on_crash=on_crash,
        opened_at=opened_at,
        due_at=due_at,
        work=work,
        human=human,
        sealed=sealed == 1 if sealed in {0, 1} else sealed,
        amends=amends,
    )
    return StoredRow(saga_id=saga_id, row=row, head=head, count=count, amendments=amendments, leaf=leaf)


SELECT_STRAY_FACT: Final = (
    "SELECT facts.kind || ' ' || facts.name FROM facts LEFT JOIN sagas ON sagas.saga = facts.saga "
    "WHERE sagas.saga IS NULL AND facts.kind <> 'total' LIMIT 1"
)
_FACTS_BY_INDEX: Final = "SELECT saga, kind, name, no FROM facts INDEXED BY facts_by_saga"
_FACTS_BY_TABLE: Final = "SELECT saga, kind, name, no FROM facts NOT INDEXED"
_INDEX_CHECKS: Final = (
    ("sagas_unsealed", "sealed = 0"),
    ("sagas_for_humans", "human > 0"),
    ("sagas_amending", "amends IS NOT NULL"),
    ("sagas_by_leaf", "leaf IS NOT NULL"),
)
_STRAY_POSITIONS: Final = (
    "SELECT t.pos FROM records AS t NOT INDEXED WHERE t.pos > ?1 AND t.pos <= ?2 AND NOT EXISTS (SELECT 1 FROM records "
    "AS i INDEXED BY records_by_saga WHERE i.saga = t.saga AND i.n = t.n AND i.pos = t.pos) LIMIT 1"
)
_POSITIONS_AT_ONCE: Final = 10_000
_SPAN: Final = (
    "SELECT (SELECT min(pos) FROM records), (SELECT max(pos) FROM records), (SELECT count(*) FROM records NOT INDEXED)"
)


_PRUNED: Final = (
    "SELECT coalesce(sum(sagas.count), 0) FROM facts JOIN sagas ON sagas.saga = facts.name "
    "WHERE facts.kind = 'removed' AND facts.no = 0"
)


def index_damage(run: Callable[..., list[Any]], *, skipped: int = 0) -> str | None:
    """Return where an index differs from its table, or None: lists read the one, `tail` the other.

    Args:
        run: runs a query with bindings and returns all rows; each call has a snapshot of its own, so the log may grow.
        skipped: positions that a merge left out before the first one.
    """
    for index, condition in _INDEX_CHECKS:
        by_index = f"SELECT saga FROM sagas INDEXED BY {index} WHERE {condition}"  # noqa: S608 - constants.
        by_table = f"SELECT saga FROM sagas NOT INDEXED WHERE {condition}"  # noqa: S608 - constants.
        if run(f"{by_index} EXCEPT {by_table}", ()) or run(f"{by_table} EXCEPT {by_index}", ()):
            return f"index {index} differs from the table of sagas"
    for one, other in ((_FACTS_BY_INDEX, _FACTS_BY_TABLE), (_FACTS_BY_TABLE, _FACTS_BY_INDEX)):
        if run(f"{one} EXCEPT {other}", ()):
            return "index facts_by_saga differs from the table of facts"
    ((first, last, count),) = run(_SPAN, ())
    ((pruned,),) = run(_PRUNED, ())
    # Checked first: what follows takes time and memory for each position.
    if count and (last != count + pruned + skipped or first <= skipped or (first > skipped + 1 and not pruned)):
        return f"{count} records are there, at positions {first} to {last}: records are missing or moved"
    for start in range(0, last or 0, _POSITIONS_AT_ONCE):
        for (pos,) in run(_STRAY_POSITIONS, (start, start + _POSITIONS_AT_ONCE)):
            return f"the index of records differs from the table at position {pos}"
    return None
