"""Approvals through the framework's own events, here and elsewhere; tools that wait by themselves."""

import asyncio
import json

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_scripted import Scripted, turns
from llama_shop import BACK, acharge, charge, find_probed, new, tool

from agent_saga import Allow, Ask, SagaSuspended
from agent_saga.runtime.operators import decide_approval
from agent_saga.spi import read_records
from agent_saga_llama_index import protect

A, B = {"thing": "a"}, {"thing": "b"}
TOOLS = pytest.mark.parametrize("made", [charge, acharge], ids=["sync", "async"])


class AskFirst:
    """Charges wait for a person, or for several."""

    def __init__(self, *things, quorum=1):
        self.things, self.quorum = things, quorum

    def decide(self, call, saga):
        if self.things and call.kwargs["thing"] not in self.things:
            return Allow()
        return Ask(f"{call.tool} needs a word", suspend=True, quorum=self.quorum)


def decisions(kit):
    return sorted((one["decision"], one["by"]) for one in read_records(kit.log) if one["kind"] == "approval_decided")


async def until_asked(handler, questions=1):
    """Run until so many questions are asked, and stop; returns them, and the context as a file would hold it."""
    asked = []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            asked.append(event)
            if len(asked) == questions:
                break
    stored = json.dumps(handler.ctx.to_dict())
    await handler.cancel_run()
    return asked, stored


def ask(kit, agent, questions=1, **options):
    """Run an agent in a saga until it waits."""

    async def main():
        async with kit.transaction("buy", key="order-1", **options) as saga:
            return *(await until_asked(agent.run(user_msg="go"), questions)), saga

    return asyncio.run(main())


def go_on(kit, agent, stored, *answers, **options):
    """Go on with the stored context, with answers given at once."""

    async def main():
        told = {}
        async with kit.transaction("buy", key="order-1", **options) as saga:
            handler = agent.run(ctx=Context.from_dict(agent, json.loads(stored)))
            for answer in answers:
                handler.ctx.send_event(HumanResponseEvent(**answer))
            async for event in handler.stream_events():
                if isinstance(event, ToolCallResult):
                    told[event.tool_id] = event.tool_output
            await handler
        return told, saga

    return asyncio.run(main())


async def answering(handler, answer):
    """Run to the end; each question is answered by `answer(event)`, a list of what to say."""
    told, asked = {}, []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            asked.append(event)
            for said in answer(event):
                handler.ctx.send_event(HumanResponseEvent(**said))
        if isinstance(event, ToolCallResult):
            assert event.tool_id not in told, "a call was answered twice"
            told[event.tool_id] = event.tool_output
    await handler
    return told, asked


def in_one_scope(kit, agent, answer, **options):
    async def main():
        async with kit.transaction("buy", **options) as saga:
            return *(await answering(agent.run(user_msg="go"), answer)), saga

    return asyncio.run(main())


# -- asked and answered -----------------------------------------------------------------------------------------------


@TOOLS
def test_a_question_is_an_event(kit, shop, maker, made):
    """A call that needs a word waits in its run, which says what is asked; the saga is suspended with it."""
    (question,), _, saga = ask(kit, maker.agent([made], (made.metadata.name, A)), policies=[AskFirst()])
    assert (question.get("tool"), question.get("kwargs")) == (made.metadata.name, A)
    assert question.get("approval") in question.get("prefix")
    assert (saga.report.outcome, shop.events) == ("suspended", [])


@TOOLS
@pytest.mark.parametrize("run", range(6))
def test_an_approved_call_runs_once_elsewhere(kit, shop, maker, made, run):
    """The word, given in another process by the framework's own event, is the word on the gate's question.

    The restored call is begun twice side by side, and both may meet the word: of three runs one did before.
    """
    addressed = run % 2 == 0
    (question,), stored, _ = ask(kit, maker.agent([made], (made.metadata.name, A)), policies=[AskFirst()])
    answer = {"response": "Yes"} | ({"approval": question.get("approval"), "by": "ann"} if addressed else {})
    told, saga = go_on(kit, maker.agent([made]), stored, answer, policies=[AskFirst()])
    assert (told["c1"].raw_output, shop.events) == ({"id": "a"}, [(made.metadata.name, "a")])
    assert (saga.report.outcome, decisions(kit)) == ("committed", [("approved", "ann" if addressed else "llama-index")])


@TOOLS
def test_a_rejected_call_does_not_run(kit, shop, maker, made):
    """Every other word is a no: the model hears it as the tool's error, and the saga commits without the call."""
    _, stored, _ = ask(kit, maker.agent([made], (made.metadata.name, A)), policies=[AskFirst()])
    told, saga = go_on(kit, maker.agent([made]), stored, {"response": "not today"}, policies=[AskFirst()])
    assert told["c1"].is_error
    assert "not today" in told["c1"].content
    assert (saga.report.outcome, shop.events) == ("committed", [])


