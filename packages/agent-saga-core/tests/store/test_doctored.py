"""Doctored logs: edits of the file are noticed, by our verifier and by the independent one. Rule ids: D-n."""

import contextlib
import importlib.util
import shutil
import sqlite3
from pathlib import Path

import pytest
from store_cases import dump, everything, saga_id, varied

from agent_saga.errors import CorruptLog, LogMissing, LogUnusable
from agent_saga.model.records import GENESIS, chain_hash
from agent_saga.store.open import open_log
from agent_saga.store.schema import TABLES
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import verify

SCRIPT = Path(__file__).parents[4] / "scripts" / "verify_independently.py"
COLUMNS = {
    "name": ["other"],
    "key": ["other", None],
    "incarnation": [7],
    "state": ["committed", "open", "odd"],
    "owner": ["other", None],
    "epoch": [9],
    "on_crash": ["other"],
    "opened_at": [1],
    "due_at": [5, None],
    "work": [0, 1, 4],
    "human": [0, 1, 4],
    "sealed": [0, 1, 2],
    "amends": [saga_id(2), None],
    "head": [b"x" * 32, None],
    "count": [1, 2, 99],
    "amendments": [0, 1, 99],
    "leaf": [1, 20, None, "odd"],
}


@pytest.fixture(scope="module")
def independent():
    spec = importlib.util.spec_from_file_location("verify_independently", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(path):
        try:
            module.main(str(path))
        except SystemExit as stop:
            return stop.code
        except (KeyError, sqlite3.DatabaseError):
            return 1
        return 0

    return run


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "log.db"
    varied(SqliteLog(path, create=True)).close()
    return path


def ours(path):
    """0 fine, 1 damaged, 3 no log: as `agent-saga verify` exits."""
    try:
        with contextlib.closing(open_log(str(path), create=False)) as log:
            verify(log)
    except CorruptLog:
        return 1
    except (LogUnusable, LogMissing):
        return 3
    return 0


def seen_by(path):
    with contextlib.closing(open_log(str(path), create=False)) as log:
        return dump(log)


def doctor(good, path, *statements):
    """Copy a log and run statements on it, past the triggers; tell whether anything changed."""
    fresh(good, path)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        before = list(db.iterdump())
        db.execute("BEGIN")
        db.execute("DROP TRIGGER records_stay")
        db.execute("DROP TRIGGER records_keep")
        for sql, *bindings in statements:
            db.execute(sql, bindings)
        for trigger in TABLES[-2:]:
            db.execute(trigger)
        db.execute("COMMIT")
        return sorted(before) != sorted(db.iterdump())
    except sqlite3.IntegrityError:
        return False
    finally:
        db.close()


def fresh(good, path):
    """Copy a log to a new file: other connections may still hold the old one."""
    for rest in ("", "-wal", "-shm"):
        Path(f"{path}{rest}").unlink(missing_ok=True)
    shutil.copy(good, path)


def query(path, sql, *bindings):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql, bindings).fetchall()


def test_a_good_log_passes_both(good, tmp_path, independent):
    """D-1: both verifiers accept an undamaged log, and say so for an untouched copy."""
    assert (ours(good), independent(good)) == (0, 0)
    assert not doctor(good, tmp_path / "copy.db")
    assert (ours(tmp_path / "copy.db"), independent(tmp_path / "copy.db")) == (0, 0)


def record_edits(path):
    for pos, saga, n in query(path, "SELECT pos, saga, n FROM records"):
        yield f"delete {pos}", [("DELETE FROM records WHERE pos = ?", pos)]
        yield (
            f"edit body {pos}",
            [("UPDATE records SET body = CAST(replace(body, ':1,', ':2,') AS BLOB) WHERE pos = ?", pos)],
        )
        yield (
            f"spell {pos}",
            [("UPDATE records SET body = CAST(replace(body, '\",\"', '\", \"') AS BLOB) WHERE pos = ?", pos)],
        )
        yield f"no payload {pos}", [("UPDATE records SET payload = NULL WHERE pos = ?", pos)]
        yield (
            f"payload {pos}",
            [("UPDATE records SET payload = CAST(replace(payload, '4200', '1') AS BLOB) WHERE pos = ?", pos)],
        )
        yield f"garbage payload {pos}", [("UPDATE records SET payload = x'7b' WHERE pos = ?", pos)]
        yield f"hash {pos}", [("UPDATE records SET hash = zeroblob(32) WHERE pos = ?", pos)]
        yield f"renumber {pos}", [("UPDATE records SET n = n + 50 WHERE pos = ?", pos)]
        yield f"reposition {pos}", [("UPDATE records SET pos = pos + 500 WHERE pos = ?", pos)]
        yield f"move {pos}", [("UPDATE records SET saga = ?, n = 60 WHERE pos = ?", saga_id(1), pos)]
        yield (
            f"swap {pos}",
            [
                ("UPDATE records SET pos = -1 WHERE pos = ?", pos),
                ("UPDATE records SET pos = ? WHERE pos = ?", pos, pos + 1),
                ("UPDATE records SET pos = ? WHERE pos = -1", pos + 1),
            ],
        )
        if n == 1:
            yield f"no saga {saga}", [("DELETE FROM records WHERE saga = ?", saga)]


