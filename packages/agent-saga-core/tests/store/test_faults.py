"""Full disks, I/O errors, bad places, locked files: a clear error, and nothing lost. Rule ids: F-n."""

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from faulty import FaultyVfs
from store_cases import Scribe, committed, saga_id, varied

from agent_saga.errors import InvariantViolation, LogFailed, LogMissing, LogUnusable, StoreError
from agent_saga.store.filesystem import shared_file_system
from agent_saga.store.open import open_log
from agent_saga.store.port import Committed, Query
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import verify


@pytest.fixture
def vfs(request):
    # Its own name for each test: SQLite keeps a VFS for as long as a connection uses it.
    made = FaultyVfs(f"faulty-{abs(hash(request.node.name))}")
    yield made
    made.faults.heal()
    made.unregister()


def written(path):
    """Number of records that another process would find."""
    with contextlib.closing(open_log(str(path), create=False)) as log:
        return verify(log).records


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("after", range(6))
def test_a_failed_commit_stops_the_log(path, vfs, kind, after):
    """F-1: after a failed commit this process accepts nothing; another one finds each item whole or not at all."""
    log = SqliteLog(path, create=True, vfs=vfs.name)
    scribe = Scribe(log, 1).open(durable=True)
    vfs.faults.fail(kind, after=after)
    with pytest.raises(LogFailed):
        for step in range(1, 20):
            scribe.write(scribe.intent(step), durable=True)
    vfs.faults.heal()
    with pytest.raises(LogFailed, match=r"takes no records since|failed"):
        scribe.write(scribe.intent(scribe.view.count), durable=True)
    log.close()
    assert written(path) >= scribe.view.count
    with contextlib.closing(open_log(str(path), create=True)) as again:
        committed(again, 9)
        assert verify(again).sagas == 2


# SQLite ignores some errors while it closes after another one; Python then reports what our VFS raised.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_operation_may_fail(path, vfs):
    """F-2: whichever operation of a saga's life fails first, what was called committed is there afterwards."""
    for after in range(0, 120, 3):
        place = path.with_name(f"{after}.db")
        log = SqliteLog(place, create=True, vfs=vfs.name)
        vfs.faults.fail("write", "sync", "truncate", after=after)
        known = []
        try:
            scribe = Scribe(log, 1).open(durable=True)
            known.append(1)
            for step in range(1, 8):
                scribe.step(step)
                known.append(scribe.view.count)
            scribe.end()
            known.append(scribe.view.count)
        except StoreError:
            pass
        vfs.faults.heal()
        with contextlib.suppress(StoreError):
            log.close()
        if known:
            assert written(place) >= known[-1], f"after {after}"


def test_a_full_disk_stops_effects_and_lets_rollbacks_end(path, vfs):
    """F-3: on a full disk no intent is written; records that start no effect get the reserve, once."""
    log = SqliteLog(path, create=True, vfs=vfs.name)
    scribe = Scribe(log, 1).open().step()
    reserve = Path(f"{path}-owners") / ".reserve"
    assert reserve.stat().st_size > 0
    vfs.faults.fail("write", error=apsw.FullError)
    rollback = scribe.item(scribe.fact("rollback_started", cause="x"), scribe.compensation())

    class Full(type(vfs.faults)):
        def pass_or_fail(self, kind):
            if kind == "write" and reserve.stat().st_size > 0:
                raise apsw.FullError("the disk is full")

    vfs.faults.__class__ = Full
    assert isinstance(scribe.put(rollback, durable=True), Committed)
    assert reserve.stat().st_size == 0
    scribe.write(scribe.compensated()).end("rolled_back", clean=True)
    log.close()
    assert written(path) == 7


