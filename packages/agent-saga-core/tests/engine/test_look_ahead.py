"""`spi.alook_ahead`: what the gate says of a call that is not made yet."""

import asyncio

import pytest

from agent_saga import AgentKit, Allow, Ask, Refuse, SagaSuspended, compensator, spi
from agent_saga.spi import read_records


@compensator("look-ahead.undo", idempotent=True)
def undo(thing: str) -> None:
    """Nothing to do: these effects are lists' items."""


class Says:
    def __init__(self, decision):
        self.decision = decision
        self.seen = []

    def decide(self, call, saga):
        self.seen.append((call.tool, dict(call.kwargs), call.repeats))
        return self.decision


ASK = Ask("sure?", suspend=True)


@pytest.fixture
def kit(tmp_path):
    kit = AgentKit(tmp_path / "log.db")
    kit.declare("act", effect="compensable", compensate=undo.bind(thing="kwargs.thing"), key_param="key")
    kit.declare_read_only("look")
    yield kit
    kit.close()


def ahead(name="act", **kwargs):
    return spi.alook_ahead(name, kwargs or {"thing": "a"}, adapter="test")


async def make(done, **kwargs):
    async def call(effective):
        done.append(effective["thing"])
        return effective["thing"]

    return await spi.aguard("act", kwargs or {"thing": "a"}, call, adapter="test")


def in_saga(kit, body, decision, **options):
    """Run `body` in a saga whose policy says `decision`; returns the policy, the saga and what it returned."""

    async def main():
        policy = Says(decision)
        async with kit.transaction("t", policies=[policy], **options) as saga:
            result = await body()
        return policy, saga, result

    return asyncio.run(main())


def kinds(kit):
    return [one["kind"] for one in read_records(kit.log)]


def test_a_question_is_asked_ahead(kit):
    """A look ahead records the question, makes no call, and leaves the saga unpaused."""
    policy, saga, wait = in_saga(kit, ahead, ASK)
    assert isinstance(wait, SagaSuspended)
    assert wait.approval == f"{saga.id}:a1"
    assert policy.seen == [("act", {"thing": "a"}, False)]
    assert (saga.report.outcome, saga.report.kept, kinds(kit).count("intent")) == ("committed", (), 0)


@pytest.mark.parametrize("looks", [1, 3])
def test_the_call_finds_the_question(kit, looks):
    """The call itself, and further looks, find the question that was asked ahead; its answer lets the call run once."""
    done = []

    async def body():
        for _ in range(looks):
            wait = await ahead()
        spi.decide_approval(wait.approval, approved=True, by="ann")
        assert await ahead() is None
        return await make(done)

    _, saga, _ = in_saga(kit, body, ASK)
    assert (done, saga.report.outcome, kinds(kit).count("approval_requested")) == (["a"], "committed", 1)


def test_a_refusal_is_left_to_the_call(kit):
    """What the gate refuses does not wait: the call is made, and is refused."""
    _, saga, wait = in_saga(kit, ahead, Refuse("no"))
    assert (wait, saga.report.outcome) == (None, "committed")


def test_the_key_is_none_of_the_arguments(kit):
    """A key among the arguments is not shown to policies, as in the call itself."""
    policy, _, _ = in_saga(kit, lambda: ahead(thing="a", key="mine"), Allow())
    assert policy.seen == [("act", {"thing": "a"}, False)]


def test_equal_calls_repeat(kit):
    """The gate hears that an equal call stands."""
    done = []

    async def body():
        await make(done)
        return await ahead()

    policy, _, _ = in_saga(kit, body, Allow())
    assert [seen[2] for seen in policy.seen] == [False, True]


def test_a_call_that_is_answered_from_the_log_asks_nobody(kit):
    """In a resumed saga a call that stands already is not asked about."""

    async def first():
        await make([])
        raise SagaSuspended("later")

    with pytest.raises(SagaSuspended):
        in_saga(kit, first, Allow(), key="k")

    async def again():
        wait = await ahead()
        await make([])
        return wait

    policy, saga, wait = in_saga(kit, again, ASK, key="k")
    assert (wait, policy.seen, saga.report.outcome) == (None, [], "committed")


def test_what_cannot_wait_is_not_looked_at(kit):
    """Outside of a saga, for read-only and undeclared tools, and under the default rule alone, there is no look."""

    async def body():
        return await ahead("look"), await ahead("unknown"), spi.may_suspend("look"), spi.may_suspend("act")

    policy, _, answers = in_saga(kit, body, ASK)
    assert (answers, policy.seen) == ((None, None, False, True), [])
    assert asyncio.run(ahead()) is None
    assert not spi.may_suspend("act")

    async def plain():
        async with kit.transaction("t"):
            return spi.may_suspend("act")

    assert not asyncio.run(plain())


def test_effects_of_tools(kit):
    """The declared effect class of a tool can be asked for."""
    assert [spi.effect_of(name, kit) for name in ("act", "look", "unknown")] == ["compensable", "read_only", None]
