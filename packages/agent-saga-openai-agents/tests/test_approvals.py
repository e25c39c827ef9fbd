"""Approvals through the framework's own pause: interruptions, RunState, approve and reject."""

import asyncio
import json

import pytest
from agents import Agent, Runner, RunState, function_tool
from agents_scripted import Scripted, answers, run_sync, turns
from agents_shop import BACK, acharge, charge, new

from agent_saga import Ask, SagaSuspended
from agent_saga.runtime.operators import decide_approval
from agent_saga.spi import read_records
from agent_saga_openai_agents import protect


class AskFirst:
    """Charges wait for a person."""

    def decide(self, call, saga):
        return Ask(f"{call.tool} needs a word", suspend=True)


POLICIES = {"policies": [AskFirst()]}
CHARGE = ("charge", {"thing": "a"})


def gated(**options):
    """The same tool, for which the framework itself asks."""
    return function_tool(charge.__wrapped__, **{"needs_approval": True, **options})


async def by_rule(context, arguments, call_id):
    return arguments["thing"] == "a"


async def stored(agent, result):
    """The state of a paused run, as another process would read it."""
    return await RunState.from_json(agent, json.loads(json.dumps(result.to_state().to_json())))


def ask(kit, agent, **options):
    """Run an agent in a saga until it pauses."""
    with kit.transaction("buy", key="order-1", **options) as saga:
        result = run_sync(agent)
    return result, saga


def answer(kit, agent, result, word, *, elsewhere=True, **options):
    """Give a word on each interruption, and go on in the resumed saga."""

    async def main():
        state = await stored(agent, result) if elsewhere else result.to_state()
        for item in state.get_interruptions() if word != "_" else ():
            getattr(state, word)(item)
        async with kit.transaction("buy", key="order-1", **options) as saga:
            result_now = await Runner.run(agent, state)
        return result_now, saga

    return asyncio.run(main())


def decisions(kit):
    return [(one["decision"], one["by"]) for one in read_records(kit.log) if one["kind"] == "approval_decided"]


def test_a_question_is_an_interruption(kit, shop, maker):
    """A call that needs a word pauses the run before its effect, and the saga with it; calls beside it run."""
    kit.declare_read_only("look")
    agent = maker.agent([charge, acharge], [CHARGE, ("acharge", {"thing": "b"})])

    class AskForCharges(AskFirst):
        def decide(self, call, saga):
            from agent_saga import Allow

            return super().decide(call, saga) if call.tool == "charge" else Allow()

    result, saga = ask(kit, agent, policies=[AskForCharges()])
    (item,) = result.interruptions
    assert (item.name, json.loads(item.arguments)) == CHARGE
    assert (saga.report.outcome, shop.events) == ("suspended", [("acharge", "b")])


TOOLS = {"ours": charge, "theirs": gated(), "by rule": gated(needs_approval=by_rule)}
ASKED = [("ours", True), ("theirs", True), ("by rule", True), ("theirs", False), ("by rule", False)]


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(("tool", "policies"), ASKED, ids=str)
def test_an_approved_call_runs_once(kit, shop, maker, elsewhere, tool, policies):  # noqa: PLR0917
    """A person's word, given through the framework, is the word on the gate's question too; the call runs once."""
    options = POLICIES if policies else {}
    agent = maker.agent([TOOLS[tool], acharge], [CHARGE])
    result, saga = ask(kit, agent, **options)
    assert (saga.report.outcome, shop.events) == ("suspended", [])
    done, saga = answer(kit, agent, result, "approve", elsewhere=elsewhere, **options)
    assert (done.final_output, answers(done)) == ("done", [{"id": "a"}])
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])
    assert decisions(kit) == ([("approved", "openai-agents")] if policies else [])


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("tool", [charge, gated()], ids=["ours", "theirs"])
def test_a_rejected_call_does_not_run(kit, shop, maker, elsewhere, tool):
    """A rejected call is told to the model in the framework's words, and the saga commits without it."""
    agent = maker.agent([tool], [CHARGE])
    result, _ = ask(kit, agent, **POLICIES)
    done, saga = answer(kit, agent, result, "reject", elsewhere=elsewhere, **POLICIES)
    assert answers(done) == ["Tool execution was not approved."]
    assert (saga.report.outcome, shop.events) == ("committed", [])