def test_a_full_disk_refuses_an_intent(path, vfs):
    """F-4: an intent that the disk has no room for is not written, and the reserve is left to the rollback."""
    log = SqliteLog(path, create=True, vfs=vfs.name)
    scribe = Scribe(log, 1).open()
    vfs.faults.fail("write", error=apsw.FullError)
    with pytest.raises(LogFailed, match="full"):
        scribe.write(scribe.intent(), durable=True)
    vfs.faults.heal()
    log.close()
    assert (Path(f"{path}-owners") / ".reserve").stat().st_size > 0
    assert written(path) == 1


def test_a_reader_that_cannot_read_says_so(path, vfs):
    """F-5: an I/O error while reading is an error, never an empty answer."""
    varied(SqliteLog(path, create=True)).close()
    log = SqliteLog(path, create=False, vfs=vfs.name)
    vfs.faults.fail("read")
    with pytest.raises(StoreError):
        log.rows(Query())
    vfs.faults.heal()
    assert len(log.rows(Query())) > 0
    log.close()


def test_a_record_that_cannot_be_encoded_writes_nothing(path):
    """F-6: a record with text that is no UTF-8 is our bug: nothing is written, and the log works on."""
    with contextlib.closing(SqliteLog(path, create=True)) as log:
        scribe = Scribe(log, 1).open()
        with pytest.raises(InvariantViolation):
            log.append([scribe.item(scribe.fact("abandoned", reason="\ud800"))], durable=True)
        scribe.step()
        assert verify(log).records == 3


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, LogMissing, "no log at"),
        (b"", LogUnusable, "empty file"),
        (b"garbage" * 1000, LogUnusable, "not an SQLite database"),
        (b"SQLite format 3\0" + b"\0" * 4080, LogUnusable, "log"),
    ],
)
def test_what_is_no_log_is_named(path, content, error, words):
    """F-7: missing, empty and foreign files are told apart, for readers; the file is left as it was."""
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=words):
        open_log(str(path), create=False)
    if content is not None:
        assert path.read_bytes() == content
        with (
            pytest.raises(LogUnusable),
            contextlib.closing(open_log(str(path), create=True)) as log,
        ):
            Scribe(log, 1).open()
        assert path.read_bytes() == content


