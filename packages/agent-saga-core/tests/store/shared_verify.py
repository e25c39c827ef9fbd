"""Verifies doctored copies of a log, alone and with forked processes; prints what is found. It has no threads.

Arguments: the log, and a folder for copies.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

from agent_saga.audit.certify import certify
from agent_saga.errors import CorruptLog
from agent_saga.store import verify as verifying
from agent_saga.store.open import open_log

EDITS = (
    "SELECT 1",
    "UPDATE records SET body = CAST(replace(CAST(body AS TEXT), '\"at\":1', '\"at\":2') AS BLOB) WHERE pos = {pos}",
    "UPDATE records SET hash = zeroblob(32) WHERE pos = {pos}",
    "UPDATE records SET payload = CAST(payload || ' ' AS BLOB) WHERE pos >= {pos} AND payload IS NOT NULL",
    "DELETE FROM records WHERE pos = {pos}",
    "UPDATE sagas SET work = work + 1 WHERE saga = (SELECT saga FROM records WHERE pos = {pos})",
    "UPDATE sagas SET leaf = (SELECT max(leaf) + 7 FROM sagas) WHERE leaf = (SELECT max(leaf) FROM sagas)",
    "UPDATE facts SET value = value || '0' WHERE kind <> 'total'",
)


class Fatal:
    """A visitor that kills every process but the first one."""

    def __init__(self):
        self.pid = os.getpid()
        self.sagas = 0

    def add(self, _stored, _view):
        if os.getpid() != self.pid:
            os.kill(os.getpid(), signal.SIGKILL)
        self.sagas += 1

    def take(self):
        return b""

    def merge(self, _taken):
        pass


def found(path, processes):
    """Return what verifying and certifying say."""
    with contextlib.closing(open_log(str(path), create=False)) as log:
        try:
            report = verifying.verify(log, processes=processes)
            certificate = certify(log, processes=processes).to_dict() | {"at": 0}
        except CorruptLog as error:
            return [error.saga_id, error.n, str(error)]
        return [report.sagas, report.records, report.checked, report.unchecked, report.pruned, certificate]


def main():
    source, folder = map(Path, sys.argv[1:])
    verifying.SHARED_FROM = 1
    copy = folder / "copy.db"
    with contextlib.closing(sqlite3.connect(source)) as db:
        (last,) = db.execute("SELECT max(pos) FROM records").fetchone()
    differ, damaged = [], set()
    for edit in EDITS:
        for pos in (1, last // 3, last):
            shutil.copy(source, copy)
            with contextlib.closing(sqlite3.connect(copy)) as db, db:
                triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
                for name, _ in triggers:
                    db.execute(f"DROP TRIGGER {name}")
                db.execute(edit.format(pos=pos))
                for _, sql in triggers:
                    db.execute(sql)
            alone, shared = found(copy, 1), found(copy, 3)
            if len(alone) == 3:
                damaged.add(edit)
            if json.dumps(alone) != json.dumps(shared):
                differ.append([edit, pos, alone, shared])
    with contextlib.closing(open_log(str(source), create=False)) as log:
        fatal = Fatal()
        report = verifying.verify(log, visitor=fatal, processes=3)
    print(
        json.dumps(
            {
                "differ": differ,
                "missed": [edit for edit in EDITS if edit not in damaged],
                "left": report.sagas - fatal.sagas,
            }
        )
    )


if __name__ == "__main__":
    main()
