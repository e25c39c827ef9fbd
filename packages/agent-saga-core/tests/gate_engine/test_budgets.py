"""Budgets: reserved with the intent, exactly. Rule ids: B-n."""

import threading
from decimal import Decimal

import pytest
from gate_world import Purse, Says, Stop, make_kit, refund, world

from agent_saga import Allow, GateRefused, SagaSuspended
from agent_saga.errors import CorruptLog, SagaRolledBack, StepInDoubt
from agent_saga.gates import Budget, RateLimit
from agent_saga.model import records as r
from agent_saga.model.requirements import Within
from agent_saga.runtime import operators
from agent_saga.runtime.verdict import settle_by_hand
from agent_saga.store.reader import checked_records, load
from agent_saga.store.verify import verify


def spent(kit, name="purse"):
    return sum(Decimal(fact.value) for fact in kit.writer().store.facts("spend", name))


def test_a_refusal_names_what_is_left(make):
    """B-1: the exact rest may be spent, nothing more; the refusal says what is left and what was asked."""
    kit = make(Purse("10"))
    with kit.transaction("t") as saga:
        kit.charge("ann", "7.5")
        with pytest.raises(GateRefused, match=r"'purse' has 2\.5 left of 10, and 2\.6 was asked"):
            kit.charge("ann", "2.6")
        kit.charge("ann", "2.5")
        with pytest.raises(GateRefused, match="has 0"):
            kit.charge("ann", "0.0000000000000000000000000001")
    assert world() == ["charge ann 7.5", "charge ann 2.5"]
    assert (saga.report.outcome, spent(kit)) == ("committed", 10)
    records = [record for _, record, _ in checked_records(kit.writer().store, saga.id)]
    assert [one.refused is None for one in records if isinstance(one, r.Reserved)] == [True, False, True, False]


def test_compensated_spend_is_not_given_back(make):
    """B-2: a rollback compensates the effect, and the budget stays spent."""
    kit = make(Purse(10))
    with pytest.raises(Stop), kit.transaction("t"):
        kit.charge("ann", 6)
        raise Stop
    assert world() == ["charge ann 6", "refund ann 6"]
    assert spent(kit) == 6


def test_spend_without_effect_is_freed(make):
    """B-3: a call that is known to have done nothing frees what it reserved."""
    kit = make(Purse(10))
    with kit.transaction("t"):
        with pytest.raises(ValueError, match="declined"):
            kit.declined("ann", 10)
        assert spent(kit) == 0
        kit.charge("ann", 10)
    assert spent(kit) == 10


def test_spend_in_doubt_stays_reserved_until_it_is_settled(make):
    """B-4: nobody knows whether it was spent, so nobody else may spend it; a human's word frees it."""
    kit = make(Purse(10))
    with pytest.raises(SagaRolledBack), kit.transaction("t") as saga, pytest.raises(TimeoutError):
        kit.vanish("ann", 6)
    assert spent(kit) == 6
    with kit.transaction("u"), pytest.raises(GateRefused, match="has 4 left"):
        kit.charge("ann", 5)
    settle_by_hand(kit.writer(), saga.id, 1, "did-not-happen", evidence="looked", by="ann")
    assert spent(kit) == 0


def test_a_retry_reserves_again(make, clock):
    """B-5: what a failed attempt freed and somebody else took meanwhile is refused to the next attempt."""

    def somebody_else():
        with kit.transaction("u", independent=True):
            kit.charge("eve", 8)
        return 0.0

    kit = make(Purse(10))
    clock.jitter = somebody_else  # Asked for between two attempts.
    with pytest.raises(GateRefused, match="has 2 left"), kit.transaction("t"):
        kit.pack("b1", 8)
    assert (world(), spent(kit)) == (["charge eve 8"], 8)


def test_a_retry_counts_once(make):
    """B-6: a step that is tried twice holds what it asked for, once."""
    kit = make(Purse(10))
    with kit.transaction("t"):
        kit.pack("b1", 8)
    assert (world(), spent(kit)) == (["pack b1"], 8)


def test_a_halt_between_two_attempts(make, clock):
    """B-7: the kill switch is read at each intent, also at that of a retry."""
    kit = make()
    clock.jitter = lambda: operators.act(kit.writer(), "halt", "*", by="ann", reason="fire") and 0.0
    with pytest.raises(SagaSuspended, match="fire"), kit.transaction("t"):
        kit.pack("b1", 8)
    assert world() == []


def test_a_refused_retry_leaves_an_earlier_attempt_in_doubt(make):
    """B-8: a call in doubt that is repeated under its key, and refused, may still have landed."""
    kit = make(Purse(10))
    kit.hazy = kit.wrap(
        hazy, effect="compensable", compensate=refund.bind(customer="kwargs.customer", amount="kwargs.amount")
    )
    with pytest.raises(SagaRolledBack), kit.transaction("t") as saga:
        with pytest.raises(TimeoutError):
            kit.hazy("ann", 6)
        kit.environment.policies[-1].limit = Decimal(5)
        with pytest.raises(GateRefused, match="has 5 left of 5, and 6"):
            kit.hazy("ann", 6)
    view = load(kit.writer().store, saga.id).view
    assert (view.steps[1].state.value, saga.report.clean) == ("in_doubt", False)
    assert spent(kit) == 6


