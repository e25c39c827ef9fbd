"""The commands of the gate, as programs. Rule ids: C-n."""

import json
import subprocess
import sys

import pytest
from gate_world import Asks, Stop, make_kit, world

from agent_saga import GateRefused, SagaSuspended
from agent_saga.runtime import operators

pytestmark = pytest.mark.slow
NESTED = [{"deep": {"er": ["x" * 500, "\x1b[31mred", "\u202egnp.exe"]}}, {"$odd": 1}]


@pytest.fixture
def saga(log):
    """Run `agent-saga` and check its exit code; no traceback, whatever happens."""

    def saga(*words, code=0):
        command = [sys.executable, "-m", "agent_saga", *map(str, words), "--log", log]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

    return saga


@pytest.fixture
def kit(log):
    kit = make_kit(log, Asks(quorum=2))
    yield kit
    kit.close()


def test_a_request_is_shown_in_full_and_answered(kit, saga, tmp_path):
    """C-1: every argument, nested ones too, unshortened, and nothing in it reaches the terminal raw."""
    with kit.transaction("t", key="k") as open_saga:
        with pytest.raises(GateRefused):
            kit.mail("a", parts=NESTED)
        approval = f"{open_saga.id}:a1"
        listed = saga("approvals", "list", "--json")
        assert [one["approval"] for one in listed["approvals"]] == [approval]
        assert approval in saga("approvals", "list")
        for name in (approval, "k:a1", f"{open_saga.id[:20]}:a1"):
            told = saga("approvals", "show", name)
            assert "x" * 500 in told
            assert '"\\u001b[31mred"' in told
            assert "\\u202egnp.exe" in told
            assert "\u202e" not in told
            assert "needs     2 different people" in told
        assert saga("approvals", "show", approval, "--json")["kwargs"]["parts"][0] == NESTED[0]
        assert "1 more needed" in saga("approvals", "approve", "k:a1", "--by", "ann", "--note", "fine")
        assert "distinct principals" in saga("approvals", "approve", "k:a1", "--by", "ANN", code=2)
        assert saga("approvals", "approve", "k:a1", "--by", "bob", "--json")["state"] == "approved"
        kit.mail("a", parts=NESTED)
        assert "is consumed already" in saga("approvals", "approve", "k:a1", "--by", "cyd", code=2)
        assert saga("approvals", "show", "k:a1", "--json")["step"] == 1
    assert "no requests" in saga("approvals", "list")
    assert len(world()) == 1


