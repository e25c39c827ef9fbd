"""Retention: records leave a log, and what they proved stays. Rule ids: PR-n."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent_saga.audit.anchor import check_anchor
from agent_saga.audit.certify import certify
from agent_saga.audit.leaves import checkpoint_of, leaves_of
from agent_saga.audit.proof import check_proof, prove
from agent_saga.audit.prune import prune
from agent_saga.audit.redact import redact
from agent_saga.cli.lines import log_lines
from agent_saga.errors import AlreadyCommitted, CorruptLog, RecordsPruned
from agent_saga.kit import AgentKit
from agent_saga.store.memory import MemoryLog
from agent_saga.store.port import Query
from agent_saga.store.reader import checked_records, load
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import all_rows, verify
from pytest_agent_saga.conformance.sagas import committed, everything, partial, settle

SCRIPT = Path(__file__).parents[4] / "scripts" / "verify_independently.py"
NOW = 10**19
"""After everything that the samples hold."""


@pytest.fixture(params=["memory", "sqlite"])
def log(request, tmp_path):
    store = MemoryLog() if request.param == "memory" else SqliteLog(tmp_path / "log.db", create=True)
    yield store
    store.close()


def test_of_everything_the_tree_and_the_rest_stay(log):
    """PR-1: after both kinds of pruning the log verifies, its old leaves and facts are there, checkpoints hold."""
    everything(log)
    leaves, anchor = leaves_of(log), checkpoint_of(log)
    rows = {row.saga_id: (row.head, row.count, row.leaf, row.row.key) for row in all_rows(log)}
    spent = log.facts("spend")
    for payloads_only in (True, False):
        done = prune(log, before_ns=NOW, by="ann", payloads_only=payloads_only)
        assert done.sagas > 10
        report = verify(log)
        assert report.pruned == (0 if payloads_only else done.sagas)
        assert leaves_of(log)[: len(leaves)] == leaves
        assert all(check_anchor(log, anchor, leaves_of(log)))
    assert {
        row.saga_id: (row.head, row.count, row.leaf, row.row.key) for row in all_rows(log) if row.saga_id in rows
    } == rows
    assert log.facts("spend") == spent
    assert any("pruned" in line for line in certify(log).not_checked)
    assert len(list(log_lines(log))) == len(log.tail(limit=10_000))
    again = prune(log, before_ns=NOW, by="ann")
    assert (again.sagas, again.records) == (0, 0)


def test_what_must_stay_stays(log):
    """PR-2: sagas with work left, open ones and those about which something is in force are not pruned."""
    everything(log)
    stay = {row.saga_id for row in all_rows(log) if not row.row.sealed}
    stay |= {fact.saga_id for kind in ("halt", "drain", "quarantine", "key", "approval") for fact in log.facts(kind)}
    recovery = log.rows(Query(unsealed=True))
    done = prune(log, before_ns=NOW, by="ann")
    assert done.kept >= len([one for one in stay if log.row(one).row.amends is None])
    assert all(log.records(one) for one in stay)
    assert log.rows(Query(unsealed=True)) == recovery


def test_a_young_saga_stays(log):
    """PR-3: the newest fact about a saga counts, that of an amendment included."""
    old, new = committed(log, 1), committed(log, 2)
    limit = load(log, old.id).view.changed_at + 1
    assert prune(log, before_ns=limit, by="ann", dry_run=True).sagas == 1
    assert log.records(old.id)
    assert prune(log, before_ns=limit, by="ann").sagas == 1
    assert (log.records(old.id), bool(log.records(new.id))) == ([], True)
    with pytest.raises(RecordsPruned, match="pruned"):
        load(log, old.id)
    with pytest.raises(RecordsPruned):
        list(checked_records(log, old.id, count=3))


def test_amendments_go_with_their_saga(log):
    """PR-4: a saga and what amends it are pruned together, or not at all."""
    sealed = partial(log, 1)
    late = settle(log, 2, sealed.id)
    redact(log, sealed.id, "kwargs.customer", by="ann")
    kept = partial(log, 3)
    assert prune(log, before_ns=NOW, by="ann").sagas == 3
    assert (log.records(sealed.id), log.records(late.id), bool(log.records(kept.id))) == ([], [], True)
    verify(log)


def test_payloads_only_keeps_the_bodies(log):
    """PR-5: without payloads the fold stays, values are markers, and a proof withholds them."""
    saga = committed(log, 1)
    before = load(log, saga.id).view
    prune(log, before_ns=NOW, by="ann", payloads_only=True)
    view = load(log, saga.id).view
    assert [step.state for step in view.steps.values()] == [step.state for step in before.steps.values()]
    assert (view.steps[1].result, view.steps[1].exact) == ('{"$redacted":"pruned"}', False)
    assert all(record.payload is None for record in log.records(saga.id))
    proven = check_proof(prove(log, saga.id))
    assert proven.withheld > 2
    assert redact(log, saga.id, "kwargs", by="ann").values == ()
    verify(log)


def test_positions_are_not_used_twice(log):
    """PR-6: when the last saga is pruned, later records get later positions."""
    saga = committed(log, 1)
    last = log.tail(limit=100)[-1].pos
    prune(log, before_ns=NOW, by="ann")
    committed(log, 2)
    assert min(record.pos for record in log.tail(limit=100)) == last + 1
    assert not log.records(saga.id)
    verify(log)


def test_a_key_outlives_its_records(tmp_path):
    """PR-7: the key of a committed saga stays committed; that of one that rolled back gets its next incarnation."""
    path = tmp_path / "log.db"
    kit = AgentKit(log=str(path))
    kit.declare_read_only("look")
    with kit.transaction("done", key="order-1"):
        pass
    with pytest.raises(ValueError, match="no"), kit.transaction("failed", key="order-2"):
        raise ValueError("no")
    kit.close()
    store = SqliteLog(path, create=False)
    assert prune(store, before_ns=NOW, by="ann").sagas == 2
    store.close()
    kit = AgentKit(log=str(path))
    with pytest.raises(AlreadyCommitted, match="pruned"), kit.transaction("done", key="order-1"):
        pass
    with kit.transaction("failed", key="order-2") as saga:
        pass
    kit.close()
    store = SqliteLog(path, create=False)
    assert load(store, saga.id).view.incarnation == 2
    verify(store)
    store.close()


def test_nothing_is_left_in_the_files(tmp_path):
    """PR-8: no value of what was pruned is in the log's files."""
    store = SqliteLog(tmp_path / "log.db", create=True)
    for number in range(1, 60):
        committed(store, number)
    assert prune(store, before_ns=NOW, by="ann").sagas == 59
    left = b"".join(file.read_bytes() for file in sorted(tmp_path.glob("log.db*")) if file.is_file())
    assert b"cus_1" not in left
    store.close()
    assert subprocess.run([sys.executable, SCRIPT, tmp_path / "log.db"], check=False).returncode == 0


