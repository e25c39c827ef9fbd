"""The gate between processes: races, crashes, words and halts from elsewhere. Rule ids: G-n."""

import pytest
from gate_checks import check
from gate_world import make_kit, world

from agent_saga.runtime import operators
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import sweep
from agent_saga.store.reader import load
from agent_saga.testing.crash import CRASH_AT

pytestmark = pytest.mark.slow


@pytest.fixture
def kit(log):
    kit = make_kit(log)
    yield kit
    kit.close()
    check(log)


def approve_all(kit):
    for known in operators.pending(kit.writer()):
        operators.decide_approval(kit.writer(), known.id, "approved", by="ann")


def test_64_reservations_from_four_processes(start, kit):
    """G-1: four processes with 16 threads each spend a budget of 10 exactly; each refusal says why."""
    children = [start("spend", 10, 16) for _ in range(4)]
    for child in children:
        child.hear("ready")
    for child in children:
        child.tell()
    lines = [line for child in children for line in child.end()]
    refused = [line for line in lines if line.startswith("refused")]
    assert (lines.count("spent"), len(refused), len(world())) == (10, 54, 10)
    assert all("'purse' has 0 left of 10, and 1 was asked" in line for line in refused)
    assert len(kit.writer().store.facts("spend", "purse")) == 10


def test_a_suspended_saga_goes_on_in_another_process(start, kit):
    """G-2: answered here, resumed there by key and by id; earlier calls replay, the approved one runs once."""
    for number, word in enumerate(("key", "id")):
        saga_id = start("order", f"k{number}").hear("suspended").split()[0]
        approve_all(kit)
        other = start("order", f"k{number}") if word == "key" else start("order", "-", saga_id)
        assert other.hear("committed") == saga_id
        assert other.end() == []
    assert world() == ["charge ann 1", "charge ann 9"] * 2


def test_two_processes_race_to_resume(start, kit):
    """G-3: of two processes that resume one saga with one word one runs it."""
    start("order", "k").hear("suspended")
    approve_all(kit)
    lines = [line for child in [start("order", "k") for _ in range(4)] for line in child.end()]
    assert world() == ["charge ann 1", "charge ann 9"]
    assert any(line.startswith("committed") for line in lines)


@pytest.mark.parametrize(
    ("point", "then"),
    [
        ("before commit of approval_requested", "suspended"),
        ("after commit of approval_requested", "suspended"),
        ("before commit of suspended", "suspended"),
    ],
)
def test_killed_while_it_asks(start, kit, point, then):
    """G-4: a process that dies before its request is in the log, or after it, asks again, or finds its request."""
    first = start("crash", "k", env={CRASH_AT: point})
    assert first.process.wait() < 0
    child = start("order", "k")
    assert child.hear(then)
    child.end()
    assert len(operators.pending(kit.writer())) == 1
    approve_all(kit)
    assert start("order", "k").hear("committed")
    assert world() == ["charge ann 1", "charge ann 9"]


@pytest.mark.parametrize(
    "point", ["before commit of intent 2", "after commit of intent 2", "before commit of outcome 2"]
)
def test_killed_between_the_word_and_the_effect(start, kit, point):
    """G-5: killed before the intent, the word is unused and works; after it, it is used, and nothing runs twice."""
    start("order", "k").hear("suspended")
    approve_all(kit)
    at = point.replace("intent 2", "replayed 1+intent 2+approval_consumed 2")
    child = start("crash", "k", env={CRASH_AT: at})
    assert child.process.wait() < 0
    last = start("order", "k")
    if point.startswith("before commit of intent"):
        assert last.hear("committed")
        assert world() == ["charge ann 1", "charge ann 9"]
        return
    ran = point == "before commit of outcome 2"
    assert world() == ["charge ann 1"] + ["charge ann 9"] * ran
    assert last.process.wait() != 0  # StepInDoubt: nobody knows whether it ran, and no word allows it once more.
    assert world()[:2] == ["charge ann 1"] + ["charge ann 9"] * ran + ["refund ann 1"] * (not ran)
    assert operators.pending(kit.writer()) == []


