"""The policies in the real engine: nothing gets through, every refusal says why, no compensation is held up."""

import asyncio
import threading
from decimal import Decimal

import pytest
from gate_cases import UNREADABLE

from agent_saga import AgentKit, GateRefused, compensator
from agent_saga.gates import (
    AllowTools,
    Bounds,
    Budget,
    CircuitBreaker,
    Consensus,
    DenyTools,
    EffectRule,
    RateLimit,
    UndoPath,
    all_of,
    first_of,
    when,
)
from agent_saga.model.effects import Ask

PAID: list[object] = []
UP = threading.Event()


@compensator("gates.unpay", idempotent=True)
def unpay(amount: object) -> None:
    PAID.remove(amount)


@compensator("gates.unarchive", idempotent=True, lives_in="/srv/archive")
def unarchive(path: str) -> None:
    PAID.remove(path)


def pay(amount: object) -> str:
    if not UP.is_set():
        raise ValueError("the bank is closed")
    PAID.append(amount)
    return "paid"


async def apay(amount: object) -> str:
    await asyncio.sleep(0)
    return pay(amount)


def archive(path: str) -> None:
    PAID.append(path)


def remove(path: str) -> None:
    PAID.append(f"removed {path}")


@pytest.fixture
def make_kit():
    PAID.clear()
    UP.set()
    kits = []

    def make(*policies, **options):
        kit = AgentKit("memory:", policies=policies, **options)
        kits.append(kit)
        kit.pay = kit.wrap(pay, effect="compensable", compensate=unpay.bind(amount="kwargs.amount"))
        kit.apay = kit.wrap(apay, effect="compensable", compensate=unpay.bind(amount="kwargs.amount"))
        kit.archive = kit.wrap(archive, effect="compensable", compensate=unarchive.bind(path="kwargs.path"))
        kit.remove = kit.wrap(remove, effect="irreversible")
        return kit

    yield make
    for kit in kits:
        kit.close()


@pytest.mark.parametrize(
    "value", [*UNREADABLE.values(), "1e9", Decimal("1e9"), -5, "-5", 101], ids=range(len(UNREADABLE) + 5)
)
@pytest.mark.parametrize(
    "policy",
    [
        Bounds(tool="pay", argument="amount", max=100),
        Budget(name="b", limit=100, amount="amount"),
        all_of(Bounds(tool="pay", argument="amount", max=100)),
        first_of(Bounds(tool="pay", argument="amount", max=100)),
    ],
    ids=["bounds", "budget", "all_of", "first_of"],
)
def test_no_bad_amount_reaches_the_tool(make_kit, policy, value):
    """GATE: an amount that is unreadable or out of bounds is refused before the effect, with a reason."""
    kit = make_kit(policy)
    with kit.transaction("t") as saga, pytest.raises(GateRefused, match="before any effect: pay"):
        kit.pay(value)
    assert PAID == []
    assert saga.report.outcome == "committed"
    assert saga.report.kept == ()


class Raises:
    def decide(self, call, saga):
        raise ZeroDivisionError("bug")


class RaisesLater:
    async def decide(self, call, saga):
        raise ZeroDivisionError("bug")


@pytest.mark.parametrize("bad", [Raises(), RaisesLater()], ids=["sync", "async"])
@pytest.mark.parametrize("wrap", [lambda it: it, all_of, first_of, when], ids=["bare", "all_of", "first_of", "when"])
def test_a_policy_that_raises_refuses(make_kit, wrap, bad):
    """GATE: a bug in a policy refuses, wherever the policy stands."""
    kit = make_kit(wrap(bad), EffectRule("compensable", "allow"))
    with kit.transaction("t"), pytest.raises(GateRefused, match="ZeroDivisionError"):
        kit.pay(5)
    assert PAID == []


@pytest.mark.parametrize("name", ["Pay", "p\u0430y", "pay ", "p\u00e1y", "\uff50ay"], ids=ascii)
def test_a_look_alike_tool_passes_no_gate(make_kit, name):
    """GATE: a tool declared under a name that imitates another is neither allowed nor left alone."""
    for policy in (AllowTools("pay"), DenyTools("pay"), Bounds(tool="pay", argument="amount", max=100)):
        kit = make_kit(policy)
        imitation = kit.wrap(pay, name=name, effect="compensable", compensate=unpay.bind(amount="kwargs.amount"))
        with kit.transaction("t"), pytest.raises(GateRefused):
            imitation(5)
    assert PAID == []


def test_a_budget_is_shared_and_compensation_gives_nothing_back(make_kit):
    """GATE: what was spent stays spent across sagas, also when a rollback compensated it."""
    kit = make_kit(Budget(name="b", limit=10, amount="amount", window="day"))
    with kit.transaction("first") as saga:
        kit.pay(6)
        saga.roll_back("changed my mind")
    assert PAID == []
    with kit.transaction("second"), pytest.raises(GateRefused, match="b"):
        kit.pay(5)
    with kit.transaction("third"):
        kit.pay(4)
    assert PAID == [4]


