"""Encryption at rest: what a log shows without the key, with another one, and when things were moved. Ids: EN-n."""

import base64
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sealed_world import RECEIPT, SECRET, kit_for

from agent_saga import AgentKit, Ask, SagaSuspended
from agent_saga.audit.merge import Source
from agent_saga.audit.merge_write import merge_into
from agent_saga.audit.proof import check_proof, prove
from agent_saga.audit.prune import shred
from agent_saga.audit.redact import redact
from agent_saga.errors import CorruptLog, KeyUnavailable, UsageError
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.writer import Writer
from agent_saga.spi import read_records
from agent_saga.store.keyring import KeyRing, add_key
from agent_saga.store.open import open_log
from agent_saga.store.reader import checked_records, load
from agent_saga.store.verify import verify

SCRIPT = Path(__file__).parents[4] / "scripts" / "verify_independently.py"
PROGRAM = Path(__file__).with_name("sealed_world.py")
HIDDEN = (SECRET.encode(), RECEIPT.encode(), base64.b64encode(SECRET.encode()))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("AGENT_SAGA_KEY_RING", raising=False)
    add_key(tmp_path / "ring", "k1")
    (tmp_path / "log").mkdir()
    return tmp_path


@pytest.fixture
def run(place):
    """Run sagas; return the id of each by its name."""

    def sagas(*names, ring="ring"):
        kit, charge = kit_for(log_of(place), place / ring, world=place / "world")
        ids = {}
        try:
            for number, name in enumerate(names, start=1):
                with kit.transaction(name, key=name) as saga:
                    ids[name] = saga.id
                    charge(SECRET, number)
                    charge(SECRET, number)
        finally:
            kit.close()
        return ids

    return sagas


def log_of(place):
    return str(place / "log" / "log.db")


def opened(place, ring="ring"):
    return open_log(log_of(place), create=False, ring=None if ring is None else KeyRing.from_file(place / ring))


def leaked(place):
    # Read by another process: closing the file here would drop the locks of a log that is open.
    files = [path for path in (place / "log").rglob("*") if path.is_file()]
    found = [subprocess.run(["/bin/cat", path], capture_output=True, check=True).stdout for path in files]
    return [text for text in HIDDEN if any(text in data for data in found)]


def values_of(store, saga_id):
    return [text for _, _, values in checked_records(store, saga_id) for text in values.values()]


def doctor(place, statement, *bindings):
    """Change the file past the guards, as somebody who can write it would."""
    connection = sqlite3.connect(log_of(place), isolation_level=None)
    for trigger in ("records_keep", "records_stay"):
        ((sql,),) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (trigger,))
        connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement, bindings) if trigger == "records_keep" else None
        connection.execute(sql)
    connection.close()


def sealed(place):
    connection = sqlite3.connect(log_of(place))
    found = connection.execute("SELECT saga, n, payload FROM records WHERE payload IS NOT NULL ORDER BY pos").fetchall()
    connection.close()
    return found


