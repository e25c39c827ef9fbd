"""Halt, drain, quarantine, lift. Rule ids: H-n."""

import pytest
from gate_world import Says, Stop, world

from agent_saga import Allow, GateRefused, SagaSuspended
from agent_saga.errors import LogFailed, UsageError
from agent_saga.model import records as r
from agent_saga.runtime import operators
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import sweep
from agent_saga.store.reader import checked_records, load


def act(kit, action, scope, **options):
    return operators.act(kit.writer(), action, scope, by="ann", **options)


def lift(kit, scope):
    return operators.lift(kit.writer(), scope, by="ann")


@pytest.mark.parametrize(
    ("scope", "stops"),
    [
        ("*", True),
        ("tool:charge", True),
        ("tool:cha*", True),
        ("tool:charg", False),
        ("tool:Charge", False),
        ("tool:charge.*", False),
        ("tag:eu", True),
        ("tag:us", False),
        ("saga:", True),
        ("saga:other", False),
    ],
)
def test_scopes(make, scope, stops):
    """H-1: a halt stops the calls that its scope covers, and no others; lifted, they run."""
    kit = make()
    with pytest.raises(SagaSuspended) if stops else pytest.raises(Stop), kit.transaction("t", tags=["eu"]) as saga:
        act(kit, "halt", f"saga:{saga.id}" if scope == "saga:" else scope, reason="fire")
        kit.charge("ann", 1)
        raise Stop
    assert (world() == []) is stops
    assert saga.report.outcome == ("suspended" if stops else "rolled_back")
    assert lift(kit, f"saga:{saga.id}" if scope == "saga:" else scope) == 1
    if stops:
        with kit.resume(saga.id):
            kit.charge("ann", 1)
        assert world() == ["charge ann 1"]


def test_a_halt_during_a_run_leaves_a_resumable_saga(make):
    """H-2: what stands stays, nothing is rolled back; lifted and resumed by key, it replays and goes on."""
    kit = make()

    def run():
        with kit.transaction("t", key="k") as saga:
            kit.charge("ann", 1)
            if not world()[1:] and not halted:
                halted.append(act(kit, "halt", "*", reason="fire"))
            kit.charge("bob", 2)
        return saga

    halted = []
    for _ in range(2):
        with pytest.raises(SagaSuspended, match=r"halt \*: fire"):
            run()
        assert world() == ["charge ann 1"]
    lift(kit, "*")
    assert run().report.outcome == "committed"
    assert world() == ["charge ann 1", "charge bob 2"]


def test_it_ends_by_itself(make, clock):
    """H-3: after its time a halt stops nothing, without anybody lifting it."""
    kit = make()
    act(kit, "halt", "*", reason="fire", ttl_s=60)
    with pytest.raises(SagaSuspended), kit.transaction("t"):
        kit.charge("ann", 1)
    clock.jump(61)
    with kit.transaction("t"):
        kit.charge("ann", 2)
    assert world() == ["charge ann 2"]


def test_a_halt_stops_no_compensation(make):
    """H-4: a rollback goes on under a halt."""
    kit = make()
    with pytest.raises(Stop), kit.transaction("t") as saga:
        kit.charge("ann", 1)
        act(kit, "halt", "*", reason="fire")
        raise Stop
    assert (saga.report.clean, world()) == (True, ["charge ann 1", "refund ann 1"])


def test_two_halts_need_two_lifts(make):
    """H-5: a saga covered by two scopes is free when both are lifted."""
    kit = make()
    act(kit, "halt", "*")
    act(kit, "halt", "tool:charge")
    for scope in ("*", "tool:charge"):
        with pytest.raises(SagaSuspended), kit.transaction("t"):
            kit.charge("ann", 1)
        lift(kit, scope)
    with kit.transaction("t"):
        kit.charge("ann", 1)


def test_drain_lets_in_no_new_saga(make):
    """H-6: new sagas are refused; what is open goes on, and what was suspended can be resumed and finished."""
    kit = make()
    with pytest.raises(SagaSuspended), kit.transaction("t", key="k"):
        kit.charge("ann", 1)
        raise SagaSuspended("later")
    with kit.transaction("u"):
        act(kit, "drain", "*", reason="deploy")
        kit.charge("bob", 1)
    for key in (None, "other"):
        with pytest.raises(GateRefused, match="deploy"), kit.transaction("v", key=key):
            raise AssertionError
    with kit.transaction("t", key="k"):
        kit.charge("ann", 1)
    lift(kit, "*")
    with kit.transaction("v"):
        kit.charge("cyd", 1)
    assert world() == ["charge ann 1", "charge bob 1", "charge cyd 1"]


def test_drain_by_tag(make):
    """H-7: a drained tag leaves others alone."""
    kit = make()
    act(kit, "drain", "tag:eu")
    with pytest.raises(GateRefused), kit.transaction("t", tags=["eu"]):
        raise AssertionError
    with kit.transaction("t", tags=["us"]):
        pass


