"""What users of openai/openai-agents-python ran into, each with its issue: what the saga makes of it."""

import asyncio
import json
import threading

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    Runner,
    RunState,
    SQLiteSession,
    UserError,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from agents_scripted import Scripted, answers, run_sync, turns
from agents_shop import BACK, boom, charge, new

from agent_saga import Allow, Ask, Refuse, SagaRolledBack

CHARGE = ("charge", {"thing": "a"})


def gated(name="charge"):
    return function_tool(charge.__wrapped__, name_override=name, needs_approval=True)


async def approved(agent, result):
    state = await RunState.from_json(agent, json.loads(json.dumps(result.to_state().to_json())))
    for item in state.get_interruptions():
        state.approve(item)
    return state


class FailsOnce(SQLiteSession):
    """A session whose store fails for the first items that it is given after `fail` was set."""

    fail = False

    async def add_items(self, items):
        if self.fail and items:
            self.fail = False
            raise OSError("the disk is full")
        await super().add_items(items)


def test_4615_an_approved_tool_ran_and_the_session_was_not_written(kit, shop, maker):
    """#4615: the session cannot be written after an approved call; going on once more makes no second effect."""
    agent = maker.agent([gated()], CHARGE)
    session = FailsOnce("s1")

    async def main():
        async with kit.transaction("buy", key="order-1"):
            result = await Runner.run(agent, "go", session=session)
        session.fail = True
        async with kit.transaction("buy", key="order-1") as saga:
            with pytest.raises(OSError, match="full"):
                await Runner.run(agent, await approved(agent, result), session=session)
            agent.model.said = 1
            await Runner.run(agent, await approved(agent, result), session=session)
        return saga.report

    report = asyncio.run(main())
    assert (report.outcome, shop.events) == ("committed", [("charge", "a")])
    session.close()


@output_guardrail
async def trips(context, agent, output):
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


def test_4827_an_output_guardrail_trips_after_an_approved_call(kit, shop, maker):
    """#4827: what the session keeps after a tripped guardrail does not matter: the effect is taken back."""
    agent = maker.agent([gated()], CHARGE, output_guardrails=[trips])

    async def main():
        async with kit.transaction("buy", key="order-1"):
            result = await Runner.run(agent, "go")
        async with kit.transaction("buy", key="order-1"):
            await Runner.run(agent, await approved(agent, result))

    with pytest.raises(OutputGuardrailTripwireTriggered):
        asyncio.run(main())
    assert shop.events == [("charge", "a"), ("refund", "a")]


class NoRepeats:
    def decide(self, call, saga):
        return Refuse("this was done already") if call.repeats else Allow()


def test_2426_a_model_that_forgot_what_it_did(kit, shop, maker):
    """#2426: a later run without the session's items makes an equal call; a policy sees that it repeats one."""
    with kit.transaction("buy", policies=[NoRepeats()]) as saga:
        run_sync(maker.agent([charge], CHARGE))
        again = maker.agent([charge])
        again.model = Scripted(turns(CHARGE, ids="other"))
        (text,) = answers(run_sync(again))
    assert "this was done already" in text
    assert (len(saga.report.kept), shop.count("charge")) == (1, 1)


def test_2584_a_failing_sibling(kit, shop, maker):
    """#2580, PR #2584: a fatal error beside a call that succeeded: that one is taken back."""

    @function_tool(failure_error_function=None)
    def bad(thing: str) -> dict:
        """Fail."""
        raise ValueError("no stock")

    kit.declare("bad", **BACK)
    agent = maker.agent([charge, bad], [CHARGE, ("bad", {"thing": "b"})])
    with pytest.raises(UserError), kit.transaction("buy") as saga:
        run_sync(agent)
    assert (saga.report.clean, shop.standing) == (True, [])