@pytest.mark.parametrize("word", ["yes", "no"])
@TOOLS
def test_a_word_within_one_scope(kit, shop, maker, made, word):
    """A question that is answered while its scope is open suspends the saga no longer."""
    agent = maker.agent([made], (made.metadata.name, A))
    told, _, saga = in_one_scope(kit, agent, lambda event: [{"response": word}], policies=[AskFirst()])
    assert told["c1"].is_error == (word == "no")
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"] if word == "yes" else [])


def test_a_word_on_the_log(kit, shop, maker):
    """A question that was answered on the log is decided; the framework's answer only lets the run go on."""
    (question,), stored, saga = ask(kit, maker.agent([charge], ("charge", A)), policies=[AskFirst()])
    decide_approval(kit.writer(), question.get("approval"), "rejected", by="bob", note="too much")
    told, saga = go_on(kit, maker.agent([charge]), stored, {"response": "yes"}, policies=[AskFirst()])
    assert "too much" in told["c1"].content
    assert (saga.report.outcome, shop.events, decisions(kit)) == ("committed", [], [("rejected", "bob")])


def test_a_word_on_the_log_and_a_late_answer(kit, shop, maker):
    """A call that need not wait any more when its context is restored gives its result once, whatever is answered."""
    (question,), stored, _ = ask(kit, maker.agent([charge], ("charge", A)), policies=[AskFirst()])
    decide_approval(kit.writer(), question.get("approval"), "approved", by="bob")
    agent = maker.agent([charge])
    for _ in range(2):
        agent.llm.say([])
        told, saga = go_on(kit, agent, stored, {"response": "yes"}, policies=[AskFirst()])
        assert (told["c1"].raw_output, len(agent.llm._given)) == ({"id": "a"}, 1)
        assert [message.role.value for message in agent.llm._given[0]].count("tool") == 1
        assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_two_words(kit, shop, maker):
    """A question that needs two words is asked again after the first; the same person's second word is none."""
    people = iter(["ann", "ann", "bob"])
    agent = maker.agent([charge], ("charge", A))
    told, asked, saga = in_one_scope(
        kit, agent, lambda event: [{"response": "yes", "by": next(people)}], policies=[AskFirst(quorum=2)]
    )
    assert (told["c1"].raw_output, len(asked), shop.events) == ({"id": "a"}, 3, [("charge", "a")])
    assert (saga.report.outcome, decisions(kit)) == ("committed", [("approved", "ann"), ("approved", "bob")])


# -- several at once --------------------------------------------------------------------------------------------------

BOTH = [("charge", A), ("acharge", B)]


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "in reverse"])
def test_several_questions_in_one_scope(kit, shop, maker, order):
    """Each of several questions hears its own answer, also while the other call runs; each call is answered once."""
    waiting = []

    def answer(event):
        waiting.append(event)
        words = [
            {"response": "yes" if one.get("tool") == "charge" else "no", "approval": one.get("approval")}
            for one in waiting
        ]
        return words[::order] if len(waiting) == 2 else []

    told, asked, saga = in_one_scope(kit, maker.agent([charge, acharge], BOTH), answer, policies=[AskFirst()])
    assert (told["c1"].is_error, told["c2"].is_error, len(asked)) == (False, True, 2)
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_a_plain_answer_to_one_of_several_is_asked_for_again(kit, shop, maker):
    """An answer that does not say which of several questions it is meant for counts for none: all are asked again."""
    asked = []

    def answer(event):
        asked.append(event)
        if len(asked) == 2:
            return [{"response": "yes"}]
        return [{"response": "yes", "approval": event.get("approval")}] if len(asked) > 2 else []

    told, _, saga = in_one_scope(kit, maker.agent([charge, acharge], BOTH), answer, policies=[AskFirst()])
    assert (len(asked), sorted(shop.standing), saga.report.outcome) == (4, ["a", "b"], "committed")
    assert not any(output.is_error for output in told.values())


@pytest.mark.parametrize("words", [("yes", "no"), ("no", "yes")])
def test_several_questions_elsewhere(kit, shop, maker, words):
    """A restored context wakes all that wait, whatever the answer: each call still hears only its own."""
    questions, stored, _ = ask(kit, maker.agent([charge, acharge], BOTH), 2, policies=[AskFirst()])
    by_tool = dict(zip(["charge", "acharge"], words, strict=True))
    answers = [{"response": by_tool[one.get("tool")], "approval": one.get("approval")} for one in questions]
    told, saga = go_on(kit, maker.agent([charge, acharge]), stored, *answers, policies=[AskFirst()])
    assert [told[id_].is_error for id_ in ("c1", "c2")] == [word == "no" for word in words]
    assert (saga.report.outcome, len(shop.events)) == ("committed", 1)