def hazy(customer, amount, idempotency_key=""):
    raise TimeoutError("no answer")


@pytest.mark.parametrize(
    "amount", [Decimal("nan"), Decimal(-1), Decimal("inf"), 1.5, "7", 7, Decimal("1e999"), None], ids=repr
)
def test_what_is_no_amount_refuses(make, amount):
    """B-9: a policy that hands the log something that cannot be added up refuses, and the log works on."""
    kit = make(Says(lambda call: Allow((Within(budget="b", amount=amount, limit=Decimal(9)),))))
    with kit.transaction("t"), pytest.raises(GateRefused, match="finite decimals"):
        kit.charge("ann", 1)
    with kit.transaction("t"), pytest.raises(GateRefused):
        kit.charge("ann", 1)
    assert world() == []


@pytest.mark.parametrize("requires", [("nonsense",), None, 5, (Within,)], ids=repr)
def test_requirements_that_are_none_refuse(make, requires):
    """B-10: what the log could not check is not passed over."""
    kit = make(Says(Allow(requires)))
    with kit.transaction("t"), pytest.raises(GateRefused):
        kit.charge("ann", 1)
    assert world() == []


def test_64_threads_spend_a_budget_exactly(make):
    """B-11: of 64 calls of 1 against 10, ten run, and each refusal says why."""
    kit = make(Purse(10))
    refused, barrier = [], threading.Barrier(64)

    def work(number):
        barrier.wait()
        with kit.transaction(f"t{number}"):
            try:
                kit.charge(f"c{number}", 1)
            except GateRefused as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(world()), len(refused), spent(kit)) == (10, 54, 10)
    assert all("has 0 left of 10, and 1 was asked" in reason for reason in refused)


def test_parallel_steps_of_one_saga_share_a_budget(make):
    """B-12: refused and accepted intents of one saga, side by side, leave the facts as the records say."""
    kit = make(Purse(10))
    refused = []
    with kit.transaction("t") as saga:

        def work(number):
            try:
                kit.charge(f"c{number}", 1)
            except GateRefused as error:
                refused.append(error)

        threads = [threading.Thread(target=saga.bind(work), args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(world()), len(refused), spent(kit)) == (10, 14, 10)


def test_a_step_in_doubt_is_not_repeated_to_spend_again(make):
    """B-13: an unsettled call refuses its repetition before any budget is asked."""
    kit = make(Purse(100))
    with pytest.raises(SagaRolledBack), kit.transaction("t"):
        with pytest.raises(TimeoutError):
            kit.vanish("ann", 6)
        with pytest.raises(StepInDoubt):
            kit.vanish("ann", 6)
    assert spent(kit) == 6


@pytest.mark.parametrize("planted", ["-1000", "nan", "x", b"\x00"], ids=repr)
def test_spending_that_cannot_be_read_refuses(make_sqlite, log, planted):
    """B-14: a running total that is no amount stops spending; the reason says what to run."""
    import apsw

    kit = make_sqlite(Purse(10))
    with kit.transaction("t"):
        kit.charge("ann", 1)
    db = apsw.Connection(log)
    db.execute("UPDATE facts SET value = ? WHERE kind = 'total'", (planted,))
    with kit.transaction("u"), pytest.raises(GateRefused, match="agent-saga verify"):
        kit.charge("ann", 1)
    db.execute("UPDATE facts SET value = '1' WHERE kind = 'total'")
    db.close()


@pytest.mark.parametrize("change", ["value = '0'", "at = 7", "name = 'x'", "no = 1", "saga = 'x'", "kind = 'x'"])
def test_a_changed_total_is_noticed(make_sqlite, log, change):
    """B-15: verify adds each running total up again."""
    import apsw

    kit = make_sqlite(Purse(10))
    with kit.transaction("t"):
        kit.charge("ann", 1)
        kit.charge("ann", 2)
    (total,) = kit.writer().store.facts("total")
    assert total == ("total", "purse", "", 0, "3", 2)
    db = apsw.Connection(log)
    db.execute(f"UPDATE facts SET {change} WHERE kind = 'total'")
    with pytest.raises(CorruptLog):
        verify(kit.writer().store)
    db.execute("DELETE FROM facts WHERE kind IN ('total', 'x')")
    db.close()
    verify(kit.writer().store)
    with kit.transaction("u"):  # Without a total the budget is added up.
        with pytest.raises(GateRefused, match="has 7 left"):
            kit.charge("ann", 8)
        kit.charge("ann", 7)


def test_a_look_costs_the_same_however_much_was_spent(clock, monkeypatch):
    """B-16: the log reads one row of a forever-budget, and what three windows hold of a rolling one."""
    kit = make_kit("memory:", Budget(name="b", limit=1000), RateLimit(name="r", calls=1000, window=10))
    for number in range(20):
        clock.jump(100)
        with kit.transaction("t"):
            kit.charge("ann", number)
    state, looked = kit.writer().store._state, []
    before = state.facts_of_name
    monkeypatch.setattr(state, "facts_of_name", lambda *names: looked.append(before(*names)) or looked[-1])
    with kit.transaction("t"):
        kit.charge("ann", 1)
    assert max(map(len, looked)) <= 1
    kit.close()