def test_bad_places(path, tmp_path, monkeypatch):
    """F-8: a directory, a foreign database, a missing folder and other kinds of logs are named."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])  # No package that brings another log.
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE records(x)")
    for url, error, words in (
        (str(tmp_path), LogUnusable, "directory"),
        (str(path), LogUnusable, "not a log of agent-saga"),
        (str(tmp_path / "no" / "log.db"), LogMissing, "not a directory"),
        ("postgresql://host/db", LogUnusable, "pip install agent-saga-postgres"),
        ("redis://host", LogUnusable, "names no log"),
        ("", LogUnusable, "no path"),
        ("/dev/null", LogUnusable, "not a file"),
    ):
        with pytest.raises(error, match=words):
            open_log(url, create=False)


def test_nothing_is_made_before_the_first_record(path, tmp_path):
    """F-9: a log that may be made reads as empty and leaves no file; the first record makes it, for its user only."""
    with contextlib.closing(open_log(str(path), create=True)) as log:
        assert log.rows(Query()) == []
        assert (log.row("x"), log.row_of_key("k"), log.tail(), list(log.verify())) == (None, None, [], [])
        assert list(tmp_path.iterdir()) == []
        committed(log, 1)
        assert log.row(saga_id(1)) is not None
        for made in tmp_path.iterdir():
            assert stat.S_IMODE(made.stat().st_mode) & 0o077 == 0, made
    assert sorted(made.name for made in tmp_path.iterdir()) == ["log.db", "log.db-mark", "log.db-owners"]


def test_leftovers_of_a_lost_log_are_not_mixed_in(path):
    """F-10: a -wal without its log stops the making of a new one; empty leftovers do not."""
    wal = Path(f"{path}-wal")
    wal.write_bytes(b"x" * 100)
    with contextlib.closing(open_log(str(path), create=True)) as log, pytest.raises(LogUnusable, match="lost one"):
        Scribe(log, 1).open()
    wal.write_bytes(b"")
    with contextlib.closing(open_log(str(path), create=True)) as log:
        committed(log, 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["any", "lock", "read", "open"])
def test_a_bad_disk_does_not_keep_the_dead_alive(path, vfs, kind):
    """F-17: whatever the disk says while a log is closed, its process owns nothing afterwards."""
    log = SqliteLog(path, create=True, vfs=vfs.name)
    Scribe(log, 1, owner=log.owner()).open()
    assert len(log.rows(Query())) == 1
    vfs.faults.fail(kind, error=apsw.CorruptError)
    with contextlib.suppress(StoreError):
        log.close()
    vfs.faults.heal()
    with contextlib.closing(open_log(str(path), create=False)) as other:
        (row,) = other.rows(Query())
        proof = other.prove_dead(row.row.owner)
        assert proof is not None
        proof.close()


LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_locked_log_is_waited_for_then_named(path):
    """F-11: another program's lock is waited for within bounds; a commit then fails, and says why."""
    varied(SqliteLog(path, create=True)).close()
    log = SqliteLog(path, create=True, wait_s=0.05)
    # In a process of its own: two SQLite libraries in one process do not see each other's locks.
    locker = subprocess.Popen([sys.executable, "-c", LOCKER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert locker.stdout.readline() == b"locked\n"
    assert len(log.rows(Query())) > 0
    with pytest.raises(LogFailed, match="locked by another program"):
        Scribe(log, 50).open()
    locker.communicate(b"go")
    log.close()


def test_a_log_whose_folder_is_gone_closes(tmp_path):
    """F-16: deleting the folder of an open log (a temporary one, say) makes closing it no error."""
    folder = tmp_path / "gone"
    folder.mkdir()
    log = SqliteLog(folder / "log.db", create=True)
    Scribe(log, 1).open()
    shutil.rmtree(folder)
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_closed_log_is_closed(path):
    """F-12: a closed log neither reads nor writes."""
    log = SqliteLog(path, create=True)
    scribe = Scribe(log, 1).open()
    log.close()
    log.close()
    with pytest.raises(LogFailed, match="closed"):
        log.append([scribe.item(scribe.intent())], durable=True)
    with pytest.raises(LogFailed, match="closed"):
        log.row(scribe.id)


def test_a_read_only_file(path, monkeypatch):
    """F-13: a file that cannot be written is read; a commit fails and says why (`access` lies for root)."""
    varied(SqliteLog(path, create=True)).close()
    real = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK and real(place, mode))
    with contextlib.closing(open_log(str(path), create=False)) as log:
        assert verify(log).records == 63
        with pytest.raises(LogFailed, match="read-only"):
            Scribe(log, 50).open()


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /data rw - nfs4 server:/x rw
31 22 0:41 / /my\\040share rw shared:5 - cifs //server/x rw
32 22 0:42 / /fuse rw - fuse.sshfs x rw
33 30 8:2 / /data/local rw - xfs /dev/sdb rw
broken line
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/home", None),
        ("/data", "nfs4"),
        ("/data/logs", "nfs4"),
        ("/database", None),
        ("/my share/logs", "cifs"),
        ("/fuse/x", "fuse.sshfs"),
        ("/data/local/x", None),
    ],
)
def test_shared_file_systems_are_refused(place, kind):
    """F-14: the file system of the longest mount point counts; network and shared ones are named."""
    assert shared_file_system(Path(place), mounts=MOUNTS) == kind


def test_a_shared_file_system_may_be_accepted(path, monkeypatch):
    """F-15: `allow_fs` accepts what is refused otherwise."""
    monkeypatch.setattr("agent_saga.store.connection.shared_file_system", lambda _directory: "nfs")
    with pytest.raises(LogUnusable, match="--allow-fs"):
        open_log(str(path), create=True)
    with contextlib.closing(open_log(str(path), create=True, allow_fs=True)) as log:
        committed(log, 1)
