"""Calls that still run when their saga ends or is suspended, what a replaced owner may do, and what is owned."""

import asyncio
import json
import threading

import pytest
from engine_world import guarded, look, make, names, on_store, successor, tool, unmake

from agent_saga import AgentKit, SagaSuspended
from agent_saga.errors import OwnerReplaced, SagaClosed, UnboundCompensation
from agent_saga.runtime.ending import release
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import recover_one
from agent_saga.store.memory import MemoryLog


def kinds(kit):
    return [json.loads(stored.body)["kind"] for stored in kit.writer().store.tail()]


def running_at_the_end(kit, leave):
    """A scope that ends while a task of it is inside a call, which returns a moment later."""

    async def main():
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(thing):
            begun.set()
            await go_on.wait()
            return make(thing)

        step, scope = tool(kit, slow), kit.transaction("s")
        try:
            async with scope as saga:
                beside = asyncio.create_task(step("a"))
                await begun.wait()
                asyncio.get_running_loop().call_later(0.02, go_on.set)
                leave()
        finally:
            assert beside.done() or saga.report is not None
            await beside
        return saga.report

    return asyncio.run(main())


def test_a_commit_waits_for_the_calls_of_its_scope(kit, world):
    """The answer of a call that still runs belongs to the saga: it commits with it."""
    report = running_at_the_end(kit, lambda: None)
    assert (report.outcome, names(report.kept)) == ("committed", ["a"])
    assert kinds(kit)[-2:] == ["outcome", "saga_ended"]


def test_a_suspension_waits_for_the_calls_of_its_saga(kit, world):
    """Whoever resumes it finds what the call did, and no step in doubt."""

    def suspend():
        raise SagaSuspended("wait")

    with pytest.raises(SagaSuspended):
        running_at_the_end(kit, suspend)
    assert kinds(kit)[-2:] == ["outcome", "suspended"]


def test_an_orphan_ends_what_a_saga_accepts(kit, world):
    """What stands without a compensation cannot be taken back: no effect more, whatever the program catches."""
    lost = tool(kit, name="lost", compensate=unmake.bind(thing="result.nowhere"))
    make_ = tool(kit)
    read = kit.wrap(look, effect="read_only")
    with pytest.raises(Exception, match="partial|only in part"), kit.transaction("s"):
        with pytest.raises(UnboundCompensation):
            lost("a")
        for refused in (make_, read):
            with pytest.raises(SagaClosed, match="going to roll back"):
                refused("b")
    assert world.standing == {"a": 1}


def replaced(world):
    """A kit in a saga that another process has claimed: the memory log of a dead process, as its successor sees it."""
    kit = on_store(MemoryLog())
    scope = kit.transaction("s")
    saga = scope.__enter__()
    tool(kit)("a")
    drive(recover_one(successor(kit).writer(), saga.id))
    return kit, scope


def test_a_replaced_owner_starts_nothing_more(world):
    """The first append tells it; from then on not even a reading tool runs for the saga."""
    kit, scope = replaced(world)
    make_, read = tool(kit), kit.wrap(look, effect="read_only")
    with pytest.raises(OwnerReplaced):
        make_("b")
    before = list(world.order)
    with pytest.raises(OwnerReplaced, match="did not run"):
        read("b")
    with pytest.raises(OwnerReplaced, match="did not run"):
        make_("c")
    with pytest.raises(OwnerReplaced):
        scope.__exit__(None, None, None)
    assert (world.order, world.standing) == (before, {})


def test_a_living_owner_is_left_alone(kit, world):
    """Recovery by name claims nothing from a process that lives."""
    with kit.transaction("s") as saga:
        tool(kit)("a")
        kit.writer().flush()
        before = kinds(kit)
        with pytest.raises(OwnerReplaced, match="its owner lives"):
            drive(recover_one(kit.writer(), saga.id))
        assert kinds(kit) == before
    assert world.standing == {"a": 1}


def test_a_step_that_its_scope_left_is_no_answer_to_the_call_repeated(world):
    """What a rolled-back scope could not take back stands, and is not what a later call is answered with."""
    kit = AgentKit("memory:", approver=lambda _: True)
    charge = guarded(kit, compensate=None, effect="irreversible")
    again = {"call_id": "c1", "scope": "run"}
    with kit.transaction("s") as saga:
        with pytest.raises(Exception, match="part"), kit.transaction("inner"):
            charge("a", **again)
            raise ValueError
        charge("a", **again)
    assert world.standing == {"a": 2}
    assert [step.step_id[-2:] for step in saga.report.kept] == [":2"]


def test_a_call_given_up_is_released_when_it_lands(kit, world):
    """A scope that is lost while a call runs keeps its saga until the call has ended: nobody settles it meanwhile."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(thing):
        begun.set()
        assert go_on.wait(10)
        return make(thing)

    step = tool(kit, slow)
    scope = kit.transaction("s")
    saga = scope.__enter__()
    worker = threading.Thread(target=saga.bind(step), args=("a",))
    worker.start()
    assert begun.wait(10)
    release(saga.live, "lost")
    assert "abandoned" not in kinds(kit)
    go_on.set()
    worker.join()
    kit.writer().flush()
    assert kinds(kit)[-2:] == ["outcome", "abandoned"]
    with pytest.raises(Exception, match="abandoned"):
        scope.__exit__(None, None, None)