def test_4142_a_sibling_that_writes_after_the_run_failed(kit, shop, maker):
    """PR #4142, #4185: a sync tool acts after its sibling has ended the run: it is waited for, and taken back."""
    started, failed = threading.Event(), threading.Event()

    @function_tool
    def late(thing: str) -> dict:
        """Write when the run has failed."""
        started.set()
        assert failed.wait(20)
        return new("late", thing)

    @function_tool(failure_error_function=None)
    async def bad(thing: str) -> dict:
        """Fail when the sibling runs."""
        assert await asyncio.to_thread(started.wait, 20)
        raise ValueError("no stock")

    kit.declare("bad", **BACK)
    agent = maker.agent([late, bad], [("late", {"thing": "a"}), ("bad", {"thing": "b"})])

    async def main():
        async with kit.transaction("buy"):
            try:
                await Runner.run(agent, "go")
            finally:
                failed.set()

    with pytest.raises(UserError):
        asyncio.run(main())
    assert shop.events == [("late", "a"), ("refund", "a")]


@pytest.mark.parametrize("streamed", [False, True])
def test_624_a_guardrail_trips_after_a_tool_has_acted(kit, shop, maker, streamed):
    """#624, #889, #991, #1985: an input guardrail that runs beside the agent trips late: the effect is taken back."""
    acted = asyncio.Event()

    @function_tool
    async def act(thing: str) -> dict:
        """Act."""
        result = new("act", thing)
        acted.set()
        return result

    @input_guardrail
    async def late(context, agent, given):
        await acted.wait()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    kit.declare("act", **BACK)
    agent = maker.agent([act], ("act", {"thing": "a"}), input_guardrails=[late])

    async def main():
        async with kit.transaction("buy"):
            if streamed:
                async for _ in Runner.run_streamed(agent, "go").stream_events():
                    pass
            else:
                await Runner.run(agent, "go")

    with pytest.raises(InputGuardrailTripwireTriggered):
        asyncio.run(main())
    assert shop.events == [("act", "a"), ("refund", "a")]


class AskFirst:
    def decide(self, call, saga):
        return Ask("sure?", suspend=True)


def test_4244_a_context_that_is_given_on_resume(kit, shop, maker):
    """#4244: `context=` beside a resumed state: no second question, and one effect."""
    agent = maker.agent([charge], CHARGE)
    options = {"key": "order-1", "policies": [AskFirst()]}

    async def main():
        async with kit.transaction("buy", **options):
            result = await Runner.run(agent, "go", context={"user": "ann"})
        async with kit.transaction("buy", **options) as saga:
            result = await Runner.run(agent, await approved(agent, result), context={"user": "ann"})
        return result, saga.report

    result, report = asyncio.run(main())
    assert (result.interruptions, report.outcome, shop.events) == ([], "committed", [("charge", "a")])


def test_2386_sync_tools_in_threads(kit, shop, maker):
    """#2386: sync tools run in threads of their own, at the same time: both are steps."""
    both = threading.Barrier(2)

    @function_tool
    def meet(thing: str) -> dict:
        """Act when the other one is there."""
        both.wait(20)
        return new("meet", thing)

    kit.declare("meet", **BACK)
    agent = maker.agent([meet], [("meet", {"thing": "a"}), ("meet", {"thing": "b"})])
    with kit.transaction("buy") as saga:
        run_sync(agent)
    assert sorted(step.kwargs["thing"] for step in saga.report.kept) == ["a", "b"]


def test_252_calls_within_an_agent_that_is_a_tool(kit, shop, maker):
    """#252, #2036: calls of an agent that is a tool, which hooks of the outer run do not see, are steps."""
    inner = Agent(name="inner", tools=[charge], model=Scripted(turns(CHARGE, ids="s")))
    with kit.transaction("buy") as saga:
        run_sync(maker.agent([inner.as_tool("ask", "Ask.")], ("ask", {"input": "x"})))
    assert [(step.tool, step.kwargs) for step in saga.report.kept] == [CHARGE]


def test_2179_a_failure_within_an_agent_that_is_a_tool(kit, shop, maker):
    """PR #2179: the outer agent hears that all is well, or a text; the inner step has failed, and nothing commits."""
    shop.raises["boom"] = ValueError("no stock")
    inner = Agent(name="inner", tools=[boom], model=Scripted(turns(("boom", {"thing": "a"}), ids="s")))
    agent = maker.agent([charge, inner.as_tool("ask", "Ask.")], CHARGE, ("ask", {"input": "x"}))
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("buy"):
        assert answers(run_sync(agent))[1] == "done"
    assert shop.standing == []
