"""Rows and records planted by whoever can write the file. Rule ids: F-n."""

import contextlib
import os

import apsw
import pytest
from gate_world import Asks, Purse, make_kit, world

from agent_saga import GateRefused
from agent_saga.errors import CorruptLog, UsageError
from agent_saga.machine.gate import facts_of
from agent_saga.model import records as r
from agent_saga.model.ids import make_saga_id
from agent_saga.runtime import operators, signatures
from agent_saga.store.open import open_log
from agent_saga.store.reader import load
from agent_saga.store.verify import verify


def run(log, sql, *bindings):
    """Run a statement through the same SQLite library: another one in this process would drop its locks."""
    with contextlib.closing(apsw.Connection(log)) as db:
        return db.execute(sql, bindings).fetchall()


def damage(log):
    store = open_log(log, create=False)
    try:
        verify(store)
    except CorruptLog as error:
        return str(error)
    finally:
        store.close()
    return None


@pytest.fixture
def kit(log):
    kit = make_kit(log, Purse(10))
    yield kit
    kit.close()


def asked(kit):
    with pytest.raises(GateRefused, match="needs an approval"):
        kit.mail("a")
    (known,) = operators.pending(kit.writer())
    return known


def test_an_approval_planted_as_a_fact_is_not_enough(kit, log):
    """F-1: a row that says `approved` approves nothing, and verify names it."""
    with kit.transaction("t"):
        known = asked(kit)
        run(log, "UPDATE facts SET value = 'approved' WHERE name = ?", known.id)
        with pytest.raises(GateRefused, match="needs an approval"):
            kit.mail("a")
        assert "facts differ from its records" in damage(log)
        run(log, "UPDATE facts SET value = 'pending' WHERE name = ?", known.id)
    assert (world(), damage(log)) == ([], None)


def test_a_used_approval_planted_again_is_not_used_again(kit, log):
    """F-2: a replayed row does not bring a used word back."""
    with kit.transaction("t"):
        known = asked(kit)
        operators.decide_approval(kit.writer(), known.id, "approved", by="ann")
        kit.mail("a")
        run(log, "INSERT INTO facts VALUES('approval', ?, ?, 0, 'approved', ?)", known.id, known.request.saga, 2**62)
        with pytest.raises(GateRefused, match="needs an approval"):
            kit.mail("a")
        assert damage(log) is not None
        run(log, "DELETE FROM facts WHERE name = ?", known.id)
    assert world() == ["mail a null"]


def test_a_removed_row_takes_the_word_away(kit, log):
    """F-3: without its row a word is no good: the log refuses the intent."""
    with kit.transaction("t"):
        known = asked(kit)
        operators.decide_approval(kit.writer(), known.id, "approved", by="ann")
        run(log, "DELETE FROM facts WHERE name = ?", known.id)
        with pytest.raises(GateRefused, match="was used, withdrawn or rejected"):
            kit.mail("a")
    assert world() == []


PLANTED = [
    ("spend", "purse", 1, "-5", 0),
    ("spend", "purse", 1, "5", 0),
    ("total", "purse", 0, "0", 1),
    ("resource", "account:ann", 0, "", 0),
    ("approval", "x:a1", 0, "approved", 2**62),
    ("halt", "*", 0, "fire", 0),
    ("quarantine", "saga:x", 0, "fire", 0),
    ("key", "ann", 0, "00" * 32, 0),
    ("odd", "x", 0, "", 0),
]