@pytest.mark.parametrize("leaves", ["normally", "by exception", "by a call"])
def test_a_quarantine_freezes(make, leaves):
    """H-8: neither commit nor rollback, whichever way the scope ends, and the caller hears of it."""
    kit = make()
    with pytest.raises((SagaSuspended, Stop)) as told, kit.transaction("t", key="k") as saga:
        kit.charge("ann", 1)
        act(kit, "quarantine", f"saga:{saga.id}", reason="odd")
        if leaves == "by a call":
            kit.charge("ann", 2)
        if leaves == "by exception":
            raise Stop
    assert "odd" in str(told.value) + "".join(getattr(told.value, "__notes__", ()))
    assert (saga.report.outcome, world()) == ("suspended", ["charge ann 1"])
    for named in (None, saga.id):
        assert [one.action for one in drive(sweep(kit.writer(), saga_id=named))] == ["quarantined"]
    for again in (kit.transaction("t", key="k"), kit.resume(saga.id)):
        with pytest.raises(GateRefused, match="quarantined"), again:
            raise AssertionError
    assert world() == ["charge ann 1"]
    lift(kit, f"saga:{saga.id}")
    assert [one.action for one in drive(sweep(kit.writer(), saga_id=saga.id))] == ["recovered"]
    assert world() == ["charge ann 1", "refund ann 1"]


@pytest.mark.parametrize("where", ["inner", "innermost", "resumed"])
def test_a_nested_scope_has_tags_of_its_own(make, where):
    """H-17: a halt by tag, and policies, see the tags of the scope of a call and of those around it."""
    kit = make(Says(Allow()))
    act(kit, "halt", "tag:eu")
    with pytest.raises(SagaSuspended, match="tag:eu"), kit.transaction("t", tags=["shop"], key="k") as saga:
        kit.charge("ann", 1)
        with kit.transaction("inner", tags=["eu"]) as inner:
            assert inner.tags == ("shop", "eu")
            if where == "innermost":
                with kit.transaction("innermost", tags=["x"]) as innermost:
                    assert innermost.tags == ("shop", "eu", "x")
                    kit.charge("ann", 2)
            kit.charge("ann", 2)
    assert (saga.tags, world()) == (("shop",), ["charge ann 1"])
    assert load(kit.writer().store, saga.id).view.tags_of(1) == ("shop", "eu")
    if where == "resumed":
        with pytest.raises(SagaSuspended, match="tag:eu"), kit.resume(saga.id):
            kit.charge("ann", 1)
            with kit.transaction("inner"):  # Its tags are those that the log knows.
                kit.charge("ann", 2)
    lift(kit, "tag:eu")
    with kit.transaction("t", key="k"):
        kit.charge("ann", 1)
        with kit.transaction("inner", tags=["eu"]):
            kit.charge("ann", 2)
    assert world() == ["charge ann 1", "charge ann 2"]


@pytest.mark.parametrize("scope", ["", "x", "tool:", "tag", "saga: ", "tool:a\nb", "**", "tool:\u200b"])
@pytest.mark.parametrize("action", ["halt", "drain", "quarantine"])
def test_a_scope_that_stops_nothing_is_an_error(make, action, scope):
    """H-9: a mistyped halt is an error, not a halt of nothing."""
    kit = make()
    with pytest.raises(UsageError, match="no scope of"):
        act(kit, action, scope)


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf"), 1e12])
def test_a_time_that_is_none_is_an_error(make, ttl_s):
    """H-10: a halt that would be over at once, or that no clock can hold, is an error."""
    with pytest.raises(UsageError, match="seconds"):
        act(make(), "halt", "*", ttl_s=ttl_s)


def test_unreadable_means_halted(make, monkeypatch):
    """H-11: when the switch cannot be read, no effect starts, and no new saga opens."""
    kit = make()

    def broken():
        raise LogFailed("the disk is gone")

    store = kit.writer().store
    with pytest.raises(SagaSuspended, match="cannot be read"), kit.transaction("t"), monkeypatch.context() as patch:
        patch.setattr(store, "halts", broken)
        kit.charge("ann", 1)
    with monkeypatch.context() as patch:
        patch.setattr(store, "halts", broken)
        with pytest.raises(LogFailed), kit.transaction("t"):
            raise AssertionError
    assert world() == []


def test_every_stop_is_on_record(make):
    """H-12: the halt, the stop and the lift are records of the sagas concerned."""
    kit = make()
    halt = act(kit, "halt", "*", reason="fire")
    with pytest.raises(SagaSuspended), kit.transaction("t") as saga:
        kit.charge("ann", 1)
    lift(kit, "*")
    records = [record for _, record, _ in checked_records(kit.writer().store, saga.id)]
    (stop,) = [record for record in records if isinstance(record, r.Decided)]
    assert (stop.decision, stop.tool, "fire" in stop.reason) == ("halt", "charge", True)
    view = load(kit.writer().store, halt).view
    assert (view.gate.action.scope, view.gate.lifted, view.amended) == ("*", True, 3)
