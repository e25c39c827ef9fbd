"""A quarantine stops what rolls back: at the next boundary nothing more is compensated. Rule ids: H-n."""

import pytest
from gate_world import Stop, charge, note, world

from agent_saga import GateRefused, RollbackIncomplete, compensator
from agent_saga.errors import LogFailed
from agent_saga.runtime import operators
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import sweep

PAYS = {"customer": "kwargs.customer", "amount": "kwargs.amount"}
DOES = []


@compensator("gate.freezing", idempotent=True)
def freezing_refund(customer, amount):
    DOES[-1](customer, amount)


def freezing(does):
    """A compensator that does what a test says."""
    DOES[:] = [does]
    return freezing_refund


def quarantine(kit, saga):
    return operators.act(kit.writer(), "quarantine", f"saga:{saga.id}", by="ann", reason="odd")


def lift(kit, saga):
    return operators.lift(kit.writer(), f"saga:{saga.id}", by="ann")


@pytest.mark.parametrize("ends", ["by exception", "on request", "by cancellation"])
def test_a_quarantine_stops_a_running_rollback(make, ends):
    """H-13: at the next boundary nothing more is compensated; recovery leaves it alone; lifted, it is finished."""
    kit, froze = make(), []

    def freeze(customer, amount):
        note(f"refund {customer} {amount}")
        if not froze:
            froze.append(quarantine(kit, saga))

    tool = kit.wrap(charge, name="pay", effect="compensable", compensate=freezing(freeze).bind(**PAYS))
    told = KeyboardInterrupt if ends == "by cancellation" else RollbackIncomplete
    with pytest.raises(told) as error, kit.transaction("t", key="k") as saga:
        for number in (1, 2, 3):
            tool("ann", number)
        if ends == "on request":
            saga.roll_back("enough")
        else:
            raise Stop if ends == "by exception" else KeyboardInterrupt
    report = saga.report
    assert "odd" in str(error.value) + "".join(getattr(error.value, "__notes__", ()))
    assert (report.outcome, report.clean, report.verified) == ("suspended", False, False)
    assert [step.kwargs["amount"] for step in report.compensated] == [3]
    assert [(step.kwargs["amount"], "quarantined (odd)" in step.reason) for step in report.failed] == [
        (1, True),
        (2, True),
    ]
    frozen = world()
    for named in (None, saga.id):
        assert [one.action for one in drive(sweep(kit.writer(), saga_id=named))] == ["quarantined"]
    with pytest.raises(GateRefused, match="quarantined"), kit.transaction("t", key="k"):
        raise AssertionError
    assert world() == frozen == ["charge ann 1", "charge ann 2", "charge ann 3", "refund ann 3"]
    lift(kit, saga)
    (one,) = drive(sweep(kit.writer()))
    assert (one.action, one.report.clean) == ("recovered", True)
    assert world() == [*frozen, "refund ann 2", "refund ann 1"]


def test_a_quarantine_stops_a_recovery(make):
    """H-14: the sweep that finishes a saga stops between two compensations too, and says so."""
    kit, tries = make(), []

    def freeze(customer, amount):
        tries.append(amount)
        if len(tries) <= 6:
            raise ConnectionRefusedError
        note(f"refund {customer} {amount}")
        if len(tries) == 7:
            quarantine(kit, saga)

    tool = kit.wrap(charge, name="pay", effect="compensable", compensate=freezing(freeze).bind(**PAYS))
    with pytest.raises(RollbackIncomplete), kit.transaction("t") as saga:
        tool("ann", 1)
        tool("ann", 2)
        raise Stop
    for _ in range(2):
        (one,) = drive(sweep(kit.writer(), saga_id=saga.id))
        assert (one.action, tries[6:]) == ("quarantined", [2])
    lift(kit, saga)
    (one,) = drive(sweep(kit.writer(), saga_id=saga.id))
    assert (one.action, one.report.clean, tries[6:]) == ("recovered", True, [2, 1])


def test_a_nested_rollback_is_frozen_too(make):
    """H-15: the scope's rollback stops, its saga is suspended, and whoever lifts it may resume or recover it."""
    kit, froze = make(), []

    def freeze(customer, amount):
        note(f"refund {customer} {amount}")
        if not froze:
            froze.append(quarantine(kit, saga))

    tool = kit.wrap(charge, name="pay", effect="compensable", compensate=freezing(freeze).bind(**PAYS))
    with pytest.raises(RollbackIncomplete, match="odd"), kit.transaction("t") as saga:
        kit.charge("bob", 1)
        with kit.transaction("inner") as inner:
            tool("ann", 1)
            tool("ann", 2)
            raise Stop
    assert (inner.report.outcome, len(inner.report.failed)) == ("suspended", 1)
    assert (saga.report.outcome, world()[-1]) == ("suspended", "refund ann 2")
    assert [one.action for one in drive(sweep(kit.writer()))] == ["quarantined"]
    lift(kit, saga)
    assert [one.action for one in drive(sweep(kit.writer(), saga_id=saga.id))] == ["recovered"]
    assert world()[-2:] == ["refund ann 1", "refund bob 1"]


def test_a_quarantine_that_cannot_be_read_stops_a_rollback(make, monkeypatch):
    """H-16: unreadable means frozen; recovery finishes when it can be read."""
    kit = make()

    def broken():
        raise LogFailed("the disk is gone")

    store = kit.writer().store

    def breaks(customer, amount):
        note(f"refund {customer} {amount}")
        patch.setattr(store, "halts", broken)

    tool = kit.wrap(charge, name="pay", effect="compensable", compensate=freezing(breaks).bind(**PAYS))
    with monkeypatch.context() as patch:
        with pytest.raises(RollbackIncomplete, match="cannot be read"), kit.transaction("t") as saga:
            tool("ann", 1)
            tool("ann", 2)
            raise Stop
    assert world()[-1] == "refund ann 2"
    assert [one.report.clean for one in drive(sweep(kit.writer(), saga_id=saga.id))] == [True]
