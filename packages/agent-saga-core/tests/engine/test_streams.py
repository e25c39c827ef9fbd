"""Generators and streams: one step each, however they end."""

import asyncio
import gc

import pytest
from engine_world import UNMAKE, WORLD, Lost, names, tool, unmake

from agent_saga import RollbackIncomplete, SagaRolledBack, current_step
from agent_saga.errors import DeclarationError, SagaClosed


def trickle(thing):
    WORLD.do(thing)
    try:
        for number in range(3):
            failure = WORLD.next_of("item", thing)
            if failure is not None:
                raise failure
            yield (number, current_step().key if current_step() else None)
    finally:
        failure = WORLD.next_of("close", thing)
        if failure is not None:
            raise failure
    return {"id": thing}


async def atrickle(thing):
    WORLD.do(thing)
    for number in range(3):
        failure = WORLD.next_of("item", thing)
        if failure is not None:
            raise failure
        yield number
        gate = WORLD.answers.get("gate")
        if gate is not None:
            WORLD.answers["inside"].set()
            await gate.wait()


def test_an_exhausted_stream_is_a_success(kit, world):
    """Intent before the first item, success at the end; the body sees its step."""
    stream = tool(kit, trickle)
    with kit.transaction("s") as saga:
        running = stream("a")
        assert world.attempts == []
        items = list(running)
    assert [number for number, _ in items] == [0, 1, 2]
    assert {key for _, key in items} == {f"{saga.id}:1"}
    assert names(saga.report.kept) == ["a"]


def test_the_result_of_a_stream_binds_its_compensation(kit, world):
    """What a generator returns is its result."""
    stream = tool(kit, trickle, compensate=unmake.bind(thing="result.id"))
    with pytest.raises(Lost), kit.transaction("s") as saga:
        list(stream("a"))
        raise Lost
    assert saga.report.clean
    assert world.standing == {}


def test_a_stream_that_nobody_began_is_no_step(kit, world):
    """Before the first item nothing has happened, so there is nothing to compensate."""
    stream = tool(kit, trickle)
    with kit.transaction("s") as saga:
        stream("a")
        stream("b").close()
    assert (world.attempts, saga.report.kept) == ([], ())


def test_a_stream_closed_early_in_a_good_saga_stays(kit, world):
    """It succeeded in part."""
    stream = tool(kit, trickle)
    with kit.transaction("s") as saga:
        running = stream("a")
        next(running)
        running.close()
    assert names(saga.report.kept) == ["a"]


@pytest.mark.parametrize("dropped", [False, True])
def test_rollback_closes_open_streams_and_compensates_them(kit, world, dropped):
    """A stream that was left open, or dropped and collected, is closed by the rollback."""
    stream = tool(kit, trickle)
    with pytest.raises(Lost), kit.transaction("s") as saga:
        running = stream("a")
        next(running)
        if dropped:
            del running
            gc.collect()
        raise Lost
    assert saga.report.clean
    assert world.standing == {}


def test_a_stream_that_fails_before_its_first_item_is_judged_by_the_table(kit, world):
    """As any call: assumed absent."""
    stream = tool(kit, trickle)
    world.script["item", "a"] = [ValueError("no")]
    with pytest.raises(ValueError), kit.transaction("s") as saga:
        list(stream("a"))
    assert names(saga.report.assumed_absent) == ["a"]
    assert not saga.report.verified


@pytest.mark.parametrize("where", ["item", "close"])
def test_a_stream_that_fails_after_an_item_is_in_doubt(kit, world, where):
    """Items were delivered, so nobody can assume that nothing happened: never a false clean."""
    stream = tool(kit, trickle)
    world.script[where, "a"] = [None, ValueError("half way")] if where == "item" else [ValueError("half way")]
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s"):
        running = stream("a")
        next(running)
        next(running) if where == "item" else running.close()
    assert names(caught.value.report.in_doubt) == ["a"]


def test_an_async_stream_is_one_step(kit, world):
    """Exhausted, closed early and left open: all compensated when the saga fails."""
    stream = tool(kit, atrickle)

    async def main():
        with pytest.raises(Lost):
            async with kit.transaction("s") as saga:
                assert [number async for number in stream("a")] == [0, 1, 2]
                early = stream("b")
                await anext(early)
                await early.aclose()
                left = stream("c")
                await anext(left)
                raise Lost
        return saga

    report = asyncio.run(main()).report
    assert report.clean
    assert names(report.compensated) == ["a", "b", "c"]
    assert world.standing == {}


def test_a_stream_that_runs_in_another_task_is_in_doubt_when_it_cannot_be_closed(mem, world):
    """Closing it fails because it runs: that says nothing about its effect."""
    stream = tool(mem, atrickle)

    async def consume():
        async for _ in stream("a"):
            pass

    async def main():
        world.answers["gate"], world.answers["inside"] = asyncio.Event(), asyncio.Event()
        with pytest.raises(RollbackIncomplete):
            async with mem.transaction("s", drain_s=0.05) as saga:
                task = asyncio.create_task(consume())
                await world.answers["inside"].wait()
                raise Lost
        in_doubt = names(saga.report.in_doubt)
        world.answers["gate"].set()
        await task
        return in_doubt

    assert asyncio.run(main()) == ["a"]


def test_a_stream_begun_after_the_saga_is_refused(kit, world):
    """Its first item would be an effect of a closed saga."""
    stream = tool(kit, trickle)
    with kit.transaction("s"):
        running = stream("a")
    with pytest.raises(SagaClosed):
        next(running)
    assert world.attempts == []


def test_a_stream_whose_compensation_cannot_be_bound_is_an_orphan(kit, world):
    """Closed early it returned nothing, and the path leads nowhere: said at once, and never clean."""
    stream = tool(kit, trickle, compensate=unmake.bind(thing="result.id"))
    with pytest.raises(SagaRolledBack) as caught, kit.transaction("s"):
        running = stream("a")
        next(running)
    assert isinstance(caught.value, RollbackIncomplete)
    assert names(caught.value.report.orphaned) == ["a"]


@pytest.mark.parametrize("option", [{"timeout_s": 1.0}, {"retry": 1, "probe": "p"}])
def test_what_a_stream_cannot_have_is_refused_at_declaration(mem, option):
    """A timeout or a retry of a generator would be dropped in silence."""
    with pytest.raises(DeclarationError):
        mem.wrap(trickle, **UNMAKE, **option)


def test_a_decorated_generator_is_refused(mem):
    """Its body would run after the saga has ended."""
    from agent_saga.errors import UsageError

    with pytest.raises(UsageError, match="generator"):
        mem.transaction("s")(trickle)