@pytest.mark.parametrize("of", ["a saga of the log", "no saga"])
@pytest.mark.parametrize("row", PLANTED, ids=lambda row: f"{row[0]} {row[3]}")
def test_every_planted_row_is_noticed(kit, log, row, of):
    """F-4: verify names a fact that no record gives, of a saga that is there or is not."""
    with kit.transaction("t") as saga:
        kit.account("ann", 1)
    assert damage(log) is None
    kind, name, no, value, at = row
    saga_id = saga.id if of == "a saga of the log" else make_saga_id(1, bytes(10))
    run(log, "INSERT OR REPLACE INTO facts VALUES(?, ?, ?, ?, ?, ?)", kind, name, saga_id, no, value, at)
    assert damage(log) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM facts WHERE kind = ?",
        "UPDATE facts SET value = '0.5' WHERE kind = ?",
        "UPDATE facts SET at = 1 WHERE kind = ?",
        "UPDATE facts SET name = name || 'x' WHERE kind = ?",
        "UPDATE facts SET no = no + 1 WHERE kind = ?",
        "UPDATE facts SET saga = 'x' WHERE kind = ?",
        "UPDATE facts SET kind = 'other' WHERE kind = ?",
        "UPDATE facts SET value = x'00' WHERE kind = ?",
    ],
)
@pytest.mark.parametrize("kind", ["spend", "resource", "approval", "halt", "key"])
def test_every_change_of_a_row_is_noticed(kit, log, kind, sql):
    """F-5: verify names a fact that was changed or removed."""
    operators.act(kit.writer(), "key_added", "ann", by="ann", data="ab" * 32)
    with kit.transaction("t"):
        kit.account("ann", 1)
        asked(kit)
        operators.act(kit.writer(), "halt", "tool:other", by="ann", reason="fire")
        assert damage(log) is None
        before = run(log, "SELECT * FROM facts")
        run(log, sql, kind)
        assert damage(log) is not None
        run(log, "DELETE FROM facts")
        for row in before:
            run(log, "INSERT INTO facts VALUES(?, ?, ?, ?, ?, ?)", *row)
    assert damage(log) is None


# -- records ------------------------------------------------------------------------------------------------------


def plant_word(log, known, **fields):
    """Write what `agent-saga approvals approve` would write, by hand: whoever can write the file can do that."""
    store = open_log(log, create=False)
    loaded = load(store, known.request.saga)
    store.close()
    saga_id = make_saga_id(2**60, os.urandom(10))
    ((last,),) = run(log, "SELECT max(pos) FROM records")
    values = {"v": 1, "saga": saga_id, "at": 2**60}
    word = {"approval": known.id, "decision": "approved", "by": "eve", **fields}
    records = [
        r.SagaOpened(n=1, pos=last + 1, name="approval", owner="x", epoch=1, amends=loaded.view.id, by="eve", **values),
        r.ApprovalDecided(n=2, pos=last + 2, **word, **values),
        r.SagaEnded(n=3, pos=last + 3, outcome="committed", **values),
    ]
    head = r.GENESIS
    for record in records:
        body = r.encode_body(record)
        head = r.chain_hash(head, body)
        run(log, "INSERT INTO records VALUES(?, ?, ?, ?, NULL, ?)", record.pos, saga_id, record.n, body, head)
    ((leaf,),) = run(log, "SELECT coalesce(max(leaf), 0) + 1 FROM sagas")
    row = (saga_id, "approval", None, 1, "committed", None, 1, "roll_back", 2**60, None, 0, 0, 1, loaded.view.id, head)
    run(log, f"INSERT INTO sagas VALUES({', '.join('?' * 18)})", *row, 3, 0, leaf)
    run(log, "UPDATE sagas SET amendments = amendments + 3 WHERE saga = ?", loaded.view.id)
    run(log, "UPDATE facts SET value = 'approved' WHERE name = ?", known.id)


def test_planted_records_of_an_unsigned_word_pass(kit, log):
    """F-6: an unsigned word trusts the file's permissions; `guarantees()` says so (NOT-SIGNED), and this shows it."""
    with kit.transaction("t"):
        known = asked(kit)
        plant_word(log, known)
        kit.mail("a")
    assert world() == ["mail a null"]


def test_half_planted_records_stop_the_reader(kit, log):
    """F-7: records that do not fit into chain, row or positions are damage, and no call runs on them."""
    with pytest.raises(CorruptLog), kit.transaction("t"):
        known = asked(kit)
        plant_word(log, known)
        run(log, "DROP TRIGGER records_keep")
        run(log, "UPDATE records SET hash = zeroblob(32) WHERE pos = (SELECT max(pos) FROM records)")
        kit.mail("a")
    assert world() == []


# -- signatures ---------------------------------------------------------------------------------------------------


@pytest.fixture
def signing(log):
    kit = make_kit(log, Asks(signed=True))
    yield kit
    kit.close()


def signed_request(kit):
    with pytest.raises(GateRefused):
        kit.charge("ann", 1)
    return operators.pending(kit.writer())[0]


def register(kit, name, public):
    operators.act(kit.writer(), "key_added", name, by="operator", data=public)


