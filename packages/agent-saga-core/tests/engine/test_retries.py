"""Retries: a call in doubt is settled before an equal one runs, and a declared retry is one step under one key."""

import asyncio

import pytest
from engine_world import PROBED, Lost, cannot_tell, make_remote, names, tool, unmake_if_there

from agent_saga import NotLanded, RollbackIncomplete
from agent_saga.errors import DeclarationError, StepInDoubt, UsageError


def test_a_retry_of_what_landed_replays_its_result(kit, world):
    """The second call gets the first one's result; one effect."""
    make = tool(kit, **PROBED)
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s") as saga:
        with pytest.raises(TimeoutError):
            make("a")
        assert make("a") == {"id": "a"}
        assert make("a") == {"id": "a"}  # Not a retry any more: a new step.
    assert world.count("do", "a") == 2
    assert len(saga.report.kept) == 2


def test_a_retry_of_what_did_not_land_runs_under_the_same_key(kit, world):
    """One step, two attempts, one key."""
    make = tool(kit, make_remote, name="remote", **PROBED)
    world.answers["a"] = NotLanded()
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s") as saga:
        with pytest.raises(TimeoutError):
            make("a")
        result = make("a")
    assert result["key"] == f"{saga.id}:1"
    assert len(saga.report.kept) == 1
    assert {key for op, _, key in world.attempts if op == "do"} == {f"{saga.id}:1"}


def test_an_unknowable_retry_is_refused(kit, world):
    """Never repeated: `retry` says so."""
    make = tool(kit, name="blind", probe=cannot_tell)
    world.script["after", "a"] = [TimeoutError()]
    with pytest.raises(RollbackIncomplete), kit.transaction("s"):
        with pytest.raises(TimeoutError):
            make("a")
        with pytest.raises(StepInDoubt) as refused:
            make("a")
        assert (refused.value.retry, refused.value.effect) == ("never", "unknown")
    assert world.count("do", "a") == 1


def test_a_tool_that_takes_the_key_is_run_again(kit, world):
    """Unknowable, but safe under the same key: at most one effect for each key."""
    make = tool(kit, make_remote, name="remote")
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s") as saga:
        with pytest.raises(TimeoutError):
            make("a")
        make("a")
    assert world.standing == {"a": 1}
    assert len(saga.report.kept) == 1


def test_a_failed_retry_does_not_settle_the_doubt_about_the_first_attempt(kit, world):
    """The first attempt may have landed whatever became of the second: never a false clean."""
    make = tool(kit, make_remote, name="remote")
    world.script["after", "a"] = [TimeoutError(), ConnectionRefusedError()]
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s"):
        for error in (TimeoutError, ConnectionRefusedError):
            with pytest.raises(error):
                make("a")
        raise Lost
    assert names(caught.value.report.in_doubt) == ["a"]
    assert world.standing == {"a": 1}


def test_a_step_settled_by_its_compensation_is_followed_by_a_new_one(kit, world):
    """A new key for the retry, because the old one is spent."""
    make = tool(
        kit,
        make_remote,
        name="remote",
        compensate=unmake_if_there.bind(thing="kwargs.thing"),
        key_param="idempotency_key",
    )
    world.script["after", "a"] = [ValueError()]
    with kit.transaction("s") as saga:
        with pytest.raises(ValueError):
            make("a")
        result = make("a")
    assert result["key"] == f"{saga.id}:2"
    assert (names(saga.report.compensated), names(saga.report.kept)) == (["a"], ["a"])
    assert world.standing == {"a": 1}


def test_parallel_retries_of_one_call_run_it_once(mem, world):
    """Two retries at once: one is the retry, the other a call of its own, and no key has two effects."""
    from engine_world import make_keyed

    async def remote(thing, idempotency_key):
        await asyncio.sleep(0)
        return make_keyed(thing, idempotency_key)

    make = mem.wrap(remote, **PROBED)
    world.answers["a"] = NotLanded()
    world.script["after", "a"] = [TimeoutError()]

    async def main():
        async with mem.transaction("s") as saga:
            with pytest.raises(TimeoutError):
                await make("a")
            world.keys.clear()
            await asyncio.gather(make("a"), make("a"), make("a"))
        return saga

    saga = asyncio.run(main())
    assert max(world.keys.values()) == 1
    assert len(saga.report.kept) == 3


# -- declared retries ------------------------------------------------------------------------------------------------


def test_a_declared_retry_needs_a_way_to_be_safe(mem):
    """Without a key or a probe, repeating a call in doubt may double its effect."""
    with pytest.raises(DeclarationError, match="key"):
        tool(mem, retry=2)


def test_a_declared_retry_runs_under_one_key(kit, world, skipping):
    """Each attempt is recorded, and the remote sees one request."""
    make = tool(kit, make_remote, name="remote", retry=2)
    world.script["after", "a"] = [TimeoutError(), ConnectionResetError()]
    with kit.transaction("s") as saga:
        make("a")
    assert world.standing == {"a": 1}
    assert world.count("do") == 3
    assert len(saga.report.kept) == 1


def test_a_declared_retry_that_finds_the_effect_replays_it(kit, world, skipping):
    """The probe says that it landed, so nothing runs again."""
    make = tool(kit, retry=3, **PROBED)
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s"):
        assert make("a") == {"id": "a"}
    assert world.count("do") == 1


def test_a_refusal_is_not_retried(kit, world):
    """What happened before the effect is no failure of the tool."""
    make = tool(kit, make_remote, name="remote", retry=3)
    with kit.transaction("s") as saga:
        saga.roll_back("stop")
        with pytest.raises(UsageError):
            make("a")
    assert world.attempts == []
