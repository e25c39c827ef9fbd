"""Writing a merged log: a new file, complete or not there at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from itertools import groupby
from typing import TYPE_CHECKING, Final

import apsw
import msgspec

from agent_saga.audit.merge import Merging, merge
from agent_saga.errors import UsageError
from agent_saga.machine.gate import Fact, facts_of
from agent_saga.store.mark import MarkWriter
from agent_saga.store.merged import META, MINOR, Merged
from agent_saga.store.schema import DATA_KEY, PUT_DATA_KEY, RAISE_MINOR, create_file
from agent_saga.store.sealing import MINOR as SEALED_MINOR
from agent_saga.store.sealing import KeepsDataKeys
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.totals import added_up
from agent_saga.store.verify import verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent_saga.audit.merge import Family, Member, Source

APART: Final = "-diverged-"
"""What the names of the logs that are kept apart add to the name of the merged one, before a number."""
_PLAN: Final = (
    "CREATE TEMP TABLE plan(t INTEGER, root TEXT, seq INTEGER, saga TEXT, n INTEGER, body BLOB, payload BLOB, "
    "hash BLOB, seals TEXT, PRIMARY KEY(t, root, seq)) WITHOUT ROWID"
)
_RECORDS: Final = (
    "INSERT INTO records SELECT ?1 + row_number() OVER (ORDER BY t, root, seq), saga, n, body, payload, hash FROM plan"
)
_LEAVES: Final = (
    "UPDATE sagas SET leaf = placed.leaf FROM (SELECT seals, row_number() OVER (ORDER BY t, root, seq) AS leaf "
    "FROM plan WHERE seals IS NOT NULL) AS placed WHERE placed.seals = sagas.saga"
)
_KEYS: Final = "INSERT OR REPLACE INTO keys SELECT key, saga FROM sagas WHERE key IS NOT NULL ORDER BY incarnation"
_TOTALS: Final = "SELECT kind, name, saga, no, value, at FROM facts WHERE kind = 'spend' ORDER BY name, saga, no"


def merge_into(sources: Sequence[Source], out: Path) -> Merging:
    """Merge logs into a new file, and what has diverged into files beside it (`<out>-diverged-1`, ...).

    Args:
        sources: the logs, verified; nobody may write them meanwhile.
        out: the new file.

    Raises:
        UsageError: the file, or one beside it, exists.
        CorruptLog, SagaBusy: see `merge.merge`; nothing is left at `out`.

    Durability:
        On return the files are complete and durable.
    """
    logs = sorted({log for source in sources for log in source.logs()})
    targets: list[_Target] = []

    def put(place: int, family: Family, bare: set[str]) -> None:
        while len(targets) <= place:
            targets.append(_Target(_path(out, len(targets))))
        targets[place].add(family, bare)

    try:
        put_main = _Target(_path(out, 0))
        targets.append(put_main)
        diverged = merge(sources, put)
        keys = _data_keys(sources)
        for target in targets:
            target.add_keys(keys)
            target.finish(logs)
        for target in targets:
            target.publish()
    finally:
        for target in targets:
            target.remove()
    return Merging(
        sagas=targets[0].sagas,
        records=targets[0].records,
        logs=tuple(logs),
        diverged=tuple(diverged),
        apart=len(targets) - 1,
    )


def _data_keys(sources: Sequence[Source]) -> dict[str, str]:
    """Return the wrapped data keys of all logs; of copies that were wrapped anew the largest text, in any order."""
    found: dict[str, str] = {}
    for source in sources:
        after = ""
        while isinstance(source.store, KeepsDataKeys) and (page := source.store.data_keys(after=after)):
            for saga_id, data_key in page:
                found[saga_id] = max(data_key, found.get(saga_id, ""))
            after = page[-1][0]
    return found


def _path(out: Path, place: int) -> Path:
    return out if place == 0 else out.with_name(f"{out.name}{APART}{place}")


class _Target:
    """A log on its way: written under a hidden name, and linked to its own when it is complete and verified."""

    def __init__(self, path: Path) -> None:
        if path.exists() or path.with_name(path.name + "-wal").exists():
            raise UsageError(f"{path} exists already: nothing is overwritten")
        self.path = path
        self._hidden = path.with_name(f".{path.name}.{secrets.token_hex(6)}.merging")
        self.sagas = self.records = self._largest = 0
        self._encrypted = False
        try:
            create_file(self._hidden)
        except OSError as error:
            raise UsageError(f"{path} cannot be made: {error.strerror}") from error
        self._db = apsw.Connection(str(self._hidden))
        self._db.execute("PRAGMA temp_store=FILE")
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(_PLAN)

    def add(self, family: Family, bare: set[str]) -> None:
        """Take a history."""
        root, newest = family.members[0].row.saga_id, 0
        seals = {one.sealed_by: one.row.saga_id for one in family.members if one.sealed_by is not None}
        rows = []
        for seq, (stored, record) in enumerate(family.records):
            newest = max(newest, record.at)
            self._largest = max(self._largest, record.pos)
            payload = None if stored.saga_id in bare else stored.payload
            sealed = seals.get((stored.saga_id, stored.n))
            rows.append((newest, root, seq, stored.saga_id, stored.n, stored.body, payload, stored.hash, sealed))
        self._db.executemany("INSERT INTO plan VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self.records += len(rows)
        for member in family.members:
            self._add_saga(member)

    def _add_saga(self, member: Member) -> None:
        stored, row = member.row, member.row.row
        values: list[object] = [
            stored.saga_id,
            row.name,
            row.key,
            row.incarnation,
            row.state,
            row.owner,
            row.epoch,
            row.on_crash,
        ]
        values += [row.opened_at, row.due_at, row.work, row.human, int(row.sealed), row.amends, stored.head]
        values += [stored.count, stored.amendments, None]
        self._db.execute(f"INSERT INTO sagas VALUES({', '.join('?' * len(values))})", values)
        self._db.executemany("INSERT INTO facts VALUES(?, ?, ?, ?, ?, ?)", facts_of(member.view, sealed=row.sealed))
        self.sagas += 1

    def add_keys(self, keys: Mapping[str, str]) -> None:
        """Take wrapped data keys, by saga; of sagas that are not here, or have no payloads, none is kept."""
        for saga_id, data_key in keys.items():
            there = "SELECT 1 FROM plan WHERE saga = ? AND payload IS NOT NULL LIMIT 1"
            if self._db.execute(there, (saga_id,)).get:
                self._db.execute(PUT_DATA_KEY, (DATA_KEY + saga_id, data_key))
                self._encrypted = True

    def finish(self, logs: list[str]) -> None:
        """Put everything in its order, and check it.

        Raises:
            CorruptLog: what came out is no good log; an error of ours, before anybody has seen it.
        """
        run = self._db.execute
        skipped = max(0, self._largest - self.records)
        run(_RECORDS, (skipped,))
        run(_LEAVES)
        run(_KEYS)
        for total in self._totals():
            run("INSERT INTO facts VALUES(?, ?, ?, ?, ?, ?)", total)
        digest = hashlib.sha256("\0".join(["agent-saga merged log", *logs]).encode())
        for (hashed,) in run("SELECT hash FROM records ORDER BY pos"):
            digest.update(hashed)
        self._log = digest.hexdigest()[:32]
        merged = Merged(logs=logs, last=skipped + self.records, skipped=skipped)
        meta = {"log": self._log, "minor": str(MINOR), META: msgspec.json.encode(merged).decode()}
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES(?, ?)", meta.items())
        if self._encrypted:
            run(RAISE_MINOR, (str(SEALED_MINOR),))
        run("COMMIT")
        run("DROP TABLE plan")
        run("PRAGMA wal_checkpoint(TRUNCATE)")
        self._last = merged.last
        self._db.close()
        log = SqliteLog(self._hidden, create=False)
        try:
            verify(log)
        finally:
            log.close()

    def _totals(self) -> list[Fact]:
        spent = [Fact(*values) for values in self._db.execute(_TOTALS)]
        return [added_up(name, facts) for name, facts in groupby(spent, key=lambda fact: fact.name)]

    def publish(self) -> None:
        """Give the file its name.

        Raises:
            UsageError: somebody else made one meanwhile.
        """
        try:
            self.path.hardlink_to(self._hidden)
        except FileExistsError:
            raise UsageError(f"{self.path} exists already: nothing is overwritten") from None
        mark = MarkWriter(self.path.with_name(self.path.name + "-mark"), self._log, None)
        mark.write(self._last, durable=True)
        mark.close()
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self) -> None:
        """Leave nothing under the hidden name."""
        with contextlib.suppress(apsw.Error):
            self._db.close(True)
        for rest in ("", "-wal", "-shm", "-mark", "-journal"):
            self._hidden.with_name(self._hidden.name + rest).unlink(missing_ok=True)