def test_edited_records_are_noticed(good, tmp_path, independent):
    """D-2: every deletion, edit, swap, renumbering and move of a record is noticed by both verifiers."""
    copy, tried = tmp_path / "copy.db", 0
    for name, statements in record_edits(good):
        if doctor(good, copy, *statements):
            tried += 1
            assert (name, 1, 1) == (name, ours(copy), independent(copy))
    assert tried > 500


def test_edited_rows_are_noticed(good, tmp_path, independent):
    """D-3: every derived cell of every saga, set to something else, is noticed by both verifiers."""
    copy, tried = tmp_path / "copy.db", 0
    for (saga,) in query(good, "SELECT saga FROM sagas"):
        edits = [
            (f"UPDATE sagas SET {column} = ? WHERE saga = ?", v, saga) for column in COLUMNS for v in COLUMNS[column]
        ]
        for edit in [*edits, ("DELETE FROM sagas WHERE saga = ?", saga)]:
            if doctor(good, copy, edit):
                tried += 1
                assert (edit, 1, 1) == (edit, ours(copy), independent(copy))
    assert tried > 300


def test_edited_keys_are_noticed(good, tmp_path, independent):
    """D-4: a key that leads elsewhere, nowhere, or is missing is noticed."""
    copy = tmp_path / "copy.db"
    for edit in (
        ("DELETE FROM keys WHERE key = 'order-1'",),
        ("UPDATE keys SET saga = ? WHERE key = 'order-1'", saga_id(2)),
        ("UPDATE keys SET saga = 'nobody' WHERE key = 'order-1'",),
        ("INSERT INTO keys VALUES('more', ?)", saga_id(1)),
    ):
        assert doctor(good, copy, edit)
        assert (edit, 1, 1) == (edit, ours(copy), independent(copy))


def test_a_cut_tail_is_noticed_by_rows_or_mark(good, tmp_path):
    """D-5: removing a whole saga with its row and key leaves a gap in positions, unless it is the newest one."""
    copy = tmp_path / "copy.db"
    saga = saga_id(7)
    assert doctor(good, copy, ("DELETE FROM records WHERE saga = ?", saga), ("DELETE FROM sagas WHERE saga = ?", saga))
    assert ours(copy) == 1


def test_a_continued_chain_without_its_row_is_noticed(good, tmp_path, independent):
    """D-6: a record that continues a chain correctly, and is in no row, is noticed."""
    saga = saga_id(7)
    ((head, count),) = query(good, "SELECT head, count FROM sagas WHERE saga = ?", saga)
    ((last,),) = query(good, "SELECT max(pos) FROM records")
    body = b'{"kind":"waived","v":1,"saga":"%s","n":%d,"pos":%d,"at":5,"step":1}' % (saga.encode(), count + 1, last + 1)
    values = (last + 1, saga, count + 1, body, None, chain_hash(head, body))
    copy = tmp_path / "copy.db"
    assert doctor(good, copy, ("INSERT INTO records VALUES(?, ?, ?, ?, ?, ?)", *values))
    assert (ours(copy), independent(copy)) == (1, 1)


def rewritten(good, copy, old, new):
    """Rewrite text in the bodies of saga 7 and make chain and row fit again: only the meaning is wrong now."""
    saga, head, statements = saga_id(7), GENESIS, []
    for pos, body in query(good, "SELECT pos, body FROM records WHERE saga = ? ORDER BY n", saga):
        changed = body.replace(old, new)
        head = chain_hash(head, changed)
        statements.append(("UPDATE records SET body = ?, hash = ? WHERE pos = ?", changed, head, pos))
    doctor(good, copy, *statements, ("UPDATE sagas SET head = ? WHERE saga = ?", head, saga))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"kind":"outcome"', b'"kind":"teleported"'),
        (b'"v":1', b'"v":2'),
        (b'"step":1', b'"step":1,"step":1'),
        (b'"step":1', b'"step": 1'),
        (b'"kind":"saga_opened"', b'"kind":"saga_opened","v":1'),
        (b'"resume"', b'"r\\u0065sume"'),
    ],
)
def test_bodies_with_valid_hashes_are_read_strictly(good, tmp_path, independent, old, new):
    """D-7: unknown kinds and versions, duplicate fields and second spellings stop a reader even in a valid chain."""
    copy = tmp_path / "copy.db"
    rewritten(good, copy, old, new)
    assert (ours(copy), independent(copy)) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"step":1', b'"step":2'),
        (b'"state":"succeeded"', b'"state":"odd"'),
        (b'"exact"', b'"exakt"'),
        (b'"n":2', b'"n":2,"x":1'),
    ],
)
def test_records_that_cannot_follow_are_damage(good, tmp_path, old, new):
    """D-8: a valid chain whose records cannot follow one another, or have fields we do not know, is damage."""
    copy = tmp_path / "copy.db"
    rewritten(good, copy, old, new)
    if seen_by(copy) != seen_by(good):
        assert ours(copy) == 1