def test_deciders_race(start, kit):
    """G-6: words from several processes at once: each is recorded or refused, none is lost, one per principal."""
    saga_id = start("order", "k").hear("suspended").split()[0]
    (known,) = operators.pending(kit.writer())
    deciders = [start("decide", known.id, by, "approved") for by in ("ann", "ann", "bob", "cyd")]
    for child in deciders:
        child.hear("ready")
    for child in deciders:
        child.tell()
    words = [line.split()[0] for child in deciders for line in child.end()]
    assert sorted(words) == ["no", "yes", "yes", "yes"]
    (known,) = operators.pending(kit.writer())
    assert sorted(known.approved_by) == ["ann", "bob", "cyd"]
    assert load(kit.writer().store, saga_id).view.amended == 9


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_a_waiting_call_hears_another_process(start, kit, decision):
    """G-7: approver="log" waits in its process for a word that is given in this one."""
    child = start("wait_for_word")
    child.hear("asks")
    while not (found := operators.pending(kit.writer())):
        pass
    operators.decide_approval(kit.writer(), found[0].id, decision, by="ann")
    child.hear("ran" if decision == "approved" else "refused")
    assert world() == ["charge ann 1"] * (decision == "approved")


def test_a_halt_from_another_process(start, kit):
    """G-8: the next call of a running process is stopped; lifted, another process resumes by key and goes on."""
    child = start("work")
    child.hear("opened")
    child.tell()
    child.hear("charged 0")
    operators.act(kit.writer(), "halt", "tool:charge", by="ann", reason="fire")
    child.tell()
    assert "halt tool:charge: fire" in child.hear("halted")
    child.end()
    assert world() == ["charge ann 0"]
    operators.lift(kit.writer(), "tool:charge", by="ann")
    again = start("work")
    for _ in range(2):
        again.tell()
    again.hear("charged 1")
    assert world() == ["charge ann 0", "charge ann 1"]


def test_a_quarantine_from_another_process(start, kit):
    """G-9: killed in quarantine: recovery leaves it alone, nobody takes its key up, a lift lets recovery go on."""
    child = start("work")
    saga_id = child.hear("opened")
    child.tell()
    child.hear("charged 0")
    operators.act(kit.writer(), "quarantine", f"saga:{saga_id}", by="ann", reason="odd")
    child.kill()
    for named in (None, saga_id):
        assert [one.action for one in drive(sweep(kit.writer(), saga_id=named))] == ["quarantined"]
    assert "odd" in start("work").hear("refused")
    assert world() == ["charge ann 0"]
    operators.lift(kit.writer(), f"saga:{saga_id}", by="ann")
    assert [one.action for one in drive(sweep(kit.writer()))] == ["recovered"]
    assert world() == ["charge ann 0", "refund ann 0"]


@pytest.mark.parametrize("ends", ["normally", "raise", "killed"])
def test_an_account_is_held_until_its_saga_is_sealed(start, kit, ends):
    """G-10: fail fast names the holder, a waiter waits; held by the dead until recovery has sealed their saga."""
    holder = start("hold", "ann", ends)
    saga_id = holder.hear("holds")
    assert saga_id in start("want", "ann", "fail").hear("refused")
    if ends == "killed":
        holder.kill()
        assert saga_id in start("want", "ann", "fail").hear("refused")
        drive(sweep(kit.writer()))
        waiter = start("want", "ann", "fail")
    else:
        waiter = start("want", "ann", "wait")
        waiter.hear("wants")
        holder.tell()
        holder.end()
    waiter.hear("got it")
    waiter.end()
    assert kit.writer().store.facts("resource") == []


def test_opposite_orders_between_processes(start, kit):
    """G-11: two processes that want each other's account: one is refused at once, both end."""
    children = [start("opposite", "a", "b"), start("opposite", "b", "a")]
    for child in children:
        child.hear("holds")
    for child in children:
        child.tell()
    assert sorted(child.end()[-1].split()[0] for child in children) == ["done", "refused"]
    assert kit.writer().store.facts("resource") == []
