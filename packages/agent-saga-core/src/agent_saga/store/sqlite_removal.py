"""Taking values and records out of a log in SQLite, so that nothing of them is left in its files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import apsw

from agent_saga.model.records import FORMAT_MINOR
from agent_saga.store.port import Stale
from agent_saga.store.schema import DATA_KEY, DROP_DATA_KEY, RAISE_MINOR, ROW_COLUMNS, TABLES, stored_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_saga.store.owners import Mutex
    from agent_saga.store.port import Removal

    Run = Callable[..., Any]

_TRIGGERS: Final = tuple(statement for statement in TABLES if statement.startswith("CREATE TRIGGER"))
_SELECT_ROW: Final = f"SELECT {ROW_COLUMNS} FROM sagas WHERE saga = ?"  # noqa: S608 - constant.
_MUTEX_WAIT_S: Final = 60.0


def stale(run: Run, removals: Sequence[Removal]) -> Stale | None:
    """Return why removals do not fit what the log holds, or None when they do; inside the transaction."""
    for removal in removals:
        saga_id = removal.row.saga_id
        found = run(_SELECT_ROW, (saga_id,)).fetchall()
        if not found or stored_row(found[0]) != removal.row:
            return Stale(f"saga {saga_id!r} has changed since the writer saw it")
    return None


def remove(run: Run, removals: Sequence[Removal]) -> None:
    """Remove what is asked, inside a transaction, from which the triggers that guard records are absent."""
    for trigger in _TRIGGERS:
        run(f"DROP TRIGGER {trigger.split()[2]}")
    for removal in removals:
        saga_id = removal.row.saga_id
        if removal.records:
            run("DELETE FROM records WHERE saga = ?", (saga_id,))
            run("UPDATE sagas SET epoch = epoch + 1 WHERE saga = ?", (saga_id,))
            run(DROP_DATA_KEY, (DATA_KEY + saga_id,))
        elif removal.payloads is None:
            run("UPDATE records SET payload = NULL WHERE saga = ?", (saga_id,))
            run(DROP_DATA_KEY, (DATA_KEY + saga_id,))
        else:
            for n, payload in removal.payloads.items():
                run("UPDATE records SET payload = ? WHERE saga = ? AND n = ?", (payload, saga_id, n))
    for trigger in _TRIGGERS:
        run(trigger)
    run(RAISE_MINOR, (str(FORMAT_MINOR),))


def write_anew(connection: apsw.Connection, mutex: Mutex) -> None:
    """Write the whole file anew, and empty its WAL: pages that were split, moved or freed keep old bytes.

    Raises:
        apsw.BusyError: a reader or a writer was in the way for too long.
    """
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("VACUUM")
    until = time.monotonic() + _MUTEX_WAIT_S
    while not mutex.try_enter():
        if time.monotonic() > until:
            raise apsw.BusyError("another process moves the WAL's pages into the database")
        time.sleep(0.001)
    try:
        connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        mutex.leave()
