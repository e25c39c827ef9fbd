"""Taking values and records out of a log in PostgreSQL, and their bytes out of the table's file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from agent_saga.errors import LogUnusable
from agent_saga.model.records import FORMAT_MINOR
from agent_saga.store.port import Stale
from agent_saga_postgres.batch import stored
from agent_saga_postgres.link import Gone, Refused, pause
from agent_saga_postgres.rows import ROW_COLUMNS, stored_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.store.port import Removal
    from agent_saga_postgres.link import Link, Server

_SELECT_ROW: Final = f"SELECT {ROW_COLUMNS} FROM sagas WHERE saga = $1"  # noqa: S608 - constant.
_DELETE: Final = "DELETE FROM records WHERE saga = $1"
_NEXT_EPOCH: Final = "UPDATE sagas SET epoch = epoch + 1 WHERE saga = $1"
_EMPTY: Final = "UPDATE records SET payload = NULL WHERE saga = $1"
_REPLACE: Final = "UPDATE records SET payload = convert_to($3, 'UTF8') WHERE saga = $1 AND n = $2::bigint"
_MINOR: Final = "UPDATE meta SET value = $1 WHERE name = 'minor' AND value::bigint < $1::bigint"
_OLDER: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_xmin IS NOT NULL AND age(backend_xmin) > age($1::xid8::xid)"
)
_LOCK_SHARE: Final = 0.2
_WORK_SHARE: Final = 0.8
"""Of `wait_s`, for the table's lock and for all: appends of other processes wait meanwhile, and must not give up."""


def stale(link: Link, removals: Sequence[Removal]) -> Stale | None:
    """Return why removals do not fit what the log holds, or None when they do; inside the transaction."""
    for removal in removals:
        saga_id = removal.row.saga_id
        found = link.run(_SELECT_ROW, stored(saga_id))
        if not found or stored_row(found[0]) != removal.row:
            return Stale(f"saga {saga_id!r} has changed since the writer saw it")
    return None


def remove(link: Link, removals: Sequence[Removal]) -> None:
    """Remove what is asked, inside a transaction, for which the trigger that guards records is off.

    The lock that this takes waits for appends and lets readers read; only the owner of the table may have it.
    """
    link.run_script("ALTER TABLE records DISABLE TRIGGER records_stay")
    for removal in removals:
        saga_id = stored(removal.row.saga_id)
        if removal.records:
            link.run(_DELETE, saga_id)
            link.run(_NEXT_EPOCH, saga_id)
        elif removal.payloads is None:
            link.run(_EMPTY, saga_id)
        else:
            for n, payload in removal.payloads.items():
                link.run(_REPLACE, saga_id, n, payload.decode())
    link.run_script("ALTER TABLE records ENABLE TRIGGER records_stay")
    # A reader that knows no `redacted` and `pruned` must not take their absence from its list for damage.
    link.run(_MINOR, str(FORMAT_MINOR))


def scrub(server: Server) -> None:
    """Write the table of records anew, so that no old version of a row and no free space of a page holds old bytes.

    Everybody else waits while it lasts, so it has a share of `wait_s`, and gives up rather than make them fail. The
    server's WAL, its archive, backups and replicas are not reached.

    Raises:
        LogUnusable: it could not be done in that time: what was removed cannot be read any more, and its bytes may
            still be in the table's file.
    """
    target = server.target
    limit_s = target.wait_s * _WORK_SHARE
    try:
        link = server.connect(answer_s=limit_s)
        try:
            _wait_for_old_snapshots(link, time.monotonic() + limit_s)
            link.run("SELECT set_config('lock_timeout', $1, false)", str(int(target.wait_s * _LOCK_SHARE * 1000)))
            link.run_script("VACUUM (FULL) records")
        finally:
            link.close()
    except (Gone, Refused) as error:
        raise LogUnusable(
            f"what was removed from {target.location} cannot be read any more, and its bytes may still be in the "
            f"table's file: it could not be written anew within {limit_s:g} s ({error}). Give the same command again "
            "at a quieter time, or with a larger wait_s in the URL of every process"
        ) from error


def _wait_for_old_snapshots(link: Link, until: float) -> None:
    """Wait for transactions that could still see what was removed: the table's new file would keep it for them.

    Raises:
        Refused: they last too long. Those of other roles show only to members of `pg_read_all_stats`.
    """
    ((now,),) = link.run("SELECT pg_current_xact_id()::text")
    while link.run(_OLDER, now)[0][0]:
        if time.monotonic() > until:
            raise Refused("55000", "a transaction that began before the removal is still open")
        pause(until)
