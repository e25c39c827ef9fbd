"""Approvals: one word, one call, once. Rule ids: A-n."""

import asyncio
import threading

import pytest
from gate_world import Asks, Says, world

from agent_saga import Allow, Ask, GateRefused, Refuse, SagaSuspended
from agent_saga.errors import UsageError
from agent_saga.model import records as r
from agent_saga.runtime import operators
from agent_saga.store.reader import checked_records, load


def pending(kit):
    return operators.pending(kit.writer())


def approve(kit, known, *, by="ann", decision="approved", **options):
    return operators.decide_approval(kit.writer(), known.id, decision, by=by, **options)


def decisions(kit, saga):
    records = [record for _, record, _ in checked_records(kit.writer().store, saga.id)]
    return [record for record in records if isinstance(record, r.Decided)]


def ask_and_approve(kit, **kwargs):
    """Make a call that is refused for want of a word, and give the word."""
    with pytest.raises(GateRefused, match="agent-saga approvals approve"):
        kit.mail(**kwargs)
    (known,) = pending(kit)
    approve(kit, known)
    return known


def test_an_approved_call_runs_once(make):
    """A-1: the repeated call runs on the word; a further equal call asks again."""
    kit = make()
    with kit.transaction("t"):
        known = ask_and_approve(kit, to="a")
        assert kit.mail(to="a") == "sent"
        assert pending(kit) == []
        with pytest.raises(GateRefused, match="irreversible again"):
            kit.mail(to="a")
        assert [one.id for one in pending(kit)] != [known.id]
    assert world() == ["mail a null"]
    assert pending(kit) == []


@pytest.mark.parametrize(
    "changed",
    [{"to": "b"}, {"to": "a", "body": "x"}, {"to": "a", "parts": [{"n": 2}]}, {"to": "a", "parts": [{"n": 1.0}]}],
    ids=str,
)
def test_changed_arguments_are_another_call(make, changed):
    """A-2: a word is bound to all arguments, nested ones and their types included."""
    kit = make()
    with kit.transaction("t"):
        ask_and_approve(kit, to="a", parts=[{"n": 1}])
        with pytest.raises(GateRefused):
            kit.mail(**changed)
        assert world() == []
        kit.mail(to="a", parts=[{"n": 1}])
    assert world() == ['mail a [{"n": 1}]']


def test_an_argument_changed_while_the_call_waits_is_not_run(make):
    """A-3: an approver, or anybody else, who changes a mutable argument meanwhile changes what was approved."""
    parts = [{"n": 1}]

    def approver(call):
        parts[0]["n"] = 10**6
        return True

    kit = make(approver=approver)
    with kit.transaction("t"), pytest.raises(GateRefused, match="argument was changed"):
        kit.mail("a", parts=parts)
    assert world() == []


def test_a_policy_cannot_put_another_argument_in(make):
    """A-4: policies see a copy of the arguments."""
    kit = make(Says(lambda call: call.kwargs.update(customer="eve") or Allow()))
    with kit.transaction("t"):
        kit.charge("ann", 1)
    assert world() == ["charge ann 1"]


def test_the_word_of_another_tool_version_or_saga_is_none(make):
    """A-5: the word names tool, version and saga."""
    kit = make()
    with kit.transaction("t"):
        ask_and_approve(kit, to="a")
        with kit.transaction("u", independent=True), pytest.raises(GateRefused, match="needs an approval"):
            kit.mail(to="a")
        kit.declarations.find("mail").version = 2
        with pytest.raises(GateRefused, match="needs an approval"):
            kit.mail(to="a")
    assert world() == []


def test_a_word_does_not_outlive_its_time(make, clock):
    """A-6: approved, and used after the request has expired: refused. Deciding then is refused as well."""
    kit = make()
    with kit.transaction("t"):
        known = ask_and_approve(kit, to="a")
        clock.jump(301)
        with pytest.raises(GateRefused, match="needs an approval"):
            kit.mail(to="a")
        with pytest.raises(UsageError, match="has expired"):
            approve(kit, known, by="bob")
    assert world() == []