@pytest.mark.parametrize("word", ["approve", "reject"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_word_within_one_scope(kit, shop, maker, word, elsewhere):
    """A question that is answered while its scope is open suspends the saga no longer."""
    agent = maker.agent([charge], [CHARGE])

    async def main():
        async with kit.transaction("buy", **POLICIES) as saga:
            result = await Runner.run(agent, "go")
            state = await stored(agent, result) if elsewhere else result.to_state()
            for item in state.get_interruptions():
                getattr(state, word)(item)
            await Runner.run(agent, state)
        return saga.report

    assert asyncio.run(main()).outcome == "committed"
    assert shop.count("charge") == (word == "approve")


def test_a_run_that_is_not_resumed_stays_suspended(kit, shop, maker):
    """A run that pauses leaves its saga suspended, whatever other runs in it do."""
    agent = maker.agent([charge, acharge], [CHARGE])
    with kit.transaction("buy", **POLICIES) as saga:
        run_sync(agent)
        run_sync(maker.agent([acharge]))
    assert saga.report.outcome == "suspended"


def test_two_questions_at_once(kit, shop, maker):
    """Each of two calls is approved by itself; the other one waits on, and nothing runs twice."""
    agent = maker.agent([charge], [CHARGE, ("charge", {"thing": "b"})])
    result, _ = ask(kit, agent, **POLICIES)

    async def go_on(result, wanted):
        state = await stored(agent, result)
        for item in state.get_interruptions():
            if json.loads(item.arguments)["thing"] == wanted:
                state.approve(item)
        async with kit.transaction("buy", key="order-1", **POLICIES) as saga:
            result = await Runner.run(agent, state)
        return result, saga.report

    result, report = asyncio.run(go_on(result, "b"))
    assert (report.outcome, shop.events) == ("suspended", [("charge", "b")])
    result, report = asyncio.run(go_on(result, "a"))
    assert (report.outcome, shop.events) == ("committed", [("charge", "b"), ("charge", "a")])


def test_equal_questions_at_once(kit, shop, maker):
    """Two equal calls of one turn need a word each, and are two effects."""
    agent = maker.agent([charge], [CHARGE, CHARGE])
    result, _ = ask(kit, agent, **POLICIES)
    assert len(result.interruptions) == 2
    _, saga = answer(kit, agent, result, "approve", **POLICIES)
    assert (saga.report.outcome, shop.count("charge"), len(decisions(kit))) == ("committed", 2, 2)


@pytest.mark.parametrize("word", ["approved", "rejected"])
def test_a_word_on_the_log(kit, shop, maker, word):
    """A question that is answered on the log is answered; what the framework is told then only makes the run go on."""
    agent = maker.agent([charge], [CHARGE])
    result, saga = ask(kit, agent, **POLICIES)
    decide_approval(kit.writer(), f"{saga.id}:a1", word, by="ann")
    done, saga = answer(kit, agent, result, "approve", **POLICIES)
    assert (saga.report.outcome, shop.count("charge")) == ("committed", word == "approved")
    assert ("rejected by ann" in str(answers(done))) == (word == "rejected")
    assert decisions(kit) == [(word, "ann")]


@pytest.mark.parametrize("of_sub_agent", [False, True])
def test_a_state_that_is_resumed_without_a_word(kit, shop, maker, of_sub_agent):
    """A run that still waits when it is resumed leaves the saga suspended."""
    agent = maker.agent([charge], [CHARGE])
    if of_sub_agent:
        agent.name, agent.model = "inner", Scripted(turns(CHARGE, ids="s"))
        agent = maker.agent([agent.as_tool("ask", "Ask.")], ("ask", {"input": "x"}))
    result, _ = ask(kit, agent, **POLICIES)
    for word, outcome in (("_", "suspended"), ("approve", "committed")):
        result, saga = answer(kit, agent, result, word, **POLICIES)
        assert saga.report.outcome == outcome
    assert shop.events == [("charge", "a")]


def test_an_approved_id_that_a_sub_agent_uses_again(kit, shop, maker):
    """An equal call with the same id, made by an agent that is a tool, is another call: it needs a word, and acts."""
    inner = maker.agent([gated()], model=Scripted(turns(CHARGE)), name="inner")
    outer = maker.agent([gated(), inner.as_tool("ask", "Ask.")], CHARGE, ("ask", {"input": "x"}))
    result, _ = ask(kit, outer)
    result, saga = answer(kit, outer, result, "approve")
    assert (saga.report.outcome, shop.events) == ("suspended", [("charge", "a")])
    _, saga = answer(kit, outer, result, "approve")
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a"), ("charge", "a")])


@pytest.mark.parametrize("tool", [charge, gated()], ids=["ours", "theirs"])
def test_a_state_that_is_resumed_twice(kit, shop, maker, tool):
    """A saved state that is resumed again, with its approvals, is answered with what the first time did."""
    agent = maker.agent([tool], [CHARGE])
    result, _ = ask(kit, agent, **POLICIES)
    for _ in range(2):
        done, saga = answer(kit, agent, result, "approve", **POLICIES)
        assert answers(done) == [{"id": "a"}]
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_a_state_that_is_resumed_twice_within_one_scope(kit, shop, maker):
    """The same, in a saga that is still open."""
    agent = maker.agent([gated()], [CHARGE])

    async def main():
        async with kit.transaction("buy") as saga:
            result = await Runner.run(agent, "go")
            for _ in range(2):
                state = await stored(agent, result)
                state.approve(state.get_interruptions()[0])
                await Runner.run(agent, state)
        return saga.report

    assert asyncio.run(main()).outcome == "committed"
    assert shop.events == [("charge", "a")]


def test_a_question_of_a_sub_agent(kit, shop, maker):
    """A question about a tool of an agent that is a tool itself pauses the outer run."""
    inner = Agent(name="inner", tools=[charge], model=Scripted(turns(CHARGE, ids="s")))
    agent = maker.agent([inner.as_tool("ask", "Ask.")], ("ask", {"input": "x"}))
    result, saga = ask(kit, agent, **POLICIES)
    assert ([item.name for item in result.interruptions], saga.report.outcome) == (["charge"], "suspended")
    done, saga = answer(kit, agent, result, "approve", **POLICIES)
    assert (answers(done), saga.report.outcome, shop.events) == (["done"], "committed", [("charge", "a")])


@pytest.mark.parametrize("word", ["approve", "reject"])
def test_a_question_about_a_sub_agent(kit, shop, maker, word):
    """An agent that is a tool, and needs an approval itself, pauses the saga too."""
    inner = Agent(name="inner", tools=[charge], model=Scripted(turns(CHARGE, ids="s")))
    tool = inner.as_tool("ask", "Ask.", needs_approval=True)
    agent = maker.agent([tool], ("ask", {"input": "x"}))
    assert tool.needs_approval is True
    result, saga = ask(kit, agent)
    assert ([item.name for item in result.interruptions], saga.report.outcome) == (["ask"], "suspended")
    _, saga = answer(kit, agent, result, word)
    assert (saga.report.outcome, shop.count("charge")) == ("committed", word == "approve")


@pytest.mark.parametrize("streamed", [False, True])
def test_what_was_done_before_the_pause_is_not_done_again(kit, shop, maker, streamed):
    """A resumed run, in a resumed saga, goes on behind its finished calls, and commits with them."""
    agent = maker.agent([charge, acharge], ("acharge", {"thing": "z"}), CHARGE, ("acharge", {"thing": "y"}))

    class OnlyCharges(AskFirst):
        def decide(self, call, saga):
            from agent_saga import Allow

            return super().decide(call, saga) if call.tool == "charge" else Allow()

    result, _ = ask(kit, agent, policies=[OnlyCharges()])

    async def main():
        state = await stored(agent, result)
        state.approve(state.get_interruptions()[0])
        async with kit.transaction("buy", key="order-1", policies=[OnlyCharges()]) as saga:
            if streamed:
                running = Runner.run_streamed(agent, state)
                async for _ in running.stream_events():
                    pass
            else:
                await Runner.run(agent, state)
        return saga.report

    assert asyncio.run(main()).outcome == "committed"
    assert shop.events == [("acharge", "z"), ("charge", "a"), ("acharge", "y")]


def test_always_approved(kit, shop, maker):
    """A word for all calls of a tool answers the gate's later questions about it."""
    agent = maker.agent([charge], CHARGE, ("charge", {"thing": "b"}))
    result, _ = ask(kit, agent, **POLICIES)

    async def main():
        state = await stored(agent, result)
        state.approve(state.get_interruptions()[0], always_approve=True)
        async with kit.transaction("buy", key="order-1", **POLICIES) as saga:
            await Runner.run(agent, state)
        return saga.report

    assert (asyncio.run(main()).outcome, shop.count("charge")) == ("committed", 2)
    assert len(decisions(kit)) == 2


def test_tools_in_a_list_suspend_the_saga(kit, shop):
    """Tools of an agent that is not protected cannot pause its run: the suspension leaves it, and the scope."""
    agent = Agent(name="a", model=Scripted(turns(CHARGE)), tools=protect([charge], kit))
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1", **POLICIES):
        run_sync(agent)
    assert shop.events == []


def test_defaults_need_no_word_of_their_own(kit, shop, maker):
    """A tool whose arguments have defaults is not asked about unless a policy asks, on every release."""

    @function_tool(strict_mode=False)
    def buy(thing: str, count: int = 1) -> dict:
        """Buy."""
        return new("buy", f"{thing}x{count}")

    class Allows:
        def decide(self, call, saga):
            from agent_saga import Allow

            return Allow()

    kit.declare("buy", **BACK)
    agent = maker.agent([buy], ("buy", {"thing": "a"}))
    with kit.transaction("buy", policies=[Allows()]) as saga:
        result = run_sync(agent)
    assert (result.interruptions, len(saga.report.kept), shop.standing) == ([], 1, ["ax1"])


@pytest.mark.parametrize("arguments", ['{"thing": {}}', '{"thin": "a"}'])
def test_nobody_is_asked_about_invalid_arguments(kit, shop, maker, arguments):
    """A call whose arguments are not valid is answered by the framework, and pauses nothing."""
    agent = maker.agent([charge])
    agent.model = Scripted([[("charge", arguments, "c1")]])
    with kit.transaction("buy", **POLICIES) as saga:
        result = run_sync(agent)
    assert (result.interruptions, saga.report.outcome) == ([], "committed")


def test_a_halted_saga_pauses_the_run(kit, shop, maker):
    """Where a policy may ask, the kill switch pauses the run as well, and it goes on when the halt is lifted."""
    from agent_saga.runtime import operators

    agent = maker.agent([charge], [CHARGE])

    class Allows:
        def decide(self, call, saga):
            from agent_saga import Allow

            return Allow()

    operators.act(kit.writer(), "halt", "*", reason="stop", by="ann")
    result, saga = ask(kit, agent, policies=[Allows()])
    assert (len(result.interruptions), saga.report.outcome, shop.events) == (1, "suspended", [])
    operators.lift(kit.writer(), "*", by="ann")
    _, saga = answer(kit, agent, result, "approve", policies=[Allows()])
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])
