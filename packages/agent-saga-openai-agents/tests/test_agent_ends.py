"""Time, threads, guardrails, hooks and traces: how runs of the OpenAI Agents adapter end."""

import asyncio
import threading

import pytest
from agents import (
    AgentHooks,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    function_tool,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from agents.tracing import TracingProcessor, set_trace_processors, set_tracing_disabled
from agents_scripted import Scripted, answers, run, run_sync, turns
from agents_shop import BACK, NoBigOnes, charge, look, new, probed

from agent_saga.spi import read_records

# -- time ---------------------------------------------------------------------------------------------------------


def test_a_timeout_is_in_doubt(kit, shop, maker):
    """A tool that the framework gives up is in doubt, whatever its effect does then; its probe settles it."""
    acted = threading.Event()

    @function_tool(name_override="probed", timeout=0.05)
    async def slow(thing: str) -> dict:
        """Act in a task of its own, which no timeout reaches."""

        async def act():
            await asyncio.to_thread(acted.wait, 20)
            return new("probed", thing)

        return await asyncio.shield(asyncio.ensure_future(act()))

    agent = maker.agent([slow], ("probed", {"thing": "a"}))

    async def main():
        async with kit.transaction("buy", drain_s=0.1) as saga:
            result = await Runner.run(agent, "go")
            assert "timed out" in answers(result)[0]
            states = [step.state for step in saga.steps()]
            acted.set()
            await wait_until(lambda: shop.count("probed"))
        return states, saga.report

    states, report = asyncio.run(main())
    assert states == ["in_doubt"]
    assert [step.state for step in report.kept] == ["standing"]


async def wait_until(happened):
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.001)


def test_a_cancelled_run_with_a_sync_tool(kit, shop, maker):
    """A sync tool that acts after its run was cancelled is waited for, and taken back."""
    started, go_on = threading.Event(), threading.Event()

    @function_tool
    def late(thing: str) -> dict:
        """Act when told."""
        started.set()
        assert go_on.wait(20)
        return new("late", thing)

    agent = maker.agent([late], ("late", {"thing": "a"}))
    sagas = []

    async def buy():
        async with kit.transaction("buy") as saga:
            sagas.append(saga)
            try:
                await Runner.run(agent, "go")
            finally:
                asyncio.get_running_loop().call_later(0.05, go_on.set)

    async def main():
        task = asyncio.create_task(buy())
        assert await asyncio.to_thread(started.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (shop.events, sagas[0].report.clean) == ([("late", "a"), ("refund", "a")], True)


def test_an_answer_after_the_end(kit, shop, maker):
    """A sync tool that acts when its saga has given it up is a late outcome, and is compensated then."""
    started, go_on = threading.Event(), threading.Event()

    @function_tool
    def late(thing: str) -> dict:
        """Act when told."""
        started.set()
        assert go_on.wait(20)
        return new("late", thing)

    agent = maker.agent([late], ("late", {"thing": "a"}))

    async def main():
        try:
            async with kit.transaction("buy", drain_s=0.05):
                async with asyncio.timeout(None) as limit:
                    task = asyncio.ensure_future(Runner.run(agent, "go"))
                    assert await asyncio.to_thread(started.wait, 20)
                    limit.reschedule(0)
                    await task
        finally:
            go_on.set()
            await wait_until(lambda: shop.count("refund"))

    with pytest.raises(Exception, match="partial"):
        asyncio.run(main())
    assert shop.events == [("late", "a"), ("refund", "a")]
    assert [record["kind"] for record in read_records(kit.log)].count("late_outcome") == 1


def test_a_run_in_a_thread_of_its_own_fails_closed(kit, shop, maker):
    """Where the context is lost a tool that needs a saga is refused, and `saga.bind` brings it back."""
    kit.declare("charge", requires_saga=True, **BACK)
    agent = maker.agent([charge])
    agent.model = Scripted([[("charge", {"thing": "a"}, "c1")], [], [("charge", {"thing": "a"}, "c2")], []])
    told = []

    def alone():
        told.extend(answers(asyncio.run(Runner.run(agent, "go"))))

    def in_thread(body):
        thread = threading.Thread(target=body)
        thread.start()
        thread.join(20)

    with kit.transaction("buy") as saga:
        in_thread(alone)
        assert ("must run inside a saga" in told[0], shop.events) == (True, [])
        in_thread(saga.bind(alone))
    assert (told[1], len(saga.report.kept), shop.standing) == ({"id": "a"}, 1, ["a"])


def test_a_stream_that_outlives_its_saga_is_refused(kit, shop, maker):
    """A run that is started in a scope, and goes on after it, makes no more calls: each is refused."""
    go_on = asyncio.Event()

    class Slow(Scripted):
        async def stream_response(self, *args, **kwargs):
            await go_on.wait()
            async for event in super().stream_response(*args, **kwargs):
                yield event

    async def main():
        agent = maker.agent([charge], model=Slow(turns(("charge", {"thing": "a"}))))
        async with kit.transaction("buy"):
            result = Runner.run_streamed(agent, "go")
        go_on.set()
        async for _ in result.stream_events():
            pass
        return answers(result)

    (text,) = asyncio.run(main())
    assert ("did not run" in text, shop.events) == (True, [])


# -- guardrails, hooks, limits, traces ----------------------------------------------------------------------------


@input_guardrail
async def trips_late(context, agent, given):
    """Trip when the tool has acted: by default guardrails run beside the agent."""
    await wait_until(_acted.is_set)
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


@output_guardrail
async def trips(context, agent, output):
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


_acted = threading.Event()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"output_guardrails": [trips]}, OutputGuardrailTripwireTriggered),
        ({"max_turns": 1}, MaxTurnsExceeded),
        ({"dies": RuntimeError("model died")}, RuntimeError),
    ],
    ids=["output guardrail", "max turns", "model"],
)
def test_runs_that_end_badly_after_an_effect(kit, shop, maker, options, error):
    """Whatever ends a run with an exception, after a tool acted, takes the effect back."""
    limits = {name: options[name] for name in ("max_turns",) if name in options}
    others = {name: value for name, value in options.items() if name.endswith("guardrails")}
    calls = [("charge", {"thing": "a"}), *([options["dies"]] if "dies" in options else [])]
    agent = maker.agent([charge], *calls, **others)
    with pytest.raises(error), kit.transaction("buy"):
        run("stream", agent, **limits)
    assert shop.events == [("charge", "a"), ("refund", "a")]