@pytest.mark.parametrize("approved_before", [False, True])
def test_a_rejected_call_does_not_run(make, approved_before):
    """A-7: a rejection counts, also after an approval, and names who said it and why."""
    kit = make()
    with kit.transaction("t"):
        with pytest.raises(GateRefused):
            kit.mail("a")
        (known,) = pending(kit)
        if approved_before:
            approve(kit, known)
        approve(kit, known, by="bob", decision="rejected", note="not now")
        with pytest.raises(GateRefused, match=r"rejected by bob \(not now\)"):
            kit.mail("a")
        with pytest.raises(UsageError, match="is rejected already"):
            approve(kit, known, by="cyd")
    assert world() == []


def test_what_a_saga_asked_for_ends_with_it(make):
    """A-8: a rollback, and a commit, withdraw open requests and unused words."""
    kit = make()
    for fails in (True, False):
        with kit.transaction("t") as saga:
            with pytest.raises(GateRefused):
                kit.mail("a")
            (known,) = pending(kit)
            if fails:
                approve(kit, known)
                saga.roll_back("enough")
        view = load(kit.writer().store, saga.id).view
        assert [one.state for one in view.gate.approvals.values()] == ["withdrawn"]
        with pytest.raises(UsageError, match="is withdrawn already"):
            approve(kit, known, by="bob")
    assert kit.writer().store.facts("approval") == []


def test_a_quorum_needs_distinct_principals(make):
    """A-9: the same name twice, also in another spelling, is one."""
    kit = make(Asks(quorum=2))
    with kit.transaction("t"):
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        (known,) = pending(kit)
        approve(kit, known, by="ann")
        for again in ("ann", "Ann", " ann ", "ANN", "\uff41nn"):
            with pytest.raises(UsageError, match="distinct principals"):
                approve(kit, known, by=again)
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        approve(kit, known, by="bob")
        kit.charge("ann", 1)
    assert world() == ["charge ann 1"]


@pytest.mark.parametrize("by", ["", " ", "a\nb", "a\u200b", "\x1b[1m"])
def test_who_decides_has_a_name(make, by):
    """A-10: an empty name, or one that cannot be read, is refused."""
    kit = make()
    with kit.transaction("t"):
        with pytest.raises(GateRefused):
            kit.mail("a")
        with pytest.raises(UsageError, match="name"):
            approve(kit, pending(kit)[0], by=by)


def test_two_policies_need_two_words(make):
    """A-11: a word on one question is no word on another one about the same call."""
    kit = make(Asks(), Asks())
    with kit.transaction("t"):
        for _ in range(2):
            with pytest.raises(GateRefused):
                kit.charge("ann", 1)
            approve(kit, next(one for one in pending(kit) if one.state == "pending"))
        assert world() == []
        kit.charge("ann", 1)
    assert world() == ["charge ann 1"]


def test_a_word_for_a_lesser_demand_is_none_for_a_greater_one(make):
    """A-12: a policy that asks for more now is not satisfied by what it asked for before."""
    policy = Asks()
    kit = make(policy)
    with kit.transaction("t"):
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        approve(kit, pending(kit)[0])
        policy.question = {"quorum": 2}
        with pytest.raises(GateRefused, match="needs an approval"):
            kit.charge("ann", 1)
    assert world() == []


def test_equal_calls_side_by_side_ask_for_themselves(make):
    """A-13: threads with equal calls never share a word: each effect had one of its own."""
    words = []
    kit = make(approver=lambda call: words.append(call) or True)
    with kit.transaction("t") as saga:
        run_threads(saga.bind(lambda: kit.mail("a")), 8)
    assert (len(words), world()) == (8, ["mail a null"] * 8)
    gate = load(kit.writer().store, saga.id).view.gate
    assert sorted(one.step for one in gate.approvals.values()) == list(range(1, 9))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("other", [None, "rejected"])
