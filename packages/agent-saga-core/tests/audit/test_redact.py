"""Redaction: values leave a log for good, and nothing else changes. Rule ids: RD-n."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent_saga.audit.leaves import leaves_of
from agent_saga.audit.proof import check_proof, prove
from agent_saga.audit.redact import redact, redact_path
from agent_saga.errors import CorruptLog, UsageError
from agent_saga.model.records import decode_body, open_payload
from agent_saga.store.memory import MemoryLog
from agent_saga.store.reader import checked_records, load
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import verify
from pytest_agent_saga.conformance.sagas import Scribe, partial, settle

SCRIPT = Path(__file__).parents[4] / "scripts" / "verify_independently.py"
CARD = "4000-0012-3456-7899"
VALUES = {
    "kwargs.customer": '"cus_1"',
    "kwargs.items": f'[{{"cvv":"987-cvv","card":"{CARD}"}},{{"$tuple":[{{"cvv":"654-cvv"}},1]}}]',
    "kwargs.point": '{"$object":["shop.Point",{"x":12345,"y":2}]}',
    "kwargs.odd": '{"$dict":[[{"$int":"0x8000000000000000"},"seven"],["name","ann-secret"]]}',
}


def paid(store, number=1, *, values=None):
    scribe = Scribe(store, number).open(key=f"order-{number}")
    options = {"step": 1, "tool": "charge", "version": 1, "effect": "compensable", "key": f"{scribe.id}:1"}
    scribe.write(scribe.fact("intent", values or VALUES, **options), durable=True)
    done = {"result": f'{{"id":"ch_1","card":"{CARD}"}}', "compensation.charge_id": '"ch_1"'}
    scribe.write(scribe.fact("outcome", done, step=1, state="succeeded", bound=True), row=False)
    return scribe.end()


@pytest.fixture(params=["memory", "sqlite"])
def log(request, tmp_path):
    store = MemoryLog() if request.param == "memory" else SqliteLog(tmp_path / "log.db", create=True)
    yield store
    store.close()


def values_of(store, saga_id):
    return {name: text for _, _, values in checked_records(store, saga_id) for name, text in values.items()}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("kwargs.customer", {"kwargs.customer": '{"$redacted":"builtins.str"}'}),
        ("kwargs.point.x", {"kwargs.point": '{"$object":["shop.Point",{"x":{"$redacted":"builtins.int"},"y":2}]}'}),
        ("kwargs.items.0", {"kwargs.items": '[{"$redacted":"value"},{"$tuple":[{"cvv":"654-cvv"},1]}]'}),
        (
            "kwargs.items.*.*.cvv",
            {"kwargs.items": VALUES["kwargs.items"].replace('"654-cvv"', '{"$redacted":"builtins.str"}')},
        ),
        (
            "kwargs.odd.name",
            {"kwargs.odd": VALUES["kwargs.odd"].replace('"ann-secret"', '{"$redacted":"builtins.str"}')},
        ),
        ("kwargs.nothing", {}),
        ("kwargs.customer.deeper", {}),
    ],
)
def test_a_path_names_a_place(path, changed):
    """RD-1: a path leads through lists, tuples, objects and dicts; `*` is any one part; no match, no change."""
    store = MemoryLog()
    saga = paid(store)
    found = redact_path(checked_records(store, saga.id), path)
    assert {name: text for texts in found.values() for name, text in texts.items()} == changed


def test_kwargs_alone_is_every_argument(log):
    """RD-2: a path that is shorter than the names covers all of them."""
    saga = paid(log)
    assert len(redact(log, saga.id, "kwargs", by="ann").values) == 4
    assert set(values_of(log, saga.id)) == {*VALUES, "result", "compensation.charge_id"}


@pytest.mark.parametrize("path", ["", ".", "kwargs..a", "kwargs."])
def test_a_path_without_parts_is_refused(log, path):
    """RD-3: an empty part means nothing, and nothing is changed."""
    saga = paid(log)
    with pytest.raises(UsageError, match="is no path"):
        redact(log, saga.id, path, by="ann")


def test_everything_else_stays(log):
    """RD-4: chains, leaves, proofs and the report stay; the record says who and why; the log verifies."""
    saga = paid(log)
    before, leaf = log.row(saga.id), leaves_of(log)
    done = redact(log, saga.id, "kwargs.items.*.cvv", by="ann", reason="card data")
    assert [name for _, _, name in done.values] == ["kwargs.items"]
    assert done.copies == ()
    after = log.row(saga.id)
    assert (after.head, after.count, after.leaf, after.row) == (before.head, before.count, before.leaf, before.row)
    assert leaves_of(log)[:1] == leaf
    (other,) = log.amendments(saga.id)
    said = load(log, other).view
    assert (said.by, said.name) == ("ann", "redaction")
    assert verify(log).sagas == 2
    assert "987-cvv" not in values_of(log, saga.id)["kwargs.items"]
    proven = check_proof(prove(log, saga.id))
    assert proven.view.steps[1].kwargs["items"] == values_of(log, saga.id)["kwargs.items"]


def test_a_second_redaction_follows_the_first(log):
    """RD-5: what is redacted already is left alone; another path of the same value replaces it once more."""
    saga = paid(log)
    redact(log, saga.id, "kwargs.items.0.cvv", by="ann")
    assert redact(log, saga.id, "kwargs.items.0.cvv", by="ann").values == ()
    redact(log, saga.id, "kwargs.items.0.card", by="bob")
    assert CARD not in values_of(log, saga.id)["kwargs.items"]
    assert redact(log, saga.id, "*.*", by="cyd").values
    verify(log)


def test_copies_are_named(log):
    """RD-6: where a removed text still stands is reported."""
    saga = paid(log)
    done = redact(log, saga.id, "kwargs.items.0.card", by="ann")
    assert [(n, name) for _, n, name in done.copies] == [(3, "result")]
    assert redact(log, saga.id, "result.card", by="ann").copies == ()


def test_the_values_of_amendments_are_redacted_too(log):
    """RD-7: a path is looked for in what amends the saga as well."""
    saga = partial(log, 1)
    settled = settle(log, 2, saga.id)
    done = redact(log, saga.id, "evidence", by="ann")
    assert [(which, name) for which, _, name in done.values] == [(settled.id, "evidence")]
    assert "looked" not in values_of(log, settled.id)["evidence"]
    verify(log)


def test_only_sealed_sagas(log):
    """RD-8: what may still have to be compensated is not redacted."""
    saga = partial(log, 1)
    with pytest.raises(UsageError, match="not sealed"):
        redact(log, saga.id, "kwargs", by="ann")
    with pytest.raises(UsageError, match="no saga"):
        redact(log, "0" * 26, "kwargs", by="ann")


def test_a_redacted_result_is_not_replayed(log):
    """RD-9: a step whose result is not what was returned cannot be replayed."""
    saga = paid(log)
    redact(log, saga.id, "result.card", by="ann")
    assert load(log, saga.id).view.steps[1].exact is False


def test_nothing_is_left_in_the_files(tmp_path):
    """RD-10: neither the text nor the salt of a removed value is in the file, its -wal or a free page."""
    store = SqliteLog(tmp_path / "log.db", create=True)
    cards = {number: f'"secret-{number:05}-{"x" * 90}"' for number in range(1, 200)}
    sagas = [paid(store, number, values={"kwargs.card": card}) for number, card in cards.items()]
    salts = []
    for saga in sagas:
        intent = next(stored for stored in store.records(saga.id) if b"secret-" in (stored.payload or b""))
        salts.append(intent.payload.split(b'["')[1][:32])
    store.sync()
    assert b"secret-00007" in everything_in(tmp_path)
    for saga in sagas[:20]:
        redact(store, saga.id, "kwargs.card", by="ann")
    left = everything_in(tmp_path)
    for number, salt in enumerate(salts, start=1):
        assert (b"secret-%05d" % number in left, salt in left) == (number > 20, number > 20), number
    verify(store)
    store.close()
    assert subprocess.run([sys.executable, SCRIPT, tmp_path / "log.db"], check=False).returncode == 0


def everything_in(folder):
    return b"".join(file.read_bytes() for file in sorted(folder.glob("log.db*")) if file.is_file())


def doctor(path, *statements):
    """Change a log behind its back, as somebody could who may write its file."""
    with sqlite3.connect(path) as db:
        triggers = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        for name in ("records_stay", "records_keep"):
            db.execute(f"DROP TRIGGER {name}")
        for sql, bindings in statements:
            db.execute(sql, bindings)
        for trigger in triggers:
            db.execute(trigger)
    db.close()


def test_a_value_that_is_gone_without_a_record_is_damage(tmp_path):
    """RD-11: a payload that lacks values, or holds again what was redacted, is damage to both verifiers."""
    path = tmp_path / "log.db"
    store = SqliteLog(path, create=True)
    saga, other = paid(store), paid(store, 2)
    (whole,) = [s.payload for s in store.records(saga.id) if s.n == 2]
    redact(store, saga.id, "kwargs.customer", by="ann")
    (lacking,) = [s.payload for s in store.records(saga.id) if s.n == 2]
    store.close()
    good = path.read_bytes()
    update = "UPDATE records SET payload = ? WHERE saga = ? AND n = 2"
    for payload, target in ((whole, saga), (None, saga), (lacking, other), (None, other)):
        path.write_bytes(good)
        doctor(path, (update, (payload, target.id)))
        with pytest.raises(CorruptLog):
            damaged = SqliteLog(path, create=False)
            try:
                verify(damaged)
            finally:
                damaged.close()
        assert subprocess.run([sys.executable, SCRIPT, path], check=False, stdout=subprocess.DEVNULL).returncode == 1


def test_a_commitment_that_was_replaced_is_checked():
    """RD-12: the new commitment binds, and a redaction cannot name a value that the record does not have."""
    store = MemoryLog()
    saga = paid(store)
    redact(store, saga.id, "kwargs.customer", by="ann")
    stored = store.records(saga.id)[1]
    record = decode_body(stored.body)
    with pytest.raises(ValueError, match="differs"):
        open_payload(record, stored.payload)
    with pytest.raises(ValueError, match="differs"):
        open_payload(record, stored.payload, {"kwargs.customer": "00" * 32})
