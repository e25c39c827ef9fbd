"""Whoever looks at a doctored log sees the damage: verify, certify, checkpoint, proof, bundle and pictures agree."""

import contextlib
import hashlib
import json
import shutil
import sqlite3

import pytest
from click.testing import CliRunner

from agent_saga.cli.app import cli
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import all_rows
from pytest_agent_saga.conformance.sagas import committed, everything, rolled_back, saga_id

GENESIS = bytes(32)
SAGA = saga_id(400)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "log.db"
    log = everything(SqliteLog(path, create=True))
    rolled_back(log, 400)
    committed(log, 401)
    log.close()
    return path


def rechained(db, saga):
    """Make the chain of a saga, and the head in its row, fit its bodies again."""
    head = GENESIS
    for pos, body in db.execute("SELECT pos, body FROM records WHERE saga = ? ORDER BY n", (saga,)).fetchall():
        head = hashlib.sha256(head + body).digest()
        db.execute("UPDATE records SET hash = ? WHERE pos = ?", (head, pos))
    db.execute("UPDATE sagas SET head = ? WHERE saga = ?", (head, saga))


def edited(db, old, new):
    db.execute(
        "UPDATE records SET body = CAST(replace(CAST(body AS TEXT), ?, ?) AS BLOB) WHERE saga = ?", (old, new, SAGA)
    )


def an_amount(db):
    """The amount of a charge, in its payload."""
    db.execute(
        "UPDATE records SET payload = CAST(replace(CAST(payload AS TEXT), '4200', '42') AS BLOB) WHERE saga = ?",
        (SAGA,),
    )


def a_state(db):
    edited(db, '"state":"compensated"', '"state":"failed"')


def a_state_and_the_chain(db):
    """An outcome, with hashes and head made anew: the row does not follow from it any more."""
    edited(db, '"state":"compensated"', '"state":"failed"')
    rechained(db, SAGA)


def a_second_spelling(db):
    """A body with a space, hashed anew."""
    edited(db, '"kind":"saga_ended",', '"kind":"saga_ended", ')
    rechained(db, SAGA)


def a_key_twice(db):
    edited(db, '"kind":"saga_ended",', '"kind":"saga_ended","outcome":"committed",')
    rechained(db, SAGA)


def a_time_that_is_text(db):
    edited(db, '"at":1', '"at":"1')
    rechained(db, SAGA)


def a_withheld_record(db):
    """A record is taken out, the ones after it are renumbered and chained anew."""
    ((n,),) = db.execute("SELECT max(n) - 1 FROM records WHERE saga = ?", (SAGA,))
    db.execute("DELETE FROM records WHERE saga = ? AND n = ?", (SAGA, n))
    rows = db.execute("SELECT pos, n, body FROM records WHERE saga = ? AND n > ?", (SAGA, n)).fetchall()
    for pos, number, body in rows:
        new = body.replace(b'"n":%d' % number, b'"n":%d' % (number - 1))
        db.execute("UPDATE records SET n = ?, body = ? WHERE pos = ?", (number - 1, new, pos))
    db.execute("UPDATE sagas SET count = count - 1 WHERE saga = ?", (SAGA,))
    rechained(db, SAGA)


def two_swapped(db):
    """Two records change places, with numbers, positions and chain made to fit."""
    one, two = db.execute("SELECT pos, n, body FROM records WHERE saga = ? ORDER BY n LIMIT 2 OFFSET 1", (SAGA,))
    for (pos, n, _), (other, number, body) in ((one, two), (two, one)):
        new = body.replace(b'"n":%d,"pos":%d' % (number, other), b'"n":%d,"pos":%d' % (n, pos))
        db.execute("UPDATE records SET body = ?, payload = NULL WHERE pos = ?", (new, pos))
    rechained(db, SAGA)


def a_splice(db):
    """The last record of the saga is that of another one."""
    ((body,),) = db.execute("SELECT body FROM records WHERE saga = ? ORDER BY n DESC LIMIT 1", (saga_id(401),))
    ((last,),) = db.execute("SELECT max(pos) FROM records WHERE saga = ?", (SAGA,))
    db.execute("UPDATE records SET body = ? WHERE pos = ?", (body, last))


def a_row(db):
    db.execute("UPDATE sagas SET state = 'committed' WHERE saga = ?", (SAGA,))


