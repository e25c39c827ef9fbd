"""A bench for doctored logs: edits one copy of a log thousands of times, and tells who notices."""

import contextlib
import shutil
from pathlib import Path

import apsw
from click.testing import CliRunner
from store_cases import Scribe, committed, dump, gated, lift, partial, rolled_back, saga_id, settle, small

from agent_saga.cli.app import cli
from agent_saga.errors import CorruptLog, LogMissing, LogUnusable
from agent_saga.store.open import open_log
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import verify

TABLES = {
    "meta": ("name", "value"),
    "records": ("pos", "saga", "n", "body", "payload", "hash"),
    "sagas": (
        *("saga", "name", "key", "incarnation", "state", "owner", "epoch", "on_crash", "opened_at", "due_at", "work"),
        *("human", "sealed", "amends", "head", "count", "amendments", "leaf"),
    ),
    "keys": ("key", "saga"),
    "facts": ("kind", "name", "saga", "no", "value", "at"),
}
"""Every table of a log with its columns; `test_the_bench_knows_every_cell` compares them with the file."""

REST = ("-wal", "-shm", "-mark")


def tiny(store):
    """Two sagas, a key, a rollback, a payload in most records."""
    committed(store, 1, tags=["ü"])
    rolled_back(store, 2, key="a")
    return store


def mixed(store):
    """Small, and with a row in every table, a row of each sort, and each kind of fact."""
    rolled_back(store, 1, key="a")
    committed(store, 2, key="a", incarnation=2)
    partial(store, 3, key="b")
    settle(store, 4, saga_id(3))
    halted = small(store, 5, None, ("operator_action", {"action": "halt", "scope": "*", "by": "ann", "reason": "x"}))
    lift(store, 6, halted.id)
    small(store, 7, None, ("operator_action", {"action": "key_added", "scope": "ann", "by": "ann", "data": "ab" * 32}))
    small(store, 8, None, ("operator_action", {"action": "drain", "scope": "tag:eu", "by": "ann"}))
    waits = Scribe(store, 9).open()
    waits.write(waits.intent(resources=["box:1"]), waits.reserve("1.5")).write(waits.request(quorum=2))
    partial(store, 10)
    asleep = Scribe(store, 11).open(suspend_ttl_s=60.0).step()
    asleep.write(asleep.fact("suspended", reason="approval", expires_at=1_800_000_000_000_000_000))
    return store


def gates(store):
    """What the gate leaves: words, amounts, halts; see `gated`."""
    gated(store, 20)
    return store


def make(build, folder):
    """Build a log in a folder; returns its path. Its mark lies beside it."""
    folder.mkdir(exist_ok=True)
    build(SqliteLog(folder / "log.db", create=True)).close()
    return folder / "log.db"


def code(path):
    """Return what `agent-saga verify` exits with: 0 fine, 1 damaged, 3 no log."""
    try:
        with contextlib.closing(open_log(str(path), create=False)) as log:
            verify(log)
    except CorruptLog:
        return 1
    except (LogUnusable, LogMissing):
        return 3
    return 0


def copied(source, target):
    """Copy a log with all that belongs to it, over another one."""
    for rest in ("", *REST):
        Path(f"{target}{rest}").unlink(missing_ok=True)
        if Path(f"{source}{rest}").exists():
            shutil.copy(f"{source}{rest}", f"{target}{rest}")
    return target


def printed(path):
    """Return what every command that only reads prints, with its exit code. `verify` is apart: it says what it did."""
    with contextlib.closing(open_log(str(path), create=False)) as log:
        sagas = [row.saga_id for row in dump(log)[0]]
    whole = (
        ["sagas", "--limit", "1000"],
        ["sagas", "--needs-human"],
        ["export"],
        ["approvals", "list"],
        ["keys", "list"],
        ["status"],
        ["recover", "--dry-run"],
    )
    shown = [["show", saga] for saga in sagas] + [["export", "--saga", saga] for saga in sagas]
    told = {}
    for words in [*whole, *shown]:
        for form in ([], ["--json"]) if words[0] != "export" else ([],):
            done = CliRunner().invoke(cli, [*words, *form, "--log", str(path)])
            assert not isinstance(done.exception, Exception), done.exception
            told[tuple(words + form)] = (done.exit_code, done.stdout.replace(str(path), "LOG"))
    return told


class Bench:
    """A copy of a log whose edits are undone at once: each is made in a transaction that never commits.

    Verifier and editor share the connection, so the verifier sees what a reader of the edited file would see.
    """

    def __init__(self, path):
        self.log = SqliteLog(path, create=False)
        self.log.open_now()
        self.db = self.log._reader
        self.db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        self.before = dump(self.log)
        self.tried = self.noticed = 0

    def close(self):
        self.log.close()

    def query(self, sql, *bindings):
        return self.db.execute(sql, bindings).fetchall()

    def rows(self, table):
        return self.query(f"SELECT * FROM {table}")

    def check(self, name, *statements, may_pass=False):
        """Make an edit; it is noticed, or (with `may_pass`) changes nothing that the port shows."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            tables = self._tables()
            for sql, *bindings in statements:
                self.db.execute(sql, bindings)
            if self._tables() == tables:
                return
        except (apsw.ConstraintError, apsw.MismatchError):
            return
        else:
            self.tried += 1
            try:
                verify(self.log)
            except CorruptLog:
                self.noticed += 1
            else:
                assert may_pass, f"not noticed: {name}"
                assert self.before == dump(self.log), f"not noticed, and shown: {name}"
        finally:
            self.db.execute("ROLLBACK")

    def _tables(self):
        return [self.query(f"SELECT * FROM {table}") for table in TABLES]

    def set(self, table, column, key, value):
        """Return the statement that sets a cell; `key` is the row as it is."""
        where = " AND ".join(f"{name} IS ?" for name in TABLES[table])
        return f"UPDATE {table} SET {column} = ? WHERE {where}", value, *key


def odd_values(value, column):
    """Yield what a cell may be changed to: what the column holds elsewhere, neighbours, other types, extremes."""
    yield from column
    yield from (None, 0, 1, 2, -1, 9, 2**63 - 1, -(2**63), 0.5, "", "0", "odd", b"", b"odd", "\0", "open", "committed")
    if isinstance(value, int):
        yield from (value + 1, value - 1, -value, value + 0.5, value ^ (1 << 40))
    if isinstance(value, str):
        yield from (value + "x", value[:-1], value.upper(), value + " ", value + "\0", value.encode(), value[::-1])
    if isinstance(value, bytes):
        yield from (value + b"x", value[:-1], value[1:], bytes(len(value)), value[::-1])