@pytest.mark.parametrize("within", [False, True])
def test_a_word_on_one_of_two_equal_calls(make, first, other, within):
    """A-13: of two equal calls that wait, one runs as soon as there is a word on one, whichever; not the other."""
    kit = make(Asks(suspend=True))

    async def ask():
        async with kit.transaction("t", key="k"):
            await asyncio.gather(kit.amail("a"), kit.amail("a"), return_exceptions=True)

    async def go_on():
        async with kit.transaction("t", key="k") as saga:
            if within:
                say()
            await kit.amail("a")
            with pytest.raises(GateRefused if other else SagaSuspended):
                await kit.amail("a")
        return saga.report.outcome

    asyncio.run(ask())
    waiting = pending(kit)
    assert len(waiting) == 2

    def say():
        approve(kit, waiting[first])
        if other:
            approve(kit, waiting[1 - first], decision=other)

    if not within:
        say()
    assert asyncio.run(go_on()) == ("committed" if other else "suspended")
    assert world() == ["amail a"]


def run_threads(work, count):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_one_word_among_threads_is_used_once(make):
    """A-14: of equal calls that race for one word one runs."""
    kit = make()
    barrier = threading.Barrier(8)
    with kit.transaction("t") as saga:
        ask_and_approve(kit, to="a")

        def work():
            barrier.wait()
            try:
                kit.mail("a")
            except GateRefused as error:
                refused.append(str(error))

        refused = []
        run_threads(saga.bind(work), 8)
    assert (world(), len(refused)) == (["mail a null"], 7)


def test_waiting_calls_hear_the_word(make):
    """A-15: with approver="log" calls wait; each hears its own word, in tasks of one loop."""
    kit = make(approver="log")

    async def main():
        async with kit.transaction("t"):
            calls = [asyncio.create_task(kit.amail(to)) for to in ("a", "b")]
            while len(pending(kit)) < 2:
                await asyncio.wait(calls, timeout=0.01)
            for known in pending(kit):
                word = "approved" if known.kwargs["to"] == '"a"' else "rejected"
                approve(kit, known, decision=word)
            return await asyncio.gather(*calls, return_exceptions=True)

    first, second = asyncio.run(main())
    assert first is None
    assert isinstance(second, GateRefused)
    assert world() == ["amail a"]


def test_a_wait_ends_with_its_saga(make):
    """A-16: a rollback ends a wait at once: the call is refused, and what nobody answered is withdrawn."""
    kit = make(approver="log")
    ended = []

    async def call(saga):
        try:
            await kit.amail("a")
        except Exception as error:
            ended.append(type(error).__name__)

    async def main():
        async with kit.transaction("t") as saga:
            waiting = asyncio.create_task(call(saga))
            while not pending(kit):
                await asyncio.wait([waiting], timeout=0.01)
            saga.roll_back("enough")
        await waiting
        return saga

    saga = asyncio.run(main())
    assert (ended, world(), saga.report.clean) == (["SagaClosed"], [], True)


def test_an_approver_that_misbehaves_has_approved_nothing(make):
    """A-17: only `True` approves; an exception, a late answer and anything else refuse, and the log says which."""
    answers = [1, "yes", None, False, ValueError("x"), [True]]

    def approver(call):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    kit = make(approver=approver)
    with kit.transaction("t"):
        for number in range(6):
            with pytest.raises(GateRefused, match="rejected by approver"):
                kit.mail(str(number))
    assert world() == []


def test_an_approver_that_hangs_expires(make):
    """A-18: the request ends as expired, not as a human's rejection."""
    never = threading.Event()
    kit = make(Asks(expires_s=0.05), approver=lambda call: never.wait(60))
    with kit.transaction("t") as saga, pytest.raises(GateRefused, match="expired by approver"):
        kit.charge("ann", 1)
    never.set()
    assert [one.decision for one in decisions(kit, saga)] == ["expired"]
    assert world() == []