def test_many_threads_cannot_spend_more_than_a_budget(make_kit):
    """GATE: 64 concurrent reservations against one budget of 10 let 10 through."""
    kit = make_kit(Budget(name="b", limit=10, amount="amount"))
    answers = []
    barrier = threading.Barrier(16)

    def spend():
        barrier.wait(60)
        for _ in range(4):
            try:
                with kit.transaction("t"):
                    answers.append(kit.pay(1))
            except GateRefused:
                answers.append("refused")

    threads = [threading.Thread(target=spend) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (answers.count("paid"), answers.count("refused")) == (10, 54)
    assert PAID == [1] * 10


def test_a_rate_limit_counts_calls_of_all_sagas(make_kit):
    """GATE: the sixth call in a window is refused, whoever makes it."""
    kit = make_kit(RateLimit(name="r", calls=5, window=3600))
    for number in range(5):
        with kit.transaction("t"):
            kit.pay(number)
    with kit.transaction("t"), pytest.raises(GateRefused):
        kit.pay(6)


def test_an_open_circuit_holds_up_no_compensation(make_kit):
    """GATE: the breaker refuses new calls of a failing tool; the rollback of earlier ones runs."""
    kit = make_kit(CircuitBreaker(tool="pay", failures=2, open_for_s=3600))
    with pytest.raises(GateRefused, match="failed 2 times in a row"), kit.transaction("t") as saga:
        kit.pay(1)
        UP.clear()
        for number in (2, 3):
            with pytest.raises(ValueError, match="closed"):
                kit.pay(number)
        kit.pay(4)
    assert saga.report.clean
    assert PAID == []


def test_failures_of_rolled_back_sagas_open_the_circuit_and_refusals_do_not(make_kit):
    """GATE: the breaker learns from sagas that ended; what a gate refused was no failure."""
    kit = make_kit(CircuitBreaker(tool="pay", failures=2), Bounds(tool="pay", argument="amount", max=100))
    for _ in range(5):
        with kit.transaction("t"), pytest.raises(GateRefused, match="outside"):
            kit.pay(500)
    UP.clear()
    for number in range(2):
        with pytest.raises(ValueError, match="closed"), kit.transaction("t"):
            kit.pay(number)
    with kit.transaction("t"), pytest.raises(GateRefused, match="failed 2 times"):
        kit.pay(3)


def test_the_place_of_a_compensation_is_kept(make_kit):
    """GATE: what a step's compensation needs is not destroyed, and may be once it is not needed any more."""
    kit = make_kit(UndoPath(tool="remove", destroys="path"), approver=lambda call: True)
    with kit.transaction("t") as saga:
        kit.archive("/srv/file")
        for path in ("/srv", "/srv/archive/x", "/srv/arch*"):
            with pytest.raises(GateRefused, match=r"step 1 \(archive\) needs '/srv/archive'"):
                kit.remove(path)
        saga.roll_back("enough")
    with kit.transaction("t"):
        kit.remove("/srv/archive/x")
    assert PAID == ["removed /srv/archive/x"]


def agree(call):
    return True


async def aagree(call):
    return True


def agree_too(call):
    return call.kwargs["amount"] != 666


@pytest.mark.parametrize("is_async", [False, True])
def test_a_consensus_works_in_sync_and_async_sagas(make_kit, is_async):
    """GATE: 3 of 3 before a large transfer, in both kinds of scope."""
    kit = make_kit(when(Consensus(tool="*pay", verifiers=(agree, aagree, agree_too)), argument="amount", at_least=100))

    async def amain():
        async with kit.transaction("t"):
            await kit.apay(500)
            with pytest.raises(GateRefused, match="2 of 3 verifiers agreed"):
                await kit.apay(666)

    if is_async:
        asyncio.run(amain())
    else:
        with kit.transaction("t"):
            kit.pay(500)
            with pytest.raises(GateRefused, match="2 of 3 verifiers agreed"):
                kit.pay(666)
    assert PAID == [500]


def test_each_question_is_answered_for_itself(make_kit):
    """GATE: the word on a question of one policy does not answer a stricter question of another one of its kind."""
    one = Bounds(tool="pay", argument="amount", max=10, then="ask")
    two = Bounds(tool="pay", argument="amount", max=100, then=Ask("two people", quorum=2))
    kit = make_kit(one, two, approver=lambda call: True)
    with kit.transaction("t"):
        kit.pay(50)
        with pytest.raises(GateRefused, match="two people"):
            kit.pay(500)
    assert PAID == [50]
