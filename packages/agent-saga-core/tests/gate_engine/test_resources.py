"""Resources between sagas. Rule ids: R-n."""

import threading

import pytest
from gate_world import Says, Stop, world

from agent_saga import Allow, GateRefused, SagaSuspended
from agent_saga.errors import SagaClosed, SagaRolledBack
from agent_saga.model.requirements import Free
from agent_saga.runtime import operators
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.verdict import settle_by_hand


def held(kit):
    return {fact.name: fact.saga_id for fact in kit.writer().store.facts("resource")}


def test_a_second_saga_fails_fast_and_is_told_the_holder(make):
    """R-1: the refusal names resource and holder; another resource is free; the end of the saga frees it."""
    kit = make()
    with kit.transaction("t") as first:
        kit.account("ann", 1)
        kit.account("ann", 2)
        with kit.transaction("u", independent=True):
            with pytest.raises(GateRefused, match=f"'account:ann' is held by saga '{first.id}'"):
                kit.account("ann", 3)
            kit.account("bob", 3)
            assert held(kit)["account:ann"] == first.id
        assert held(kit) == {"account:ann": first.id}
    assert held(kit) == {}
    with kit.transaction("v"):
        kit.account("ann", 4)
    assert [line.split()[2] for line in world()] == ["1", "2", "3", "4"]


def test_a_saga_that_waits_gets_it(make):
    """R-2: on_busy="wait" waits for the holder's end."""
    kit = make()
    entered, order = threading.Event(), []

    def second():
        with kit.transaction("u", on_busy="wait", deadline_s=60):
            entered.set()
            kit.account("ann", 2)
            order.append("second")

    thread = threading.Thread(target=second)
    with kit.transaction("t"):
        kit.account("ann", 1)
        thread.start()
        entered.wait(30)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert world() == ["charge ann 1", "charge ann 2"]


def test_waiting_ends_with_the_deadline(make):
    """R-3: a wait is bounded: the call is refused, or its saga is abandoned, and nothing has run."""
    kit = make()
    with kit.transaction("t"):
        kit.account("ann", 1)
        waiting = kit.transaction("u", independent=True, on_busy="wait", deadline_s=0.2)
        with pytest.raises((GateRefused, SagaClosed)), waiting:
            kit.account("ann", 2)
    assert world() == ["charge ann 1"]


@pytest.mark.parametrize("tries", range(3))
def test_opposite_orders_do_not_deadlock(make, tries):
    """R-4: of two sagas that want each other's resource one is refused at once; both end."""
    kit = make()
    barrier, ended = threading.Barrier(2), []

    def work(one, other):
        try:
            with kit.transaction(one, on_busy="wait", deadline_s=60):
                kit.lift(one)
                barrier.wait(30)
                kit.lift(other)
        except GateRefused as error:
            ended.append(str(error))
        else:
            ended.append("done")

    threads = [threading.Thread(target=work, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(end == "done" for end in ended) == [False, True]
    assert any("could last for ever" in end for end in ended)
    assert held(kit) == {}


def test_two_resources_of_one_call_are_taken_together(make):
    """R-5: calls that need two in opposite order take both or none."""
    kit = make()
    ended = []

    def work(one, other):
        for number in range(10):
            with kit.transaction(f"{one}{number}", on_busy="wait", deadline_s=60):
                kit.lift_both(one, other)
        ended.append(one)

    threads = [threading.Thread(target=work, args=pair) for pair in (("a", "b"), ("b", "a"), ("b", "c"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert (sorted(ended), len(world()), held(kit)) == (["a", "b", "b"], 30, {})


def test_it_is_held_while_the_saga_is_suspended(make):
    """R-6: a saga that waits holds what it took."""
    kit = make()
    with pytest.raises(SagaSuspended), kit.transaction("t", key="k") as first:
        kit.account("ann", 1)
        raise SagaSuspended("later")
    with kit.transaction("u"), pytest.raises(GateRefused, match=first.id):
        kit.account("ann", 2)
    with kit.transaction("t", key="k"):
        kit.account("ann", 1)
    assert held(kit) == {}


def test_it_is_held_while_a_human_is_needed(make):
    """R-7: a rolled-back saga with a step in doubt is not sealed; a human's word seals and frees."""
    kit = make()
    kit.hazy = kit.wrap(hazy, effect="irreversible", resources=["account:{customer}"])
    kit.environment.approver = lambda call: True
    with pytest.raises(SagaRolledBack), kit.transaction("t") as first, pytest.raises(TimeoutError):
        kit.hazy("ann")
    with kit.transaction("u"), pytest.raises(GateRefused, match=first.id):
        kit.account("ann", 2)
    settle_by_hand(kit.writer(), first.id, 1, "did-not-happen", evidence="looked", by="ann")
    with kit.transaction("u"):
        kit.account("ann", 2)


def hazy(customer):
    raise TimeoutError("no answer")


def test_a_rollback_frees(make):
    """R-8: a clean rollback seals, and frees."""
    kit = make()
    with pytest.raises(Stop), kit.transaction("t"):
        kit.account("ann", 1)
        raise Stop
    assert (held(kit), world()) == ({}, ["charge ann 1", "refund ann 1"])


def test_parallel_steps_of_one_saga_share_it(make):
    """R-9: what the log refuses to one step it refuses to the others that came with it, and facts equal records."""
    kit = make()
    ended = []

    def work(number):
        try:
            kit.account("ann", number)
            ended.append("ran")
        except GateRefused:
            ended.append("refused")

    with kit.transaction("t") as first:
        run(first.bind(work), 8)
        with kit.transaction("u", independent=True) as second:
            run(second.bind(work), 8)
        assert set(held(kit).values()) == {first.id}
    assert sorted(ended) == ["ran"] * 8 + ["refused"] * 8


def run(work, count):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_a_policy_demands_is_held_too(make):
    """R-10: `Free` from a policy is taken with the intent."""
    kit = make(Says(Allow((Free(names=("crane",)),))))
    with kit.transaction("t") as first:
        kit.charge("ann", 1)
        assert held(kit) == {"crane": first.id}
        with kit.transaction("u", independent=True), pytest.raises(GateRefused, match=first.id):
            kit.charge("bob", 1)
    assert held(kit) == {}


@pytest.mark.parametrize("customer", ["\ud800", "x" * 5000], ids=["surrogate", "long"])
def test_a_name_that_cannot_be_recorded_refuses(make, customer):
    """R-11: an argument that makes no name of a resource is refused, and the log works on."""
    kit = make()
    with kit.transaction("t"):
        with pytest.raises(GateRefused, match="cannot be the name"):
            kit.account(customer, 1)
        kit.account("ann", 1)
    assert world() == ["charge ann 1"]


def test_a_halt_reaches_whoever_waits_for_a_resource(make):
    """R-12: the kill switch is looked at while a call waits."""
    kit = make()
    with kit.transaction("t") as first:
        kit.account("ann", 1)
        operators.act(kit.writer(), "halt", "tag:eu", by="ann", reason="fire")
        waiting = kit.transaction("u", independent=True, tags=["eu"], on_busy="wait")
        with pytest.raises(SagaSuspended, match="fire"), waiting:
            kit.account("ann", 2)
        assert held(kit) == {"account:ann": first.id}


def test_recovery_takes_nothing_from_a_waiting_saga(make):
    """R-13: a sweep frees only what it seals."""
    kit = make()
    with pytest.raises(SagaSuspended), kit.transaction("t", key="k"):
        kit.account("ann", 1)
        raise SagaSuspended("later")
    drive(sweep(kit.writer()))
    assert list(held(kit)) == ["account:ann"]
