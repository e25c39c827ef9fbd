"""Public issues of LlamaIndex, and cases from the field that fit it, each as a small run with its right outcome."""

import asyncio
import json

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCall, ToolCallResult
from llama_index.core.tools.calling import acall_tool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, step
from llama_scripted import arun, run, turns
from llama_shop import BACK, acharge, boom, charge, look, new, probed, tool
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from agent_saga import Allow, Ask, Refuse, SagaRolledBack, current_saga
from agent_saga.errors import UndeclaredTool
from agent_saga.spi import read_records
from agent_saga_llama_index import protect

A, B = {"thing": "a"}, {"thing": "b"}


class Ever:
    """A policy that asks, and waits."""

    def decide(self, call, saga):
        return Ask("sure?", suspend=True)


def test_llama_index_21555_context_variables_in_sync_tools(kit, shop, maker):
    """#21555: a sync tool sees the saga, in the thread in which the framework runs it."""
    seen = []

    def who(thing: str) -> dict:
        """Look for the saga."""
        seen.append(current_saga())
        return new("who", thing)

    kit.declare("who", **BACK)
    with kit.transaction("buy") as saga:
        run(maker.agent([tool(who)], ("who", A)))
    assert seen == [saga]


CALLS = [(name, {"thing": f"{name} {number}"}) for number in (1, 2) for name in ("charge", "acharge")]


async def answer_all(handler, count):
    """Answer all questions once the last of them is asked, the last one first; returns the results by id."""
    told, asked = {}, []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            asked.append(event.get("approval"))
            if len(asked) == count:
                for approval in reversed(asked):
                    handler.ctx.send_event(HumanResponseEvent(response="yes", approval=approval))
        if isinstance(event, ToolCallResult):
            told[event.tool_id] = event.tool_output.raw_output
    await handler
    return told


def test_llama_index_22070_parallel_questions_share_no_waiter(kit, shop, maker):
    """#22070: when several calls of a turn wait for a person, each is asked about, answered, and made once."""

    async def main():
        async with kit.transaction("buy", policies=[Ever()]) as saga:
            return await answer_all(maker.agent([charge, acharge], CALLS).run(user_msg="go"), len(CALLS)), saga

    told, saga = asyncio.run(main())
    assert told == {f"c{number + 1}": {"id": args["thing"]} for number, (_, args) in enumerate(CALLS)}
    assert (len(shop.standing), saga.report.outcome) == (4, "committed")


def test_llama_index_18220_no_parallel_call_is_lost(kit, shop, maker):
    """#18220: the same, with the context stored between the questions and the answers."""

    async def ask():
        asked = []
        async with kit.transaction("buy", key="k", policies=[Ever()]):
            handler = maker.agent([charge, acharge], CALLS).run(user_msg="go")
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    asked.append(event.get("approval"))
                    if len(asked) == len(CALLS):
                        break
            stored = json.dumps(handler.ctx.to_dict())
            await handler.cancel_run()
        return asked, stored

    async def go_on(asked, stored):
        agent, told = maker.agent([charge, acharge]), {}
        async with kit.transaction("buy", key="k", policies=[Ever()]) as saga:
            handler = agent.run(ctx=Context.from_dict(agent, json.loads(stored)))
            for approval in asked:
                handler.ctx.send_event(HumanResponseEvent(response="yes", approval=approval))
            async for event in handler.stream_events():
                if isinstance(event, ToolCallResult):
                    told[event.tool_id] = event.tool_output.raw_output
            await handler
        return told, saga

    told, saga = asyncio.run(go_on(*asyncio.run(ask())))
    assert told == {f"c{number + 1}": {"id": args["thing"]} for number, (_, args) in enumerate(CALLS)}
    assert (len(shop.standing), saga.report.outcome) == (4, "committed")


class Retrying(FunctionAgent):
    @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
    async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
        result = await super().call_tool(ctx, ev)
        if result.tool_output.exception is not None:
            raise result.tool_output.exception
        return result


def test_llama_index_18953_finished_siblings_of_a_failed_step(kit, shop, maker):
    """#18953: a step that is tried again and fails for good leaves the saga knowing what its siblings did."""
    shop.raises["boom"] = ValueError("broken")
    agent = maker.agent([charge, acharge, boom], [("charge", A), ("acharge", B), ("boom", A)], kind=Retrying)
    with pytest.raises(ValueError, match="broken") as caught, kit.transaction("buy") as saga:
        run(agent)
    assert "rolled back, clean" in caught.value.__notes__[-1]
    assert (shop.standing, len(saga.report.compensated)) == ([], 2)


