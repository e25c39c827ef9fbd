"""Answers that come after their saga gave the call up."""

import asyncio
import contextlib
import json
import threading

import pytest
from engine_world import WORLD, Lost, names, tool, unmake_keyed

from agent_saga import RollbackIncomplete, spi
from agent_saga.runtime import late
from agent_saga.runtime.ops import drive
from agent_saga.store.reader import load


class Gate:
    """Holds a tool up until the test lets it go on, and tells when it is through."""

    def __init__(self):
        self.inside, self.go, self.through = threading.Event(), threading.Event(), threading.Event()


@pytest.fixture
def gate(world):
    world.gate = Gate()
    yield world.gate
    world.gate.go.set()


def slow(thing):
    WORLD.gate.inside.set()
    assert WORLD.gate.go.wait(30)
    WORLD.do(thing)
    failure = WORLD.next_of("after", thing)
    if failure is not None:
        raise failure
    return {"id": thing}


def settled(kit, saga, state):
    """Wait until the saga's only step is in a state, by its log."""
    waiting = threading.Event()
    for _ in range(2000):
        loaded = load(kit.writer().store, saga.id)
        if loaded is not None and loaded.view.steps[1].state.value == state and loaded.row.row.sealed:
            return loaded
        waiting.wait(0.005)
    raise AssertionError(f"never {state}")


def test_an_answer_after_the_timeout_but_within_the_drain_is_known(kit, world, gate):
    """The thread outlives the timeout; the rollback waits for it, and compensates what it did."""
    make = tool(kit, slow, timeout_s=0.05)
    with pytest.raises(TimeoutError), kit.transaction("s") as saga:
        try:
            make("a")
        finally:
            gate.go.set()
    assert saga.report.clean
    assert world.standing == {}


def test_a_call_that_still_runs_is_never_compensated(kit, world, gate):
    """After the drain it is in doubt; when it lands at last, it is recorded and compensated at once."""
    make = tool(kit, slow, timeout_s=0.05, compensate=unmake_keyed.bind(thing="kwargs.thing"))
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s", drain_s=0.05) as saga:
        make("a")
    assert names(caught.value.report.in_doubt) == ["a"]
    assert world.attempts == []
    gate.go.set()
    loaded = settled(kit, saga, "compensated")
    assert loaded.view.steps[1].compensation_attempts == 1
    assert world.order == ["do a", "undo a"]
    assert world.standing == {}


def test_a_late_failure_settles_the_doubt_without_claiming_too_much(kit, world, gate):
    """It failed after all: nothing to compensate; by the table only, so assumed."""
    make = tool(kit, slow, timeout_s=0.05)
    world.script["after", "a"] = [ValueError("no")]
    with pytest.raises(RollbackIncomplete), kit.transaction("s", drain_s=0.05) as saga:
        make("a")
    gate.go.set()
    loaded = settled(kit, saga, "absent")
    assert loaded.view.steps[1].assumed


def test_a_retry_waits_for_the_call_that_still_runs(kit, world, gate):
    """It gets that call's result: one effect."""
    make = tool(kit, slow, timeout_s=0.05)
    with kit.transaction("s") as saga:
        with pytest.raises(TimeoutError):
            make("a")
        threading.Timer(0.05, gate.go.set).start()
        assert make("a") == {"id": "a"}
    assert world.count("do") == 1
    assert names(saga.report.kept) == ["a"]


def test_a_thread_that_outlives_its_cancelled_task_is_not_lost(kit, world, gate):
    """asyncio.to_thread is cancelled, its thread commits later: compensated, never a false clean."""
    make = tool(kit, slow)

    async def main():
        async with kit.transaction("s", drain_s=0.05) as saga:
            sagas.append(saga)
            task = asyncio.create_task(asyncio.to_thread(make, "a"))
            await asyncio.to_thread(gate.inside.wait)
            task.cancel()
            await task

    sagas = []
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(main())
        assert names(sagas[0].report.in_doubt) == ["a"]
        gate.go.set()
        settled(kit, sagas[0], "compensated")
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
    assert world.standing == {}


def test_an_answer_in_a_loop_that_ends_with_it_is_not_lost(kit, world, gate):
    """A framework runs an async tool with `asyncio.run` in a thread: what lands late there is compensated too."""

    async def aslow(thing):
        return slow(thing)

    make = tool(kit, aslow, compensate=unmake_keyed.bind(thing="kwargs.thing"))

    async def main():
        async with kit.transaction("s", drain_s=0.05) as saga:
            sagas.append(saga)
            threading.Thread(target=saga.bind(lambda: asyncio.run(make("a")))).start()
            assert await asyncio.to_thread(gate.inside.wait, 30)
            raise Lost

    sagas = []
    with pytest.raises(RollbackIncomplete):
        asyncio.run(main())
    gate.go.set()
    settled(kit, sagas[0], "compensated")
    assert world.order == ["do a", "undo a"]