EDITS = [an_amount, a_state, a_state_and_the_chain, a_second_spelling, a_key_twice, a_time_that_is_text]
EDITS += [a_withheld_record, two_swapped, a_splice, a_row]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_everybody_sees_the_damage(good, tmp_path, edit):
    """AGREE-1: each command that reads the doctored saga, or the whole log, ends with exit code 1 and says so."""
    path = tmp_path / "log.db"
    shutil.copy(good, path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        edit(db)
        for _, sql in triggers:
            db.execute(sql)
    codes = {}
    key = tmp_path / "key"
    CliRunner().invoke(cli, ["keys", "new", str(key)])
    for words in (
        ["verify"],
        ["certify"],
        ["certify", "--saga", SAGA],
        ["audit-root"],
        ["checkpoint", "--key", str(key)],
        ["bundle", str(tmp_path / "out")],
        ["merge", str(path), "--out", str(tmp_path / "merged.db")],
        ["prove", SAGA],
        ["show", SAGA],
        ["export", "--saga", SAGA],
        ["graph", SAGA],
        ["animate", SAGA],
        ["replay", SAGA],
        ["viz", "--kind", "chain", SAGA],
        ["viz", "--kind", "fleet"],
        ["viz", "--kind", "outcomes"],
    ):
        log = [] if words[0] == "merge" else ["--log", str(path)]
        done = CliRunner().invoke(cli, [*words, *log])
        assert not isinstance(done.exception, Exception) or isinstance(done.exception, SystemExit), (
            words,
            done.exception,
        )
        codes[" ".join(words)] = done.exit_code
    assert {name for name, code in codes.items() if code != 1} == set()


def test_a_replaced_checkpoint_is_noticed(good, tmp_path):
    """AGREE-2: a proof under a checkpoint that another log's holder made does not hold under the trusted one."""
    other = tmp_path / "other.db"
    log = SqliteLog(other, create=True)
    rolled_back(log, 400)
    log.close()
    key = tmp_path / "key"
    CliRunner().invoke(cli, ["keys", "new", str(key)])
    notes = {}
    for name, path in (("good", good), ("other", other)):
        done = CliRunner().invoke(cli, ["checkpoint", "--key", str(key), "--name", "x", "--log", str(path)])
        notes[name] = tmp_path / f"{name}.note"
        notes[name].write_text(done.stdout)
    proof = tmp_path / "proof"
    proof.write_text(
        CliRunner().invoke(cli, ["prove", SAGA, "--log", str(good), "--checkpoint", str(notes["good"])]).stdout
    )
    words = ["verify-proof", str(proof), "--checkpoint"]
    assert CliRunner().invoke(cli, [*words, str(notes["good"])]).exit_code == 0
    assert CliRunner().invoke(cli, [*words, str(notes["other"])]).exit_code == 1
    document = json.loads(proof.read_text())
    proof.write_text(json.dumps(document | {"checkpoint": notes["other"].read_text()}))
    assert CliRunner().invoke(cli, ["verify-proof", str(proof)]).exit_code == 1


def test_what_only_an_anchor_can_tell_is_named(good, tmp_path):
    """AGREE-3: a log written anew verifies, says what it could not check, and fails with the anchor."""
    key, note = tmp_path / "key", tmp_path / "note"
    CliRunner().invoke(cli, ["keys", "new", str(key)])
    note.write_text(CliRunner().invoke(cli, ["checkpoint", "--key", str(key), "--log", str(good)]).stdout)
    forged = tmp_path / "log.db"
    shutil.copy(good, forged)
    with contextlib.closing(sqlite3.connect(forged)) as db, db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        edited(db, '"tool":"charge"', '"tool":"launch"')
        rechained(db, SAGA)
        for _, sql in triggers:
            db.execute(sql)
    done = CliRunner().invoke(cli, ["verify", "--log", str(forged)])
    assert (done.exit_code, "not checked  a rewrite of the whole log" in done.output) == (0, True)
    for words in (["verify"], ["certify"], ["checkpoint", "--key", str(key)]):
        assert CliRunner().invoke(cli, [*words, "--anchor", str(note), "--log", str(forged)]).exit_code == 1
    assert CliRunner().invoke(cli, ["audit-root", "--since", str(note), "--log", str(forged)]).exit_code == 1
    assert CliRunner().invoke(cli, ["prove", SAGA, "--checkpoint", str(note), "--log", str(forged)]).exit_code == 1


def test_a_consistency_proof_holds(good, tmp_path):
    """AGREE-4: audit-root --since gives the hashes by which RFC 9162 tells that a tree begins with an older one."""
    from agent_saga.audit.tree import extends

    key, note, path = tmp_path / "key", tmp_path / "note", tmp_path / "log.db"
    shutil.copy(good, path)
    CliRunner().invoke(cli, ["keys", "new", str(key)])
    note.write_text(CliRunner().invoke(cli, ["checkpoint", "--key", str(key), "--log", str(path)]).stdout)
    log = SqliteLog(path, create=False)
    for number in range(500, 520):
        committed(log, number)
    sealed = sum(row.leaf is not None for row in all_rows(log))
    log.close()
    told = json.loads(
        CliRunner().invoke(cli, ["audit-root", "--since", str(note), "--log", str(path), "--json"]).stdout
    )
    old = told["consistency"]
    steps = [bytes.fromhex(digest) for digest in old["path"]]
    roots = bytes.fromhex(old["root"]), bytes.fromhex(told["root"])
    assert told["size"] == sealed == old["size"] + 20
    assert extends(roots[0], old["size"], roots[1], told["size"], steps)
    assert not extends(roots[0], old["size"], roots[1], told["size"], [GENESIS, *steps[1:]])
