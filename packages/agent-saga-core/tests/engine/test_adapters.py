"""Calls through `spi.guard`: swallowed errors, repeats, call ids, pauses, joined guards."""

import threading

import pytest
from engine_world import WORLD, guarded, make, names, unmake_if_there

from agent_saga import AgentKit, SagaRolledBack, spi
from agent_saga.errors import UndeclaredTool
from agent_saga.model.effects import Allow, Refuse


class Pause(Exception):
    """A framework's own pause."""


def is_pause(error):
    return isinstance(error, Pause)


def swallow(call, *args, **options):
    """What a framework does with an error: text for the model."""
    try:
        return call(*args, **options)
    except Exception as error:
        return str(error)


def test_a_swallowed_error_rolls_back(kit, world):
    """The scope ends normally, and the failure was never repaired: the message names it and the ways out."""
    call = guarded(kit)
    world.script["before", "b"] = [ValueError("no such customer")]
    with pytest.raises(SagaRolledBack, match="waive") as caught, kit.transaction("s"):
        call("a")
        swallow(call, "b")
    assert caught.value.report.clean
    assert world.standing == {}


def test_a_repaired_failure_does_not(kit, world):
    """The model calls again with the same arguments and succeeds."""
    call = guarded(kit)
    world.script["before", "b"] = [ValueError("try again")]
    with kit.transaction("s") as saga:
        swallow(call, "b")
        swallow(call, "b")
    assert names(saga.report.kept) == ["b"]


def test_other_arguments_repair_only_with_same_tool(kit, world):
    """`resolves="same_tool"` is for tools whose arguments a model is expected to change."""
    world.script["before", "b"] = [ValueError("no"), ValueError("no")]
    call, lenient = guarded(kit), guarded(kit, "lenient", resolves="same_tool")
    with pytest.raises(SagaRolledBack), kit.transaction("s"):
        swallow(call, "b")
        swallow(call, "c")
    with kit.transaction("s"):
        swallow(lenient, "b")
        swallow(lenient, "c")
    assert world.standing == {"c": 1}


def test_a_success_whose_intent_came_before_the_failure_does_not_repair_it(mem, world):
    """Of two equal parallel calls one fails after the other began: nothing was repaired."""
    call = guarded(mem)
    inside, go_on = threading.Event(), threading.Event()

    def slow(thing):
        inside.set()
        assert go_on.wait(10)
        return make(thing)

    with pytest.raises(SagaRolledBack, match="swallowed"), mem.transaction("s") as saga:
        thread = threading.Thread(target=saga.bind(lambda: call("a", fn=slow)))
        thread.start()
        inside.wait()
        world.script["before", "a"] = [ValueError("no")]
        swallow(call, "a")
        go_on.set()
        thread.join(10)
    assert world.standing == {}


def test_a_waived_failure_does_not_count(kit, world):
    """`saga.waive` takes the step's number, id or report."""
    call = guarded(kit)
    for how in (lambda saga: 1, lambda saga: f"{saga.id}:1", lambda saga: saga.steps()[0]):
        world.script["before", "b"] = [ValueError("no")]
        with kit.transaction("s") as saga:
            swallow(call, "b")
            saga.waive(how(saga))
        assert saga.report.outcome == "committed"


def test_a_call_settled_by_its_compensation_is_still_a_failure_that_was_swallowed(kit, world):
    """The model was told that it failed, and never repaired it."""
    call = guarded(kit, compensate=unmake_if_there.bind(thing="kwargs.thing"))
    world.script["after", "b"] = [ValueError("lost")]
    with pytest.raises(SagaRolledBack, match="swallowed") as caught, kit.transaction("s"):
        swallow(call, "b")
    assert caught.value.report.clean
    assert world.standing == {}


def test_an_error_shaped_result_counts_as_an_error(kit, world):
    """And is handed on unchanged; an `is_error` that fails shows nothing."""
    call = guarded(kit)

    def is_error(result):
        return result["id"] == "bad"

    with pytest.raises(SagaRolledBack), kit.transaction("s"):
        assert call("bad", is_error=is_error) == {"id": "bad"}
    with kit.transaction("s") as saga:
        assert call("good", is_error=lambda result: 1 / 0) == {"id": "good"}
    assert names(saga.report.kept) == ["good"]


def test_a_refusal_is_no_failure(world):
    """Nothing happened, so nothing is unresolved."""

    class No:
        def decide(self, call, saga):
            return Refuse("not today")

    kit = AgentKit("memory:", policies=[No()])
    call = guarded(kit)
    with kit.transaction("s") as saga:
        assert "not today" in swallow(call, "a")
    assert (saga.report.outcome, world.attempts) == ("committed", [])