def test_schema_changes_are_noticed(good, tmp_path):
    """D-9: missing triggers or indexes, foreign objects and a newer format are named."""
    for edit, code in (
        ("DROP TRIGGER records_stay", 1),
        ("DROP INDEX sagas_unsealed", 1),
        ("CREATE TABLE more(x)", 1),
        ("UPDATE meta SET value = '2' WHERE name = 'format'", 3),
        ("PRAGMA application_id = 5", 3),
        ("DROP TABLE meta", 3),
    ):
        copy = tmp_path / "copy.db"
        fresh(good, copy)
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
            db.execute(edit)
        assert (edit, code) == (edit, ours(copy))


def test_triggers_keep_other_programs_off(good, tmp_path):
    """D-10: another program cannot delete or change records by accident."""
    shutil.copy(good, tmp_path / "copy.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        for sql in ("DELETE FROM records", "UPDATE records SET n = 5"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                db.execute(sql)


def test_flipped_bytes_are_noticed_or_change_nothing(good, tmp_path):
    """D-11: a flipped byte anywhere in the file is noticed, or changes nothing that a reader sees."""
    data, copy, before = good.read_bytes(), tmp_path / "copy.db", seen_by(good)
    noticed = 0
    for at in range(0, len(data), 61):
        fresh(good, copy)
        copy.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        code = ours(copy)
        noticed += code != 0
        assert code != 0 or seen_by(copy) == before, f"byte {at}"
    assert noticed > 100


def test_truncated_files_are_noticed(good, tmp_path):
    """D-12: a file cut anywhere is no log, damaged, or reads as before."""
    data, copy, before = good.read_bytes(), tmp_path / "copy.db", seen_by(good)
    for size in (*range(1, 200, 37), *range(4096, len(data), 4096), len(data) - 100):
        fresh(good, copy)
        copy.write_bytes(data[:size])
        assert ours(copy) != 0 or seen_by(copy) == before, f"cut to {size}"


@pytest.fixture(scope="module")
def gated(tmp_path_factory):
    path = tmp_path_factory.mktemp("gated") / "log.db"
    everything(SqliteLog(path, create=True)).close()
    return path


FACT_EDITS = (
    "DELETE FROM facts WHERE {this}",
    "UPDATE facts SET kind = 'odd' WHERE {this}",
    "UPDATE facts SET name = name || 'x' WHERE {this}",
    "UPDATE facts SET saga = 'nobody' WHERE {this}",
    "UPDATE facts SET no = no + 1 WHERE {this}",
    "UPDATE facts SET value = value || '0' WHERE {this}",
    "UPDATE facts SET value = '1' WHERE {this}",
    "UPDATE facts SET at = at + 1 WHERE {this}",
    "INSERT INTO facts SELECT kind, name, saga, no + 9, value, at FROM facts WHERE {this}",
    "INSERT INTO facts SELECT kind, name || 'x', saga, no, value, at FROM facts WHERE {this}",
    "INSERT INTO facts SELECT kind, name, 'nobody', no, value, at FROM facts WHERE {this}",
    "INSERT INTO facts SELECT 'halt', '*', saga, 77, value, at FROM facts WHERE {this}",
)


def test_edited_facts_are_noticed(gated, tmp_path, independent):
    """D-13: a fact that is changed, removed or planted is noticed by both verifiers."""
    copy, tried = tmp_path / "copy.db", 0
    assert (ours(gated), independent(gated)) == (0, 0)
    for key in query(gated, "SELECT kind, name, saga, no FROM facts"):
        for edit in FACT_EDITS[key[0] == "total" :]:  # A total that is not there is added up when it is asked for.
            statement = edit.format(this="kind = ? AND name = ? AND saga = ? AND no = ?")
            if doctor(gated, copy, (statement, *key)):
                tried += 1
                assert (edit, key, 1, 1) == (edit, key, ours(copy), independent(copy))
    assert tried > 100


@pytest.mark.parametrize("kind", ["approval_requested", "approval_decided", "reserved", "operator_action"])
def test_removed_words_are_noticed(gated, tmp_path, independent, kind):
    """D-14: a record of the gate that is edited or removed is noticed by both verifiers."""
    copy = tmp_path / "copy.db"
    ((pos, *_),) = query(gated, f'SELECT min(pos) FROM records WHERE CAST(body AS TEXT) LIKE \'%"kind":"{kind}"%\'')
    for statement in (
        "DELETE FROM records WHERE pos = ?",
        "UPDATE records SET body = CAST(replace(body, 'ann', 'eve') || ' ' AS BLOB) WHERE pos = ?",
    ):
        assert doctor(gated, copy, (statement, pos))
        assert (statement, 1, 1) == (statement, ours(copy), independent(copy))