def test_a_humans_rejection_beats_the_function(make):
    """A-19: a word in the log that the process has not read yet counts when its own word is committed."""

    def approver(call):
        approve(kit, pending(kit)[0], by="ann", decision="rejected")
        return True

    kit = make(approver=approver)
    with kit.transaction("t") as saga, pytest.raises(GateRefused, match="rejected by ann"):
        kit.mail("a")
    (known,) = load(kit.writer().store, saga.id).view.gate.approvals.values()
    assert (known.state, world()) == ("rejected", [])


def test_a_withdrawal_that_meets_a_word_is_no_damage(make):
    """A-20: a human rejects while the saga rolls back: both words are in the log, which stays readable."""
    kit = make()
    with kit.transaction("t") as saga:
        with pytest.raises(GateRefused):
            kit.mail("a")
        approve(kit, pending(kit)[0], decision="rejected")
        saga.roll_back("enough")  # The saga has not read the word.
    assert load(kit.writer().store, saga.id).view.ended


def test_a_word_taken_back_between_two_questions(make):
    """A-21: what was good when the first question was answered is looked at again with the intent."""
    kit = None

    def approver(call):
        first = pending(kit)[0]
        if first.state == "approved" and not taken:
            taken.append(first)
            approve(kit, first, decision="rejected", by="bob")
        return True

    taken = []
    kit = make(Asks(), Asks(), approver=approver)
    with kit.transaction("t") as saga:
        with pytest.raises(GateRefused):
            kit.charge("ann", 1)
        kit.charge("bob", 1)
    assert (len(taken), world()) == (1, ["charge bob 1"])
    assert load(kit.writer().store, saga.id).view.ended


def test_an_argument_without_a_stored_form_cannot_wait(make):
    """A-22: nobody could recognise the call again; a function that sees it may still answer, for this call alone."""
    kit = make()
    with kit.transaction("t"), pytest.raises(GateRefused, match="parts cannot be shown"):
        kit.mail("a", parts=object())
    asked = []
    kit = make(approver=lambda call: asked.append(call) or True)
    kit.declare("secret", effect="irreversible")
    with kit.transaction("t"):
        for _ in range(2):
            with pytest.raises(TypeError):  # json cannot write it: the effect itself fails.
                kit.mail("a", parts=object())
    assert len(asked) == 2


def test_a_suspended_saga_waits_for_its_word(make):
    """A-23: the scope leaves as SagaSuspended; resumed by key or id, what stands replays and the approved call runs."""
    big = Says(lambda call: Ask("big", suspend=True, expires_s=3600) if call.kwargs["amount"] > 5 else Allow())
    kit = make(big)

    def work():
        kit.charge("ann", 1)
        kit.charge("bob", 9)

    for _ in range(2):
        with pytest.raises(SagaSuspended) as told, kit.transaction("t", key="k"):
            work()
        assert world() == ["charge ann 1"]
    (known,) = pending(kit)
    assert told.value.approval == known.id
    approve(kit, known)
    with kit.resume(told.value.saga_id) as saga:
        work()
    assert world() == ["charge ann 1", "charge bob 9"]
    assert saga.report.outcome == "committed"


@pytest.mark.parametrize("reason", ["\ud800", "x" * 100_000, "a\x00b"], ids=["surrogate", "long", "zero"])
@pytest.mark.parametrize("word", ["refuse", "ask"])
def test_no_reason_can_stop_the_log(make, reason, word):
    """A-24: a reason that quotes a model's argument is made fit for a record."""
    kit = make(Says(lambda call: Refuse(reason) if word == "refuse" else Ask(reason)))
    with kit.transaction("t"), pytest.raises(GateRefused):
        kit.charge("ann", 1)
    with kit.transaction("t"), pytest.raises(GateRefused):
        kit.charge("ann", 1)
    assert world() == []