def test_a_finished_call_beside_a_question(kit, shop, maker):
    """What a turn had done when the run was stored it has done: the resumed run has its result, and claims it."""
    calls = [("charge", A), ("acharge", B)]
    agent = maker.agent([charge, acharge], ("charge", {"thing": "before"}), calls)

    async def main():
        async with kit.transaction("buy", key="order-1", policies=[AskFirst("b")]) as saga:
            handler, seen = agent.run(user_msg="go"), set()
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    seen.add("question")
                if isinstance(event, ToolCallResult):
                    seen.add(event.tool_id)
                if seen >= {"question", "c2"}:
                    break
            await asyncio.sleep(0)
            stored = json.dumps(handler.ctx.to_dict())
            await handler.cancel_run()
        return stored, saga

    stored, saga = asyncio.run(main())
    assert (saga.report.outcome, shop.standing) == ("suspended", ["before", "a"])
    _, saga = go_on(kit, maker.agent([charge, acharge]), stored, {"response": "yes"}, policies=[AskFirst("b")])
    assert (saga.report.outcome, shop.standing) == ("committed", ["before", "a", "b"])


def test_a_scope_that_ends_while_a_resumed_run_waits(kit, shop, maker):
    """A saga whose resumed run still waits when the scope ends is suspended again, and not committed."""
    _, stored, _ = ask(kit, maker.agent([charge], ("charge", A)), policies=[AskFirst()])

    async def look_in():
        agent = maker.agent([charge])
        async with kit.transaction("buy", key="order-1", policies=[AskFirst()]) as saga:
            handler = agent.run(ctx=Context.from_dict(agent, json.loads(stored)))
            await asyncio.sleep(0)
            stored_again = json.dumps(handler.ctx.to_dict())
            await handler.cancel_run()
        return stored_again, saga

    stored, saga = asyncio.run(look_in())
    assert saga.report.outcome == "suspended"
    _, saga = go_on(kit, maker.agent([charge]), stored, {"response": "yes"}, policies=[AskFirst()])
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_a_call_without_a_run_suspends(kit, shop):
    """Where no run can wait, the suspension leaves the scope."""
    tools = protect([charge], kit)
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1", policies=[AskFirst()]):
        Scripted(turns(("charge", A))).predict_and_call(tools, user_msg="go")
    assert shop.events == []


def test_an_agent_that_is_not_protected_waits_too(kit, shop):
    """Protected tools wait for an approval in whatever agent's run they are called."""
    agent = FunctionAgent(tools=protect([charge], kit), llm=Scripted(turns(("charge", A))))
    _, _, saga = in_one_scope(kit, agent, lambda event: [{"response": "yes"}], policies=[AskFirst()])
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"])


# -- tools that wait by themselves ------------------------------------------------------------------------------------


def danger(bodies):
    async def risky(ctx: Context, thing: str) -> dict:
        """Ask, and charge."""
        bodies.append("begun")
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_id=f"w-{thing}", waiter_event=InputRequiredEvent(prefix=f"{thing}?")
        )
        return new("risky", f"{thing} {answer.response}")

    return tool(risky)


WAYS = {"plain": {}, "probe": {"probe": find_probed}}


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("way", ["plain", "probe"])
def test_a_tool_that_waits_for_an_event(kit, shop, maker, elsewhere, way):
    """A tool that waits has not failed: its body begins again with the event, and its effect happens once."""
    bodies = []
    kit.declare("risky", **BACK, **WAYS[way])
    agent = maker.agent([danger(bodies)], ("risky", A))
    if elsewhere:
        _, stored, saga = ask(kit, agent)
        assert saga.report.outcome == "suspended"
        told, saga = go_on(kit, maker.agent([danger(bodies)]), stored, {"response": "yes"})
    else:
        told, _, saga = in_one_scope(kit, agent, lambda event: [{"response": "yes"}])
    assert (told["c1"].raw_output, shop.events) == ({"id": "a yes"}, [("risky", "a yes")])
    assert (saga.report.outcome, bodies) == ("committed", ["begun", "begun"])


def test_a_tool_that_waits_beside_an_approval(kit, shop, maker):
    """A tool that says what it waits for is not woken by the answer to another call's question."""
    kit.declare("risky", **BACK)

    async def risky(ctx: Context, thing: str) -> dict:
        """Ask, and charge."""
        asks = {"waiter_event": InputRequiredEvent(prefix="?"), "requirements": {"about": thing}}
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_id=thing, **asks)
        return new("risky", f"{thing} {answer.response}")

    async def main():
        agent, stopped = maker.agent([charge, tool(risky)], [("charge", B), ("risky", A)]), False
        async with kit.transaction("buy", key="order-1", policies=[AskFirst("b")]) as saga:
            handler = agent.run(user_msg="go")
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent) and event.get("approval"):
                    handler.ctx.send_event(HumanResponseEvent(response="yes", approval=event.get("approval")))
                if isinstance(event, ToolCallResult) and not stopped:
                    stopped = True
                    handler.ctx.send_event(HumanResponseEvent(response="fine", about="a"))
            await handler
        return saga

    saga = asyncio.run(main())
    assert (shop.events, saga.report.outcome) == ([("charge", "b"), ("risky", "a fine")], "committed")