def test_a_landing_in_a_rolled_back_scope_of_an_open_saga_is_compensated_at_once(kit, world, gate):
    """The saga goes on without it, and commits."""
    make, other = tool(kit, slow, timeout_s=0.05), tool(kit)
    with kit.transaction("outer") as saga:
        with pytest.raises(RollbackIncomplete), kit.transaction("inner", drain_s=0.05):
            make("a")
        gate.go.set()
        flight = saga.live.flights.get(1)
        if flight is not None:
            flight.done.result(10)
        other("b")
    assert saga.report.outcome == "committed"
    assert names(saga.report.kept) == ["b"]
    assert names(saga.report.compensated) == ["a"]
    assert world.standing == {"b": 1}


def test_a_guarded_call_that_comes_back_late_is_compensated(kit, world, gate):
    """A framework's worker thread answers when the saga has ended."""
    kit.declare("slow", effect="compensable", compensate=unmake_keyed.bind(thing="kwargs.thing"))

    def work():
        return spi.guard("slow", {"thing": "a"}, lambda kwargs: slow(**kwargs), adapter="x", kit=kit)

    with pytest.raises(RollbackIncomplete), kit.transaction("s", drain_s=0.05) as saga:
        thread = threading.Thread(target=saga.bind(work))
        thread.start()
        gate.inside.wait()
        raise Lost
    gate.go.set()
    thread.join(10)
    settled(kit, saga, "compensated")
    assert world.standing == {}


def test_a_late_answer_after_a_human_settled_is_an_amendment(kit, world, gate):
    """Sealed on a human's word that it did not happen; then it lands: recorded beside, compensated, and reported."""
    from agent_saga.machine.report import report_of
    from agent_saga.runtime.verdict import settle_by_hand

    make = tool(kit, slow, timeout_s=0.05)
    with pytest.raises(RollbackIncomplete), kit.transaction("s", drain_s=0.05) as saga:
        make("a")
    settle_by_hand(kit.writer(), saga.id, 1, "did-not-happen", evidence="looked", by="me")
    gate.go.set()
    loaded = settled(kit, saga, "compensated")
    assert loaded.row.amendments > 0
    assert names(report_of(loaded.view).compensated) == ["a"]
    assert world.standing == {}


def test_an_answer_in_a_loop_that_ends_at_once_reaches_the_log(kit, world):
    """The loop cancels the task that settles it; a thread of ours goes on."""
    from engine_world import aunmake

    done = threading.Event()

    async def slowly(thing):
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            WORLD.do(thing)
            done.set()
            return {"id": thing}

    make = tool(kit, slowly, compensate=aunmake.bind(thing="kwargs.thing"))

    async def main():
        with pytest.raises(RollbackIncomplete):
            async with kit.transaction("s", drain_s=0.0) as saga:
                sagas.append(saga)
                tasks.append(asyncio.create_task(make("a")))
                await started.wait()
                raise Lost

    sagas, tasks, started = [], [], asyncio.Event()
    asyncio.run(main())
    assert done.wait(10)
    settled(kit, sagas[0], "compensated")
    assert world.standing == {}


@pytest.mark.parametrize("steps", range(8))
def test_an_interrupted_answer_is_recorded_once(kit, world, steps):
    """A loop that ends may cancel a settlement at any operation; whoever goes on with it records nothing twice."""
    make = tool(kit, compensate=unmake_keyed.bind(thing="result.id"))
    world.script["after", "a"] = [TimeoutError()]
    with pytest.raises(RollbackIncomplete), kit.transaction("s") as saga:
        make("a")
    values = {"result": '{"id":"a"}', "compensation.thing": '"a"'}
    answer = late._Answer(saga.live, 1, values, {"state": "succeeded", "bound": True, "exact": True})
    engine, sent = late._after_end(answer), None
    with contextlib.suppress(StopIteration):
        for _ in range(steps):
            sent = drive(one(engine.send(sent)))
    engine.close()
    drive(late._after_end(answer))
    kinds = [json.loads(record.body)["kind"] for record in kit.writer().store.tail()]
    assert (kinds.count("late_outcome"), world.standing) == (1, {})  # A repeated undo has the key of the first.
    assert load(kit.writer().store, saga.id).row.row.sealed


def one(operation):
    """An engine of a single operation."""
    return (yield operation)