def test_a_request_is_rejected(kit, saga):
    """C-2: the caller is told who and why."""
    with kit.transaction("t", key="k"):
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        saga("approvals", "reject", "k:a1", "--by", "ann", "--note", "too much")
        with pytest.raises(GateRefused, match=r"rejected by ann \(too much\)"):
            kit.charge("ann", 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("approvals", "show", "nobody:a1"), "no saga"),
        (("approvals", "show", "nonsense"), "no request"),
        (("approvals", "show", "k:a9"), "no request"),
        (("approvals", "approve", "k:a1"), "Missing option '--by'"),
        (("approvals", "approve", "k:a1", "--by", " "), "must have a name"),
        (("approvals", "approve", "k:a1", "--by", "ann", "--key", "no-such-file"), "cannot be read"),
        (("halt", "x", "--by", "ann"), "is no scope of halt"),
        (("halt", "saga:nobody", "--by", "ann"), "no saga"),
        (("halt", "*", "--by", "ann", "--ttl", "soon"), "is no time"),
        (("halt", "*", "--by", "ann", "--ttl", "0"), "seconds"),
        (("drain", "tool:x", "--by", "ann"), "is no scope of drain"),
        (("quarantine", "nobody", "--by", "ann"), "no saga"),
        (("lift", "*", "--by", "ann"), "nothing stops"),
        (("keys", "add", "ann", "zz", "--by", "op"), "public key"),
        (("keys", "remove", "ann", "--by", "op"), "no registered key"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_words_are_refused(kit, saga, words, says):
    """C-3: exit 2, the reason, and nothing recorded."""
    with kit.transaction("t", key="k"):
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        before = len(kit.writer().store.tail())
        assert says in saga(*words, code=2)
        assert len(kit.writer().store.tail()) == before


@pytest.mark.parametrize("words", [("approvals", "list"), ("status",), ("halt", "*", "--by", "a"), ("keys", "list")])
def test_without_a_log(saga, words):
    """C-4: no log there is exit 3, and none is made."""
    assert "there is no log" in saga(*words, code=3)
    assert "there is no log" in saga(*words, code=3)


def test_a_request_that_shows_another_call_than_it_binds(kit, saga, monkeypatch):
    """C-5: whoever approves must not be shown one call and sign another."""
    from agent_saga.runtime import approval

    real = approval.call_digest
    monkeypatch.setattr(approval, "call_digest", lambda request, kwargs, nonce: real(request, {}, nonce))
    with kit.transaction("t", key="k"):
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        assert "another call" in saga("approvals", "show", "k:a1", code=1)
        assert "another call" in saga("approvals", "approve", "k:a1", "--by", "ann", code=1)


def test_signed_words(log, saga, tmp_path):
    """C-6: keys are made, registered, listed and removed; a signed word counts while its key does."""
    file = tmp_path / "ann.key"
    kit = make_kit(log, Asks(signed=True))
    with kit.transaction("t", key="k"):
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        made = subprocess.run(
            [sys.executable, "-m", "agent_saga", "keys", "new", str(file), "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        public = json.loads(made.stdout)["public"]
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().strip() not in made.stdout + made.stderr
        assert "must be signed" in saga("approvals", "approve", "k:a1", "--by", "ann", code=2)
        saga("approvals", "approve", "k:a1", "--by", "ann", "--key", file)
        with pytest.raises(GateRefused, match="no key is registered"):
            kit.charge("ann", 1)
        saga("keys", "add", "ann", public, "--by", "op", "--reason", "new here")
        (key,) = saga("keys", "list", "--json")["keys"]
        assert (key["name"], key["public"], key["by"]) == ("ann", public, "op")
        assert public in saga("keys", "list")
        kit.charge("ann", 1)
    saga("keys", "remove", "ann", "--by", "op")
    assert "no keys" in saga("keys", "list")
    kit.close()
    assert "no damage" in saga("verify")


def test_stops_and_what_show_and_status_say(log, saga):
    """C-7: each stop works from the command line, is shown by `status` and `show`, and ends with `lift`."""
    kit = make_kit(log)
    with pytest.raises(SagaSuspended), kit.transaction("t", key="k", tags=["eu"]) as first:
        kit.account("ann", 1)
        assert "ready" in saga("status")
        saga("halt", "tag:eu", "--by", "ann", "--reason", "fire", "--ttl", "1h")
        kit.account("ann", 2)
    told = saga("status", "--json", code=1)
    assert (told["ready"], len(told["blockers"]), told["resources"]) == (False, 1, {"account:ann": first.id})
    assert told["stops"][0]["by"] == "ann"
    shown = saga("show", "k")
    assert "halt tag:eu: fire, until" in shown
    assert "decision halt" in shown
    assert "account:ann: held until the saga is sealed" in shown
    assert "halt tag:eu by ann: fire, in force" in saga("show", told["stops"][0]["saga"])
    saga("lift", "tag:eu", "--by", "bob")
    assert "halt tag:eu by ann: fire, lifted" in saga("show", told["stops"][0]["saga"])
    saga("quarantine", "k", "--by", "ann", "--reason", "odd")
    assert "1 quarantined" in saga("recover", "--saga", "k")
    assert "is quarantined" in saga("recover", "--saga", "k", "--dry-run")
    with pytest.raises(GateRefused, match="odd"), kit.transaction("t", key="k"):
        raise Stop
    saga("lift", f"saga:{first.id[:22]}", "--by", "ann")
    saga("drain", "--by", "ann")
    assert "drain *" in saga("status", code=1)
    saga("lift", "*", "--by", "ann")
    with kit.transaction("t", key="k"):
        kit.account("ann", 1)
    kit.close()
    assert "no damage" in saga("verify")


def test_show_has_every_decision_and_reservation(log, saga):
    """C-8: requests, words, consumption, reservations, refusals and spending are readable in `show`."""
    from gate_world import Purse

    kit = make_kit(log, Purse(10))
    with kit.transaction("t", key="k") as first:
        kit.charge("ann", 6)
        with pytest.raises(GateRefused):
            kit.charge("ann", 5)
        with pytest.raises(GateRefused):
            kit.mail("a")
        operators.decide_approval(kit.writer(), f"{first.id}:a1", "approved", by="ann")
        kit.mail("a")
    kit.close()
    shown = saga("show", "k")
    for text in (
        "approval requested",
        "approval decided approved",
        "approval consumed, step 3",
        "consumed, used by step 3: mail",
        "reserved, step 1",
        "budget 'purse' has 4 left of 10, and 5 was asked",
        "purse: 6 by step 1",
    ):
        assert text in shown, shown
    told = saga("show", "k", "--json")
    assert [one["state"] for one in told["approvals"]] == ["consumed"]
    assert [one["amount"] for one in told["spent"]] == ["6"]