def command(place, *words, code=0):
    line = [sys.executable, "-m", "agent_saga", *map(str, words), "--log", log_of(place)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr


def independently(place):
    return subprocess.run([sys.executable, SCRIPT, log_of(place)], capture_output=True, text=True, check=False)


def test_nothing_of_a_payload_is_in_the_files_while_sagas_run_and_afterwards(place):
    """EN-1: database, -wal, mark and owners, in each state of a saga, causes and reasons of errors included."""
    kit, charge = kit_for(log_of(place), place / "ring", world=place / "world")
    with pytest.raises(RuntimeError, match=SECRET), kit.transaction("bad"):
        charge(SECRET, 1)
        kit.writer().sync()
        assert leaked(place) == []
        raise RuntimeError(f"no: {SECRET}")
    (place / "refuse").write_text(SECRET)
    with pytest.raises(Exception, match="rolled back only in part"), kit.transaction("worse"):
        charge(SECRET, 2)
        raise RuntimeError(f"no: {SECRET}")
    assert leaked(place) == []
    kit.close()
    assert leaked(place) == []


def test_the_text_of_an_error_is_there_with_the_key(place):
    """EN-1: it is moved into the payload, not lost."""
    kit, charge = kit_for(log_of(place), place / "ring", world=place / "world")
    with pytest.raises(RuntimeError), kit.transaction("bad") as saga:
        charge(SECRET, 1)
        raise RuntimeError(f"no: {SECRET}")
    kit.close()
    store = opened(place)
    assert json.dumps(f"RuntimeError: no: {SECRET}") in values_of(store, saga.id)
    assert load(store, saga.id).view.cause == "RuntimeError (its text is encrypted)"
    store.close()


def test_a_log_is_verified_without_the_key_and_says_what_was_not_checked(place, run):
    """EN-2: chains, leaves and rows need no key; the independent verifier accepts the log."""
    ids = run("one", "two")
    store = opened(place, ring=None)
    report = verify(store)
    assert any("2 sagas" in line and "'k1'" in line for line in report.unchecked)
    assert load(store, ids["one"]).view.steps[1].kwargs["card"] == '{"$encrypted":"under key k1"}'
    store.close()
    store = opened(place)
    assert not any("encrypted" in line for line in verify(store).unchecked)
    assert f'"{SECRET}"' in values_of(store, ids["one"])
    store.close()
    done = independently(place)
    assert done.returncode == 0, done.stdout
    assert "not checked: the encrypted values of 2 sagas" in done.stdout


def test_another_key_of_the_same_name_opens_nothing_and_guesses_nothing(place, run):
    """EN-3."""
    ids = run("one")
    add_key(place / "other", "k1")
    store = opened(place, ring="other")
    assert any("'k1'" in line for line in verify(store).unchecked)
    assert not any(SECRET in text for text in values_of(store, ids["one"]))
    with pytest.raises(KeyUnavailable, match="key 'k1'"):
        redact(store, ids["one"], "kwargs.card", by="tester")
    with pytest.raises(KeyUnavailable, match="key 'k1'") as refused:
        prove(store, ids["one"])
    assert (refused.value.key_id, refused.value.saga_id) == ("k1", ids["one"])
    store.close()


@pytest.mark.parametrize("damage", ["tag", "bit", "nonce", "empty", "record", "saga", "back to plain"])
def test_a_ciphertext_that_was_changed_or_moved_is_refused(place, run, damage):
    """EN-4: it is bound to its saga, its record and, with the names inside, its fields."""
    run("one", "two")
    first, second, *rest = sealed(place)
    other = next(found for found in rest if found[0] != first[0])
    payload = first[2]
    put = {
        "tag": payload[:-1],
        "bit": payload[:40] + bytes([payload[40] ^ 1]) + payload[41:],
        "nonce": payload[:5] + bytes([payload[5] ^ 1]) + payload[6:],
        "empty": payload[:1],
        "record": second[2],
        "saga": other[2],
        "back to plain": b'{"kwargs.card":["00","1"]}',
    }[damage]
    doctor(place, "UPDATE records SET payload = ? WHERE saga = ? AND n = ?", put, first[0], first[1])
    store = opened(place)
    with pytest.raises(CorruptLog) as found:
        verify(store)
    assert (found.value.saga_id, found.value.n) == (first[0], first[1])
    store.close()


def test_a_wrapped_key_that_was_moved_or_removed_is_damage(place, run):
    """EN-4: no other saga's key opens a payload, and a key that is gone without a record is named."""
    ids = run("one", "two")
    doctor(
        place,
        "UPDATE meta SET value = (SELECT value FROM meta WHERE name = ?) WHERE name = ?",
        f"key {ids['two']}",
        f"key {ids['one']}",
    )
    store = opened(place)
    with pytest.raises(CorruptLog, match="changed, cut or moved"):
        verify(store)
    store.close()
    doctor(place, "DELETE FROM meta WHERE name = ?", f"key {ids['one']}")
    for ring in ("ring", None):
        store = opened(place, ring=ring)
        with pytest.raises(CorruptLog, match="no record says that it was shredded"):
            verify(store)
        store.close()
    assert independently(place).returncode == 1


def test_no_nonce_comes_twice_under_a_key(place, run):
    """EN-5: over records, sagas that go on in another process, and payloads that are sealed again by a redaction."""
    ids = run(*(f"s{number}" for number in range(20)))
    seen = [(saga, payload[1:13]) for saga, _, payload in sealed(place)]
    store = opened(place)
    redact(store, ids["s3"], "kwargs.card", by="tester")
    store.close()
    again = [(saga, payload[1:13]) for saga, _, payload in sealed(place)]
    both = set(seen) | set(again)
    assert len(set(seen)) == len(seen) == 80
    assert len(both - set(seen)) == 2  # The two intents of the saga that was redacted.
    assert len({nonce for _, nonce in both}) == len(both)


def test_a_redaction_of_an_encrypted_saga_stays_encrypted_and_verifies(place, run):
    """EN-5."""
    ids = run("one")
    store = opened(place)
    assert redact(store, ids["one"], "kwargs.card", by="tester").values
    verify(store)
    assert f'"{SECRET}"' not in [
        text for _, r, v in checked_records(store, ids["one"]) for text in v.values() if r.n == 2
    ]
    store.close()
    assert all(payload[:1] == b"\x01" for saga, _, payload in sealed(place) if saga == ids["one"])
    assert independently(place).returncode == 0


def test_keys_rotate_while_sagas_run_and_no_payload_is_written_anew(place):
    """EN-6: data keys are wrapped anew; what runs goes on, and older keys can be thrown away."""
    kit, charge = kit_for(log_of(place), place / "ring", world=place / "world")
    with kit.transaction("running") as saga:
        charge(SECRET, 1)
        store = opened(place, ring=None)
        before = [stored.payload for stored in store.tail()]
        (place / "newer").write_bytes((place / "ring").read_bytes())
        (place / "newer").chmod(0o600)
        add_key(place / "newer", "k2")
        done = command(place, "rewrap", "--key-ring", place / "newer", "--json")
        assert (done["wrapped"], done["kept"], done["locked"], done["key_id"]) == (1, 0, {}, "k2")
        assert [stored.payload for stored in store.tail()] == before
        assert store.data_key(saga.id).startswith("k2 ")
        store.close()
        charge(SECRET, 2)
    kit.close()
    only_new = KeyRing({"k2": KeyRing.from_file(place / "newer")._keys["k2"]})
    store = open_log(log_of(place), create=False, ring=only_new)
    verify(store)
    assert values_of(store, saga.id).count(f'"{SECRET}"') == 4
    store.close()


def test_a_rotation_that_is_interrupted_leaves_the_log_as_it_was(place, run):
    """EN-6: nothing is wrapped anew, and the writer goes on."""
    saga = run("one")["one"]

    class Interrupted(list):
        def __iter__(self):
            yield (saga, before, "k9 AAAA")
            raise KeyboardInterrupt

    store = open_log(log_of(place), create=True, ring=KeyRing.from_file(place / "ring"))
    before = store.data_key(saga)
    with pytest.raises(KeyboardInterrupt):
        store.rewrap(Interrupted())
    assert store.data_key(saga) == before
    store.sync()
    assert store.rewrap([(saga, before, "k9 AAAA")]) == 1
    store.close()


def test_a_killed_saga_is_recovered_with_the_key_only(place):
    """EN-7: without it the saga is named and left; nothing in doubt is guessed."""
    killed = subprocess.run([sys.executable, PROGRAM, log_of(place), place / "ring", place / "world"], check=False)
    assert killed.returncode == -9
    assert leaked(place) == []
    kit_for(log_of(place), place / "ring", world=place / "world")  # Its compensator, in this process.
    for ring, actions in ((None, ["locked"]), ("ring", ["recovered"])):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as executor:
            writer = Writer(opened(place, ring=ring), executor)
            done = drive(sweep(writer))
            writer.close()
        assert [one.action for one in done] == actions
        if ring is None:
            assert done[0].locked.key_id == "k1"
            assert not (place / "world").exists()
    world = (place / "world").read_text().splitlines()
    assert world == [f"refund ch_2 {SECRET}", f"refund ch_1 {SECRET}"]
    assert leaked(place) == []


def test_a_saga_is_neither_resumed_nor_replayed_without_its_key(place, run):
    """EN-7, and EN-9: a new saga is not stored in plain text beside encrypted ones."""
    run("one")
    kit = AgentKit(log=log_of(place))
    with pytest.raises(KeyUnavailable, match="cannot be replayed"), kit.transaction("one", key="one"):
        pass
    for key in (None, "new"):
        with pytest.raises(KeyUnavailable, match="plain text"), kit.transaction("new", key=key):
            pass
    with pytest.raises(UsageError, match="same encryption="):
        AgentKit(log=log_of(place), encryption=KeyRing.from_file(place / "ring")).writer()
    kit.close()


def test_a_shredded_saga_is_unreadable_and_the_log_sound(place, run):
    """EN-8: its key and payloads are gone from every byte; a record says who did it, and every reader shows that."""
    ids = run("one", "two")
    store = opened(place)
    proof = prove(store, ids["two"])
    held = store.data_key(ids["one"]).partition(" ")[2].encode()
    payloads = [payload for saga, _, payload in sealed(place) if saga == ids["one"]]
    store.close()
    store = opened(place, ring=None)
    assert shred(store, ids["one"], by="alice", reason="asked for") == (ids["one"],)
    with pytest.raises(UsageError, match="shredded or pruned already"):
        shred(store, ids["one"], by="alice")
    verify(store)
    store.close()
    files = b"".join(path.read_bytes() for path in (place / "log").iterdir() if path.is_file())
    assert not any(gone in files for gone in (held, *payloads))
    store = opened(place)
    verify(store)
    assert all('{"$redacted":"shredded by alice at 2' in text for text in values_of(store, ids["one"]))
    assert f'"{SECRET}"' in values_of(store, ids["two"])
    assert check_proof(proof).view.id == ids["two"]
    assert json.dumps(prove(store, ids["two"])["saga"]["path"])
    store.close()
    assert independently(place).returncode == 0


def test_only_encrypted_and_sealed_sagas_are_shredded(place):
    """EN-8."""
    kit = AgentKit(log=log_of(place))
    look = kit.wrap(lambda: None, effect="read_only", name="look")
    with kit.transaction("plain") as saga:
        look()
    kit.close()
    store = opened(place)
    with pytest.raises(UsageError, match="never encrypted"):
        shred(store, saga.id, by="alice")
    with pytest.raises(UsageError, match="no saga"):
        shred(store, "nothing", by="alice")
    store.close()


def test_logs_merge_without_the_key_and_stay_encrypted(place, run, tmp_path):
    """EN-11: wrapped data keys go with their sagas."""
    ids = run("one")
    source = opened(place, ring=None)
    merge_into([Source(source, "one")], tmp_path / "merged.db")
    source.close()
    merged = open_log(str(tmp_path / "merged.db"), create=False, ring=KeyRing.from_file(place / "ring"))
    verify(merged)
    assert f'"{SECRET}"' in values_of(merged, ids["one"])
    merged.close()


def test_readers_for_programs_show_what_is_missing(place, run):
    """EN-2."""
    run("one")
    shown = [record["values"] for record in read_records(log_of(place)) if record["values"]]
    assert "<encrypted under key k1>" in repr(shown)
    assert SECRET not in repr(shown)


def test_a_key_ring_that_others_can_read_is_refused(place):
    """EN-10: and no message shows a key."""
    (place / "ring").chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        KeyRing.from_file(place / "ring")
    (place / "bad").write_text("k1 c2VjcmV0LWtleS1tYXRlcmlhbA==\n")
    (place / "bad").chmod(0o600)
    with pytest.raises(UsageError, match="line 1") as refused:
        KeyRing.from_file(place / "bad")
    assert "c2Vj" not in str(refused.value)
    with pytest.raises(UsageError, match="already"):
        (place / "ring").chmod(0o600)
        add_key(place / "ring", "k1")
    assert "k1" in repr(KeyRing.from_file(place / "ring"))


def test_commands_work_with_the_key_and_name_it_without(place, run):
    """EN-12: none of them guesses, and none ends with a traceback."""
    ids = run("one", "two")
    for words in (["show", "one"], ["export", "--saga", "one"], ["export"]):
        assert "under key k1" in command(place, *words)
        shown = command(place, *words, "--key-ring", place / "ring")
        assert SECRET in shown
        assert "under key" not in shown
    for words in (["verify"], ["certify"]):
        assert "key 'k1'" in command(place, *words)
        assert "key 'k1'" not in command(place, *words, "--key-ring", place / "ring")
    without = command(place, "redact", "one", "kwargs.card", "--by", "me", "--json", code=1)
    assert (without["error"]["key_id"], without["error"]["code"]) == ("k1", "AS-0606")
    assert "key 'k1'" in command(place, "prove", "one", code=1)
    command(place, "prove", "one", "--withhold", "*")
    command(place, "redact", "one", "kwargs.card", "--by", "me", "--key-ring", place / "ring", code=1)
    assert "shredded by bob" in command(place, "shred", "two", "--by", "bob") + command(place, "show", "two")
    assert ids["two"] in command(place, "shred", "two", "--by", "bob", code=2)
    (place / "pyproject.toml").write_text('[tool.agent-saga]\nkey_ring = "ring"\n')
    line = [sys.executable, "-m", "agent_saga", "show", "one", "--log", log_of(place)]
    assert RECEIPT in subprocess.run(line, capture_output=True, text=True, cwd=place, check=True).stdout


def test_nobody_is_asked_about_a_call_that_cannot_be_read(place):
    """EN-12: `approvals show` and words on a request name the key, and call nothing damaged."""
    kit, charge = kit_for(log_of(place), place / "ring", world=place / "world")

    class Asks:
        def decide(self, call, saga):
            return Ask("look", suspend=True)

    with pytest.raises(SagaSuspended) as asked, kit.transaction("asks", policies=[Asks()]):
        charge(SECRET, 1)
    kit.close()
    approval = asked.value.approval
    for words in (["show", approval], ["approve", approval, "--by", "ann"]):
        told = command(place, "approvals", *words, code=1)
        assert "key 'k1'" in told
        assert "damage" not in told
    assert SECRET in command(place, "approvals", "show", approval, "--key-ring", place / "ring")
    command(place, "approvals", "approve", approval, "--by", "ann", "--key-ring", place / "ring")


def test_key_rings_are_made_by_a_command(place):
    """EN-10: readable by their owner only; the newest key is the current one."""
    line = [sys.executable, "-m", "agent_saga", "key-ring", "add", place / "made"]
    subprocess.run([*line, "--id", "a"], check=True, capture_output=True)
    subprocess.run(line, check=True, capture_output=True)
    ring = KeyRing.from_file(place / "made")
    assert (ring.ids[0], ring.current) == ("a", ring.ids[1])
    assert (place / "made").stat().st_mode & 0o777 == 0o600
    assert subprocess.run([*line, "--id", "no id"], check=False, capture_output=True).returncode == 2
