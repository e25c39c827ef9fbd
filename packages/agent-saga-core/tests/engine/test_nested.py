"""Nested scopes: savepoints of the outer saga, whatever ends first."""

import asyncio

import pytest
from engine_world import Lost, Odd, guarded, names, tool

from agent_saga import RollbackIncomplete, SagaRolledBack
from agent_saga.errors import SagaClosed, UsageError


def test_an_inner_rollback_compensates_only_its_own_steps(kit, world):
    """Inner rollback compensates the inner steps; the outer saga goes on and commits the rest."""
    make = tool(kit)
    with kit.transaction("outer") as outer:
        make("a")
        with pytest.raises(Lost), kit.transaction("inner") as inner:
            make("b")
            raise Lost
        make("c")
    assert world.standing == {"a": 1, "c": 1}
    assert (inner.report.clean, names(inner.report.compensated), inner.report.kept) == (True, ["b"], ())
    assert (names(outer.report.kept), names(outer.report.compensated)) == (["a", "c"], ["b"])


def test_an_outer_rollback_compensates_both_in_reverse_order(kit, world):
    """A committed inner scope is a part of the outer saga, whose rollback takes it back too."""
    make = tool(kit)
    with pytest.raises(Lost), kit.transaction("outer") as outer:
        make("a")
        with kit.transaction("inner") as inner:
            make("b")
        make("c")
        raise Lost
    assert world.order[3:] == ["undo c", "undo b", "undo a"]
    assert inner.report.outcome == "committed"
    assert outer.report.clean


def test_an_independent_scope_is_a_saga_of_its_own(kit, world):
    """The rollback of the saga around it leaves an independent saga alone."""
    make = tool(kit)
    with pytest.raises(Lost), kit.transaction("outer") as outer:
        make("a")
        with kit.transaction("audit", independent=True) as other:
            make("b")
        raise Lost
    assert other.id != outer.id
    assert world.standing == {"b": 1}


def test_another_log_inside_a_saga_is_refused(kit, mem, world):
    """A different log inside a saga is a usage error unless it is independent."""
    with kit.transaction("outer"):
        with pytest.raises(UsageError, match="independent"), mem.transaction("inner"):
            pass
        with mem.transaction("inner", independent=True) as inner:
            tool(mem)("x")
    assert inner.report.outcome == "committed"


@pytest.mark.parametrize("option", [{"key": "k"}, {"deadline_s": 5.0}])
def test_what_only_a_whole_saga_can_have_is_refused_on_a_scope(kit, option):
    """A savepoint has no key and no deadline of its own: neither is dropped in silence."""
    with kit.transaction("outer"), pytest.raises(UsageError), kit.transaction("inner", **option):
        pass


def test_a_failure_in_a_rolled_back_scope_does_not_count_against_the_outer_saga(kit, world):
    """The inner rollback dealt with the swallowed error; the caller that catches it goes on."""
    call = guarded(kit)
    with kit.transaction("outer") as outer:
        with pytest.raises(SagaRolledBack), kit.transaction("inner"):
            world.script["before", "a"] = [ValueError("no")]
            with pytest.raises(ValueError):
                call("a")
        call("b")
    assert outer.report.outcome == "committed"
    assert world.standing == {"b": 1}


def test_a_scope_that_fails_while_the_saga_around_it_rolls_back_leaves_the_work_to_it(mem, world):
    """gather: one sibling fails, the saga rolls back, and a nested scope of another sibling ends meanwhile."""
    make = tool(mem)
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def sibling():
        async with mem.transaction("inner") as inner:
            make("b")
            inside.set()
            await go_on.wait()
            make("too late")
        return inner

    async def main():
        with pytest.raises(Lost):
            async with mem.transaction("outer") as outer:
                make("a")
                task = asyncio.create_task(sibling())
                await inside.wait()
                raise Lost
        go_on.set()
        with pytest.raises(SagaClosed):
            await task
        return outer

    outer = asyncio.run(main())
    assert outer.report.clean
    assert world.standing == {}
    assert world.count("undo", "b") == 1


def test_rollbacks_of_an_inner_and_the_outer_scope_at_once_compensate_each_step_once(mem, world):
    """Both walk over the same step; one compensates it, the other waits for that."""
    started, finish = asyncio.Event(), asyncio.Event()
    make = tool(mem, compensate=Odd.slow(started, finish))

    async def sibling():
        async with mem.transaction("inner"):
            make("b")
            raise Lost

    async def main():
        with pytest.raises(Lost):
            async with mem.transaction("outer") as outer:
                task = asyncio.create_task(sibling())
                await started.wait()
                asyncio.get_running_loop().call_later(0.05, finish.set)
                raise Lost
        with pytest.raises(Lost):
            await task
        return outer

    outer = asyncio.run(main())
    assert outer.report.clean
    assert world.count("undo", "b") == 1


def test_a_saga_does_not_commit_around_a_scope_that_is_still_open(mem, world):
    """Whether the inner work is to stay is not decided yet, so the outer saga rolls back and says so."""
    make = tool(mem)
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def straggler():
        async with mem.transaction("inner"):
            make("b")
            inside.set()
            await go_on.wait()

    async def main():
        with pytest.raises(SagaRolledBack, match="still open"):
            async with mem.transaction("outer") as outer:
                task = asyncio.create_task(straggler())
                await inside.wait()
        go_on.set()
        with pytest.raises(SagaClosed):
            await task
        return outer

    assert asyncio.run(main()).report.clean
    assert world.standing == {}


def test_a_retry_in_a_new_scope_never_replays_a_step_whose_scope_was_rolled_back(kit, world):
    """It is compensated first, and the call is a new step."""
    make = tool(kit, probe=Odd.probe)
    world.answers["a"] = [Odd.UNKNOWN]
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("outer") as outer:
        with pytest.raises(RollbackIncomplete), kit.transaction("first"):
            make("a")
        world.answers.clear()
        with kit.transaction("second"):
            make("a")
    assert world.standing == {"a": 1}
    assert names(outer.report.kept) == ["a"]
    assert world.count("undo", "a") == 1


def test_a_scope_is_not_entered_twice_at_once(mem):
    """One transaction object is one scope at a time."""
    scope = mem.transaction("once")
    with scope, pytest.raises(UsageError, match="entered"), scope:
        pass