class NoRepeats:
    def decide(self, call, saga):
        return Refuse("this was done already") if call.repeats else Allow()


def test_llama_index_19036_the_same_call_again_and_again(kit, shop, maker):
    """#19036: a model that makes the same call again, under new ids, meets a policy that sees that it repeats one."""
    agent = maker.agent([charge], ("charge", A), ("charge", A), ("charge", A))
    with kit.transaction("buy", policies=[NoRepeats()]) as saga:
        told = run(agent)
    assert [told[id_].is_error for id_ in ("c1", "c2", "c3")] == [False, True, True]
    assert "done already" in told["c3"].content
    assert (shop.count("charge"), saga.report.outcome) == (1, "committed")


# -- cases from the field ---------------------------------------------------------------------------------------------


def test_case_3_and_4_a_late_reply_is_not_charged_again(kit, shop, maker):
    """An effect whose reply was lost, and which the model asks for again, is found by its probe: charged once."""
    shop.raises["probed"] = TimeoutError("no reply")
    with kit.transaction("buy") as saga:
        told = run(maker.agent([probed], ("probed", A), ("probed", A), ("probed", A)))
    assert (told["c1"].is_error, told["c2"].raw_output) == (True, {"id": "a"})
    assert saga.report.outcome == "committed"
    assert shop.count("probed") == 2  # The third call is a new one, lost and found again.


def test_case_7_one_argument_tools_are_not_called_twice(kit, shop):
    """`acall_tool` repeats a call with one argument on any error: not once the effect may have happened."""
    kit.declare("lost", in_doubt_on=[ValueError], **BACK)

    async def lost(thing: str) -> dict:
        """Charge; the answer is lost."""
        new("lost", thing)
        raise ValueError("lost")

    async def main():
        async with kit.transaction("buy"):
            output = await acall_tool(protect(tool(lost), kit), A)
            assert output.is_error

    with pytest.raises(SagaRolledBack):
        asyncio.run(main())
    assert shop.count("lost") == 1


def test_case_11_a_repaired_error_rolls_nothing_back(kit, shop, maker):
    """A transient error that the model repairs is no failure of the saga."""
    flaky = iter([ConnectionRefusedError("not now"), None])

    def order(thing: str) -> dict:
        """Order."""
        error = next(flaky)
        if error:
            raise error
        return new("order", thing)

    kit.declare("order", **BACK)
    with kit.transaction("buy") as saga:
        run(maker.agent([charge, tool(order)], ("charge", A), ("order", B), ("order", B)))
    assert (saga.report.outcome, shop.standing, shop.count("refund")) == ("committed", ["a", "b"], 0)


def test_case_19_an_approval_is_for_the_call_that_was_shown(kit, shop, maker):
    """An approval counts for the arguments that were asked about, once: another call is asked about again."""
    asked = []

    async def main():
        agent = maker.agent([charge], ("charge", A), ("charge", A), ("charge", B))
        async with kit.transaction("buy", policies=[Ever()]) as saga:
            handler = agent.run(user_msg="go")
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    asked.append(event.get("approval"))
                    handler.ctx.send_event(HumanResponseEvent(response="yes", approval=event.get("approval")))
            await handler
        return saga

    saga = asyncio.run(main())
    assert (len(set(asked)), shop.count("charge"), saga.report.outcome) == (3, 3, "committed")


def test_a_tool_that_only_the_framework_knows(kit, shop, maker):
    """A tool of which the kit knows nothing does not run inside a saga: said when it is set up, or when it comes."""
    with pytest.raises(UndeclaredTool, match="unknown"):
        maker.agent([tool(look.real_fn, name="unknown")])
    agent = maker.agent([charge])
    agent.llm.say(turns([("charge", A), ("unknown", B)]))
    agent.tools.append(tool(charge.real_fn, name="unknown"))

    async def main():
        async with kit.transaction("buy") as saga:
            return await arun(agent), saga

    told, saga = asyncio.run(main())
    assert told["c2"].is_error
    assert (shop.standing, saga.report.outcome) == (["a"], "committed")
    assert {one["tool"] for one in read_records(kit.log) if one["kind"] == "intent"} == {"charge"}