def test_tool_guardrails_come_first(kit, shop, maker):
    """A call that a tool guardrail rejects is no step."""

    @tool_input_guardrail
    def no(data):
        return ToolGuardrailFunctionOutput.reject_content("not today")

    guarded = function_tool(charge.__wrapped__, tool_input_guardrails=[no])
    with kit.transaction("buy") as saga:
        assert answers(run_sync(maker.agent([guarded], ("charge", {"thing": "a"})))) == ["not today"]
    assert (saga.report.kept, shop.events) == ((), [])


class Sees(AgentHooks):
    def __init__(self):
        self.seen = []

    async def on_tool_start(self, context, agent, tool):
        self.seen.append(tool.name)

    async def on_tool_end(self, context, agent, tool, result):
        self.seen.append(result)


def test_hooks_see_what_they_saw(kit, maker):
    """The framework's hooks see each call, and its raw result."""
    hooks = Sees()
    with kit.transaction("buy"):
        run_sync(maker.agent([charge], ("charge", {"thing": "a"}), hooks=hooks))
    assert hooks.seen == ["charge", {"id": "a"}]


class Traces(TracingProcessor):
    def __init__(self):
        self.ended = []
        self.errors = []

    def on_trace_start(self, trace):
        pass

    def on_trace_end(self, trace):
        self.ended.append(trace.export()["metadata"])

    def on_span_start(self, span):
        pass

    def on_span_end(self, span):
        if span.span_data.type == "function" and span.error:
            self.errors.append(span.error["data"])

    def shutdown(self):
        pass

    def force_flush(self):
        pass


@pytest.fixture
def traces():
    made = Traces()
    set_trace_processors([made])
    set_tracing_disabled(False)
    yield made
    set_tracing_disabled(True)
    set_trace_processors([])


def test_the_saga_id_is_on_the_traces(kit, maker, traces):
    """A run's trace carries the saga's id, beside the metadata of the user's; without a saga there is none."""
    agent = maker.agent([look])
    config = RunConfig(trace_metadata={"mine": "1"})
    with kit.transaction("buy") as saga:
        run_sync(agent)
        run_sync(agent, run_config=config)
    run_sync(agent, run_config=config)
    assert [
        metadata and {k: v for k, v in metadata.items() if k in {"mine", "saga_id"}} for metadata in traces.ended
    ] == [
        {"saga_id": saga.id},
        {"mine": "1", "saga_id": saga.id},
        {"mine": "1"},
    ]


def test_a_refusal_is_on_the_traces(kit, maker, traces):
    """The span of a refused call says so, with the reason."""
    with kit.transaction("buy", policies=[NoBigOnes()]):
        run_sync(maker.agent([charge], ("charge", {"thing": "a"})))
    (error,) = traces.errors
    assert "too big" in error["reason"]


def test_a_step_in_doubt_is_settled(kit, shop, maker):
    """A call that failed after its effect is found by its probe, and its repetition is answered with the result."""
    shop.raises["probed"] = TimeoutError("no answer")
    agent = maker.agent([probed], ("probed", {"thing": "a"}), ("probed", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        first, second = answers(run_sync(agent))
    assert ("error occurred" in first, second) == (True, {"id": "a"})
    assert (shop.count("probed"), len(saga.report.kept)) == (1, 1)


def test_an_input_guardrail_that_trips_late(kit, shop, maker):
    """An input guardrail that trips after a tool has acted takes the effect back."""
    _acted.clear()

    @function_tool
    def act(thing: str) -> dict:
        """Act, and let the guardrail know."""
        result = new("act", thing)
        _acted.set()
        return result

    kit.declare("act", **BACK)
    agent = maker.agent([act], ("act", {"thing": "a"}), input_guardrails=[trips_late])
    with pytest.raises(InputGuardrailTripwireTriggered), kit.transaction("buy"):
        run_sync(agent)
    assert shop.events == [("act", "a"), ("refund", "a")]
