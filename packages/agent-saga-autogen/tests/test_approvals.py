"""Approvals: a call that waits ends the run, and the state that AutoGen saves goes on, in any process."""

import asyncio
import json

import pytest
from autogen_agentchat.agents import SocietyOfMindAgent
from autogen_agentchat.messages import StopMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage
from autogen_core.tools import StaticWorkbench
from autogen_scripted import Scripted, answers, in_saga, stream
from autogen_shop import BACK, AskFirst, acharge, charge, new

from agent_saga import Allow, Ask
from agent_saga.runtime.operators import decide_approval
from agent_saga.spi import read_records
from agent_saga_autogen import protect

CHARGE = ("charge", {"thing": "a"})
ACHARGE = ("acharge", {"thing": "b"})
OPTIONS = {"key": "order-1", "policies": [AskFirst()]}


def scope(kit, runner, task="go", how=None, **options):
    """Run in the saga of the order; returns the result, the saga, and the state as another process would read it."""

    async def main(saga):
        result = await (how or type(runner).run)(runner, task=task)
        return result, json.loads(json.dumps(await runner.save_state()))

    (result, state), saga = in_saga(kit, main, **OPTIONS | options)
    return result, saga, state


def word(result, approved, source="ann"):
    """A person's word on what a run waits for, as a message."""
    name = "agent_saga_approve" if approved else "agent_saga_reject"
    metadata = {name: result.messages[-1].metadata["agent_saga_waits"]}
    return TextMessage(content="You heard me.", source=source, metadata=metadata)


def go_on(kit, runner, state, task, **options):
    asyncio.run(runner.load_state(state))
    return scope(kit, runner, task, **options)


def decisions(kit):
    return [(one["decision"], one["by"]) for one in read_records(kit.log) if one["kind"] == "approval_decided"]


def team(kit, maker, kind, *calls):
    """A buyer with charges, alone, or in a team of each kind that asks one agent after another."""
    buyer = maker.bare([charge, acharge], *calls)
    other = maker.bare([acharge], name="other")
    if kind == "agent":
        return protect(buyer, kit)
    if kind == "round robin":
        return protect(RoundRobinGroupChat([buyer, other], max_turns=2), kit)
    if kind == "swarm":
        return protect(Swarm([buyer, other], max_turns=1), kit)
    if kind == "selector":
        chooser = Scripted(["buyer"] if calls else ["other"])
        return protect(SelectorGroupChat([buyer, other], model_client=chooser, max_turns=1), kit)
    inner = RoundRobinGroupChat([buyer], name="inner", max_turns=1)
    if kind == "nested":
        return protect(RoundRobinGroupChat([inner, other], max_turns=2), kit)
    mind = SocietyOfMindAgent("mind", inner, model_client=Scripted())
    return protect(RoundRobinGroupChat([mind, other], max_turns=2), kit)


KINDS = pytest.mark.parametrize("kind", ["agent", "round robin", "swarm", "selector", "nested", "society"])


@KINDS
@pytest.mark.parametrize("how", [None, stream], ids=["run", "stream"])
def test_a_question_ends_the_run(kit, shop, maker, kind, how):
    """A call that needs a word ends the run before its effect, and suspends the saga; calls beside it run."""
    result, saga, _ = scope(kit, team(kit, maker, kind, [CHARGE, ACHARGE], ACHARGE), how=how)
    last = result.messages[-1]
    assert isinstance(last, StopMessage)
    assert ("charge needs a word" in last.content, last.metadata["agent_saga_waits"]) == (True, f"{saga.id}:a1")
    assert (saga.report.outcome, shop.events) == ("suspended", [("acharge", "b")])


@KINDS
@pytest.mark.parametrize("approved", [True, False])
def test_a_person_s_word_in_another_process(kit, shop, maker, kind, approved):
    """The state goes on elsewhere with the agent that asked: an approved call runs once, a rejected one does not."""
    result, _, state = scope(kit, team(kit, maker, kind, [CHARGE, ACHARGE]))
    done, saga, _ = go_on(kit, team(kit, maker, kind), state, word(result, approved))
    told = answers(done)
    assert (told[1], told[0] == "{'id': 'a'}") == ("{'id': 'b'}", approved)
    assert saga.report.outcome == "committed"
    assert shop.events == [("acharge", "b")] + [("charge", "a")] * approved
    assert decisions(kit) == [("approved" if approved else "rejected", "ann")]