def test_an_undeclared_tool_is_refused_with_the_line_that_declares_it(kit, world):
    """Before anything happens."""
    with kit.transaction("s"), pytest.raises(UndeclaredTool, match=r"kit.declare\('mystery'"):
        spi.guard("mystery", {}, lambda kwargs: WORLD.do("x"), adapter="x", kit=kit)
    with pytest.raises(UndeclaredTool, match="'one'"):
        kit.require_declared(["one", "two"])
    kit.declare_read_only("get_*")
    with kit.transaction("s"):
        assert spi.guard("get_x", {}, lambda kwargs: 5, adapter="x", kit=kit) == 5
    assert world.attempts == []


@pytest.mark.parametrize("scope", [None, "task-1"])
def test_a_repeated_unit_of_work_replays_by_identity_and_occurrence(kit, world, scope):
    """attempt > 0: what stands of the unit answers, each step once for each attempt; the rest runs."""
    call = guarded(kit)
    with kit.transaction("s") as saga:
        call("a", scope=scope)
        call("a", scope=scope)
        for attempt in (1, 2):
            call("a", scope=scope, attempt=attempt)
            call("a", scope=scope, attempt=attempt)
        assert world.standing == {"a": 2}
        call("a", scope=scope, attempt=2)
        call("a", scope="elsewhere", attempt=1)
    assert world.standing == {"a": 4}
    assert len(saga.report.kept) == 4


def test_a_repeat_of_a_call_that_still_runs_joins_it(mem, world):
    """The framework gave the first dispatch up and sends it again while it is alive: one effect."""
    call = guarded(mem)
    inside, go_on = threading.Event(), threading.Event()

    def slow(thing):
        inside.set()
        assert go_on.wait(10)
        return make(thing)

    with mem.transaction("s") as saga:
        thread = threading.Thread(target=saga.bind(lambda: call("a", fn=slow, scope="t")))
        thread.start()
        inside.wait()
        threading.Timer(0.05, go_on.set).start()
        assert call("a", scope="t", attempt=1) == {"id": "a"}
        thread.join(10)
    assert world.count("do") == 1


def test_a_call_id_replays_only_where_it_is_unique(kit, world):
    """The same id elsewhere, or without a scope, is a new step."""
    call = guarded(kit)
    with kit.transaction("s"):
        call("a", call_id="1", scope="thread-1")
        call("a", call_id="1", scope="thread-1")
        assert world.standing == {"a": 1}
        call("a", call_id="1", scope="thread-2")
        call("a", call_id="1")
        call("a", call_id="1")
        call("b", call_id="1", scope="thread-1")
    assert world.standing == {"a": 4, "b": 1}


def test_any_other_equal_call_is_a_new_step(kit, world):
    """Equal arguments alone do not make two calls one."""
    call = guarded(kit)
    with kit.transaction("s") as saga:
        call("a")
        call("a")
    assert len(saga.report.kept) == 2


@pytest.mark.parametrize("leaves", [False, True])
def test_a_pause_suspends_and_is_no_failure(kit, world, leaves):
    """Whether the framework swallows its pause or lets it leave the scope, the saga waits for the resume."""
    call = guarded(kit)
    world.script["before", "b"] = [Pause("ask a human")]

    def run():
        with kit.transaction("s", key="k") as saga:
            sagas.append(saga)
            call("a")
            try:
                call("b", is_pause=is_pause)
            except Pause:
                if leaves:
                    raise

    sagas = []
    if leaves:
        with pytest.raises(Pause):
            run()
    else:
        run()
    assert sagas[0].report.outcome == "suspended"
    run()
    assert sagas[1].report.outcome == "committed"
    assert world.standing == {"a": 1, "b": 1}


@pytest.mark.parametrize("scope", ["run", None])
def test_one_call_that_is_dispatched_twice_side_by_side(kit, world, scope):
    """Both pass a gate that takes its time before either has begun: with one id in one scope they are one effect."""
    both = threading.Barrier(2)
    told, failed = [], []

    class Slow:
        def decide(self, call, saga):
            both.wait(10)
            return Allow()

    call = guarded(kit)
    with kit.transaction("s", policies=[Slow()]) as saga:

        def dispatch():
            try:
                told.append(call("a", call_id="1", scope=scope))
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=saga.bind(dispatch)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert (failed, len(told)) == ([], 2)
    assert world.standing == {"a": 1 if scope else 2}