EDITS = {
    "row": "UPDATE sagas SET name = 'other' WHERE saga = ?1",
    "head": "UPDATE sagas SET head = zeroblob(32) WHERE saga = ?1",
    "count": "UPDATE sagas SET count = count + 1 WHERE saga = ?1",
    "fact": "UPDATE facts SET value = '00' WHERE kind = 'removed' AND name = ?1",
    "no fact": "DELETE FROM facts WHERE kind = 'removed' AND name = ?1",
    "spend": "INSERT INTO facts VALUES('spend', 'purse', ?1, 1, '5', 7)",
    "no row": "DELETE FROM sagas WHERE saga = ?1",
    "other saga": "DELETE FROM records WHERE saga <> ?1 AND pos < 20",
    "made up": "INSERT INTO facts SELECT 'removed', saga, saga, 1, '', 1 FROM sagas WHERE saga <> ?1 LIMIT 1",
}


@pytest.mark.parametrize("edit", sorted(EDITS))
def test_what_stays_cannot_be_changed(tmp_path, edit):
    """PR-9: rows, facts and absences that no record explains are damage to both verifiers."""
    path = tmp_path / "log.db"
    store = SqliteLog(path, create=True)
    saga = committed(store, 1)
    prune(store, before_ns=NOW, by="ann")
    for number in range(2, 6):
        committed(store, number)
    store.close()
    with sqlite3.connect(path) as db:
        triggers = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        for name in ("records_stay", "records_keep"):
            db.execute(f"DROP TRIGGER {name}")
        db.execute(EDITS[edit], (saga.id,))
        for trigger in triggers:
            db.execute(trigger)
    db.close()
    damaged = SqliteLog(path, create=False)
    with pytest.raises(CorruptLog):
        verify(damaged)
    damaged.close()
    assert subprocess.run([sys.executable, SCRIPT, path], check=False, capture_output=True).returncode == 1


def test_a_checkpoint_whose_last_record_was_pruned(log):
    """PR-10: the anchor's leaves hold, and that its last record cannot be looked at is said."""
    committed(log, 1)
    anchor = checkpoint_of(log)
    prune(log, before_ns=NOW, by="ann")
    verify(log)
    shown = check_anchor(log, anchor, leaves_of(log))
    assert shown[-1].startswith("not checked")