def test_what_the_model_is_told(kit, maker):
    """After the pause the model sees its calls once, with their real results; before it, what they wait for."""
    result, _, state = scope(kit, team(kit, maker, "agent", [CHARGE, ACHARGE]))
    messages = state["llm_context"]["messages"]
    assert "charge needs a word" in messages[-1]["content"][0]["content"]
    agent = team(kit, maker, "agent")
    go_on(kit, agent, state, word(result, approved=True))
    seen = agent._model_client.inputs[0]
    calls = [one for one in seen if isinstance(one, AssistantMessage)]
    told = [one for one in seen if isinstance(one, FunctionExecutionResultMessage)]
    assert [[call.id for call in one.content] for one in calls] == [["c1", "c2"]]
    assert [[(one.call_id, one.is_error) for one in message.content] for message in told] == [
        [("c1", False), ("c2", False)]
    ]


@pytest.mark.parametrize("again", ["same agent", "another"])
def test_a_word_within_one_scope(kit, shop, maker, again):
    """A question that is answered while its scope is open suspends the saga no longer."""
    agent = team(kit, maker, "agent", CHARGE)

    async def main(saga):
        result = await agent.run(task="go")
        other = agent if again == "same agent" else team(kit, maker, "agent")
        if other is not agent:
            await other.load_state(json.loads(json.dumps(await agent.save_state())))
        return await other.run(task=word(result, approved=True))

    _, saga = in_saga(kit, main, **OPTIONS)
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


@pytest.mark.parametrize("task", [None, "Well?"])
def test_a_run_without_a_word_waits_on(kit, shop, maker, task):
    """Going on without a word asks nothing new: the same request, and the saga stays suspended."""
    result, _, state = scope(kit, team(kit, maker, "agent", CHARGE))
    again, saga, state = go_on(kit, team(kit, maker, "agent"), state, task)
    assert again.messages[-1].metadata == result.messages[-1].metadata
    assert (saga.report.outcome, shop.events) == ("suspended", [])
    _, saga, _ = go_on(kit, team(kit, maker, "agent"), state, word(again, approved=True))
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_a_word_on_the_log(kit, shop, maker):
    """A question that was answered on the log needs no message: any run goes on."""
    result, _, state = scope(kit, team(kit, maker, "agent", CHARGE))
    approval = result.messages[-1].metadata["agent_saga_waits"]
    decide_approval(kit.writer(), approval, "approved", by="bob", note="")
    _, saga, _ = go_on(kit, team(kit, maker, "agent"), state, None)
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])
    assert decisions(kit) == [("approved", "bob")]


def test_a_second_word_changes_nothing(kit, shop, maker):
    """A word on what was decided before is not heard; the first one counts."""
    result, _, state = scope(kit, team(kit, maker, "agent", CHARGE))
    decide_approval(kit.writer(), result.messages[-1].metadata["agent_saga_waits"], "rejected", by="bob", note="")
    _, saga, _ = go_on(kit, team(kit, maker, "agent"), state, word(result, approved=True))
    assert (saga.report.outcome, shop.events, decisions(kit)) == ("committed", [], [("rejected", "bob")])


def test_a_state_that_goes_on_twice(kit, shop, maker):
    """A state that is loaded twice makes its effect once: the second time the saga has committed."""
    result, _, state = scope(kit, team(kit, maker, "agent", [CHARGE, ACHARGE]))
    for _ in range(2):
        done, saga, _ = go_on(kit, team(kit, maker, "agent"), state, word(result, approved=True))
        assert (answers(done), saga.report.outcome) == (["{'id': 'a'}", "{'id': 'b'}"], "committed")
    assert sorted(shop.events) == [("acharge", "b"), ("charge", "a")]


def test_two_questions_one_after_another(kit, shop, maker):
    """Each of two calls is approved by itself, in one turn or in two, and nothing runs twice."""
    result, _, state = scope(kit, team(kit, maker, "agent", [CHARGE, ("charge", {"thing": "c"})]))
    first, second = result.messages[-1].metadata["agent_saga_waits"].split()
    one = TextMessage(content="The first.", source="ann", metadata={"agent_saga_approve": first})
    result, _, state = go_on(kit, team(kit, maker, "agent"), state, one)
    assert (result.messages[-1].metadata["agent_saga_waits"], len(shop.events)) == (second, 1)
    agent = team(kit, maker, "agent", ("charge", {"thing": "d"}))
    result, saga, state = go_on(kit, agent, state, word(result, approved=True))
    assert (saga.report.outcome, shop.standing) == ("suspended", ["a", "c"])
    _, saga, _ = go_on(kit, team(kit, maker, "agent"), state, word(result, approved=True))
    assert (saga.report.outcome, shop.standing) == ("committed", ["a", "c", "d"])