def test_a_signed_word_of_a_registered_key(signing, log):
    """F-8: it is good for the call that it signs."""
    private, public = signatures.make_key()
    register(signing, "ann", public)
    with signing.transaction("t"):
        known = signed_request(signing)
        with pytest.raises(UsageError, match="must be signed"):
            operators.decide_approval(signing.writer(), known.id, "approved", by="ann")
        operators.decide_approval(signing.writer(), known.id, "approved", by="ann", private_key=private)
        signing.charge("ann", 1)
    assert (world(), damage(log)) == (["charge ann 1"], None)


@pytest.mark.parametrize("flaw", ["unregistered", "removed", "somebody else's", "of another call", "none", "garbage"])
def test_other_signatures_are_none(signing, log, flaw):
    """F-9: planted or given, a word without a good signature of a registered key does not count."""
    private, public = signatures.make_key()
    if flaw != "unregistered":
        register(signing, "bob" if flaw == "somebody else's" else "eve", public)
    with signing.transaction("t"):
        known = signed_request(signing)
        digest = "00" * 32 if flaw == "of another call" else known.request.digest
        word = signatures.sign(private, signatures.message(known.id, digest, "approved", "eve"))
        plant_word(log, known, signature={"none": None, "garbage": "zz"}.get(flaw, word))
        if flaw == "removed":
            operators.lift(signing.writer(), "eve", by="operator", kinds=("key",))
        with pytest.raises(GateRefused, match="0 of 1 signed approvals are good"):
            signing.charge("ann", 1)
    assert world() == []


def test_a_key_planted_as_a_fact_registers_nothing(signing, log):
    """F-10: keys count from the records of whoever registered them."""
    private, public = signatures.make_key()
    operators.act(signing.writer(), "key_added", "bob", by="operator", data="ab" * 32)
    with signing.transaction("t"):
        known = signed_request(signing)
        word = signatures.sign(private, signatures.message(known.id, known.request.digest, "approved", "eve"))
        plant_word(log, known, signature=word)
        for saga_id in (known.request.saga, run(log, "SELECT saga FROM facts WHERE kind = 'key'")[0][0]):
            run(log, "INSERT INTO facts VALUES('key', 'eve', ?, 0, ?, 0)", saga_id, public)
        with pytest.raises(GateRefused, match="no key is registered"):
            signing.charge("ann", 1)
        run(log, "DELETE FROM facts WHERE name = 'eve'")
    assert (world(), damage(log)) == ([], None)


@pytest.mark.parametrize("key", ["", "zz" * 32, "ab" * 31, "ab" * 33, "0x" + "ab" * 31])
def test_what_is_no_key_is_not_registered(kit, key):
    """F-11: a public key is 32 bytes in hex."""
    with pytest.raises(UsageError, match="public key"):
        register(kit, "ann", key)


def test_facts_are_the_folds(kit, log):
    """F-12: what the table holds of each saga is what its records give."""
    with kit.transaction("t") as saga:
        kit.account("ann", 1)
        asked(kit)
        store = kit.writer().store
        assert set(store.facts_of(saga.id)) == facts_of(load(store, saga.id).view, sealed=False)
        assert {fact.kind for fact in store.facts_of(saga.id)} == {"spend", "resource", "approval"}


def test_pinned_keys_resist_whoever_can_write_the_file(log):
    """F-13: with keys given in code, a key that was registered in the log signs nothing that counts."""
    private, public = signatures.make_key()
    evil, planted = signatures.make_key()
    kit = make_kit(log, Asks(signed=True), approval_keys={"eve": public})
    register(kit, "eve", planted)
    with kit.transaction("t"):
        known = signed_request(kit)
        message = signatures.message(known.id, known.request.digest, "approved", "eve")
        plant_word(log, known, signature=signatures.sign(evil, message))
        with pytest.raises(GateRefused, match="the signature is not good"):
            kit.charge("ann", 1)
        operators.decide_approval(kit.writer(), known.id, "rejected", by="ann")
        other = operators.open_requests(kit.writer().store)
        assert other == []
    with kit.transaction("u"):
        known = signed_request(kit)
        operators.decide_approval(kit.writer(), known.id, "approved", by="eve", private_key=private)
        kit.charge("ann", 1)
    assert (world(), damage(log)) == (["charge ann 1"], None)
    kit.close()
    with pytest.raises(UsageError, match="public key"):
        make_kit(log, approval_keys={"eve": "zz"})
