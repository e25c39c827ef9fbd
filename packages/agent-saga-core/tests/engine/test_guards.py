"""Guards and kits: what joins, what runs bare, and whose rules count."""

import asyncio

import pytest
from engine_world import Lost, guarded, make, tool, unmake_if_there

from agent_saga import AgentKit, spi
from agent_saga.errors import NoSaga, RollbackIncomplete
from agent_saga.model.effects import Refuse


def swallow(call, *args, **options):
    """What a framework does with an error: text for the model."""
    try:
        return call(*args, **options)
    except Exception as error:
        return str(error)


def test_nested_guards_of_one_effect_join(kit, world):
    """A wrapped tool that an adapter guards too, and a guard in a guard: one step."""
    wrapped = tool(kit)
    with kit.transaction("s") as saga:
        spi.guard("make", {"thing": "a"}, lambda kwargs: wrapped(**kwargs), adapter="x", kit=kit)
        spi.guard(
            "make",
            {"thing": "b"},
            lambda kwargs: spi.guard("make", kwargs, lambda inner: make(**inner), adapter="y", kit=kit),
            adapter="x",
            kit=kit,
        )
    assert len(saga.report.kept) == 2


def test_a_tool_wrapped_twice_is_one_step(kit, world):
    """Wrapping a wrapped tool wraps the tool itself."""
    twice = kit.wrap(tool(kit), effect="compensable", compensate=unmake_if_there.bind(thing="kwargs.thing"))
    with kit.transaction("s") as saga:
        twice("a")
    assert len(saga.report.kept) == 1


def test_an_async_guard_does_the_same(kit, world):
    """One engine."""
    kit.declare("make", effect="compensable", compensate=unmake_if_there.bind(thing="kwargs.thing"))

    async def call(thing):
        async def run(kwargs):
            return make(**kwargs)

        return await spi.aguard("make", {"thing": thing}, run, adapter="x", kit=kit)

    async def main():
        async with kit.transaction("s") as saga:
            await asyncio.gather(*(call(thing) for thing in "abc"))
            raise Lost
        return saga

    with pytest.raises(Lost):
        asyncio.run(main())
    assert world.count("do") == 3
    assert world.standing == {}


def test_outside_a_saga_a_guard_is_the_bare_call(kit, world):
    """But for what must not run there."""
    call = guarded(kit)
    assert call("a") == {"id": "a"}
    strict = guarded(kit, "strict", requires_saga=True)
    with pytest.raises(NoSaga):
        strict("b")
    assert world.standing == {"a": 1}


def test_an_irreversible_call_is_refused_without_an_approver(world):
    """With one it asks, also about the second equal call; nobody replays it."""
    asked = []
    kit = AgentKit("memory:")
    kit.declare("mail", effect="irreversible")

    def mail(kit):
        return spi.guard("mail", {"thing": "a"}, lambda kwargs: make(**kwargs), adapter="x", kit=kit)

    with kit.transaction("s"):
        assert "approve" in swallow(mail, kit)
    assert world.attempts == []

    def approver(call):
        asked.append(call.repeats)
        return True

    kit = AgentKit("memory:", approver=approver)
    kit.declare("mail", effect="irreversible")
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s"):
        mail(kit)
        mail(kit)
        raise Lost
    assert asked == [False, True]
    assert len(caught.value.report.orphaned) == 2


def test_two_kits_keep_their_tools_and_rules_in_one_saga(world, tmp_path):
    """A scope of another kit on the same log finds its own tools, and no rule of either is dropped."""

    class No:
        def decide(self, call, saga):
            return Refuse("the other kit says no") if call.kwargs["thing"] == "x" else Refuse("")

    one, two = AgentKit(tmp_path / "log.db"), AgentKit(tmp_path / "log.db", policies=[No()])
    call = guarded(two)
    with one.transaction("s"), two.transaction("inner"):
        assert "the other kit" in swallow(call, "x")
    assert world.attempts == []
    one.close()
    two.close()