def test_waiting_calls_do_not_run_outside_of_a_saga(kit, shop, maker):
    """A state that waits, and is run without its saga, does not make its call: nobody would ask there."""
    _, _, state = scope(kit, team(kit, maker, "agent", CHARGE))
    agent = team(kit, maker, "agent")
    asyncio.run(agent.load_state(state))
    result = asyncio.run(agent.run(task="go on"))
    assert (result.messages[-1].content, shop.events) == ("done", [])


def test_a_state_for_an_agent_that_is_not_protected(kit, shop, maker):
    """A state that a protected agent saved can be loaded by one that is not; it sees a call that failed."""
    _, _, state = scope(kit, team(kit, maker, "agent", CHARGE))
    agent = maker.bare([charge])
    asyncio.run(agent.load_state(state))
    assert asyncio.run(agent.run(task="go on")).messages[-1].content == "done"
    assert shop.events == []


@pytest.mark.parametrize("reflect", [False, True])
def test_an_agent_of_one_turn_goes_on_as_it_began(kit, maker, reflect):
    """After the pause the turn ends as AutoGen ends it: with a summary, or with a word of the model's about it."""

    def make(*calls):
        return maker.agent([charge], *calls, max_tool_iterations=1, reflect_on_tool_use=reflect)

    result, _, state = scope(kit, make(CHARGE))
    agent = make()
    done, _, _ = go_on(kit, agent, state, word(result, approved=True))
    assert (done.messages[-1].content, agent._model_client.said) == (("done", 1) if reflect else ("{'id': 'a'}", 0))


def test_an_agent_that_is_a_tool_waits(kit, shop, maker):
    """A question within an agent that is a tool ends the outer run too, which goes on with both."""
    inner = maker.bare([charge], CHARGE, name="inner")
    agent = maker.agent([AgentTool(inner)], ("inner", {"task": "do"}))

    async def main(saga):
        result = await agent.run(task="go")
        assert shop.events == []
        return await agent.run(task=word(result, approved=True))

    result, saga = in_saga(kit, main, **OPTIONS)
    assert "{'id': 'a'}" not in answers(result)[-1]
    assert "done" in answers(result)[-1]
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_an_inner_agent_that_begins_again(kit, shop, maker):
    """In another process the inner agent's state is gone, and it begins again: still one effect, and one question."""

    def make(*calls):
        inner = maker.bare([acharge, charge], ACHARGE, CHARGE, name="inner")
        return maker.agent([AgentTool(inner)], *calls)

    result, _, state = scope(kit, make(("inner", {"task": "do"})))
    assert shop.events == [("acharge", "b")]
    _, saga, _ = go_on(kit, make(), state, word(result, approved=True))
    assert (saga.report.outcome, shop.events) == ("committed", [("acharge", "b"), ("charge", "a")])


@pytest.mark.parametrize("form", ["tools", "workbench"])
def test_an_agent_that_is_not_protected_cannot_pause(kit, shop, maker, form):
    """Tools whose agent is not protected tell the model to wait; the saga is suspended when its scope ends."""
    tools = protect([charge], kit)
    options = {"workbench": protect(StaticWorkbench(tools), kit)} if form == "workbench" else {}
    make = lambda *calls: maker.bare(None if options else tools, *calls, **options)  # noqa: E731
    result, saga, _ = scope(kit, make(CHARGE))
    assert ("Do not call it again" in answers(result)[0], result.messages[-1].content) == (True, "done")
    assert (saga.report.outcome, shop.events) == ("suspended", [])
    decide_approval(kit.writer(), f"{saga.id}:a1", "approved", by="bob", note="")
    _, saga, _ = scope(kit, make(CHARGE))
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_a_reset_forgets_what_waits(kit, shop, maker):
    """An agent that is reset does not make the call that waited."""
    agent = team(kit, maker, "agent", CHARGE)
    scope(kit, agent)
    asyncio.run(agent.on_reset(None))
    asyncio.run(agent.run(task="something else"))
    assert shop.events == []


class AskAboutLarge:
    def decide(self, call, saga):
        return Ask("large", suspend=True) if call.kwargs["amount"] > 9 else Allow()


def test_arguments_of_every_kind_wait(kit, shop, maker):
    """What was asked about is what runs: the validated arguments, whatever form the model gave them."""

    async def pay(amount: int, idempotency_key: str = "none") -> dict:
        """Pay."""
        return new("pay", f"{amount}:{idempotency_key}")

    kit.declare("pay", **BACK)
    options = {"policies": [AskAboutLarge()]}
    result, _, state = scope(kit, maker.agent([pay], ("pay", '{"amount": "10"}')), **options)
    _, saga, _ = go_on(kit, maker.agent([pay]), state, word(result, approved=True), **options)
    (step,) = saga.report.kept
    assert (step.kwargs, shop.standing) == ({"amount": 10}, [f"10:{step.key}"])
