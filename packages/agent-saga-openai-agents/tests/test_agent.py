"""Runs of protected agents: every call is a step, in every way to run, and nothing gets past it."""

import asyncio
import copy
import dataclasses
import threading

import pytest
from agents import (
    Agent,
    AgentHooks,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    UserError,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    trace,
)
from agents.tracing import TracingProcessor, set_trace_processors, set_tracing_disabled
from agents_scripted import Scripted, answers, run_sync, turns
from agents_shop import BACK, aboom, acharge, boom, charge, look, new, probed, refund

from agent_saga import SagaRolledBack
from agent_saga.spi import read_records
from agent_saga_openai_agents import protect


async def stream(agent, given="go", **options):
    result = Runner.run_streamed(agent, given, **options)
    async for _ in result.stream_events():
        pass
    return result


WAYS = pytest.mark.parametrize("way", ["sync", "async", "stream"])


def run(way, agent, given="go", **options):
    if way == "sync":
        return run_sync(agent, given, **options)
    return asyncio.run((stream if way == "stream" else Runner.run)(agent, given, **options))


def raising(name, error, **ways):
    """A tool that raises before anything has happened; by default the run fails with it."""

    def body(thing: str) -> dict:
        """Fail."""
        raise error

    return function_tool(body, name_override=name, **{"failure_error_function": None, **ways})


@WAYS
def test_a_run_that_succeeds_commits(kit, maker, way):
    """Every tool call of a run is one step, and the saga around it commits."""
    agent = maker.agent([charge, look], ("charge", {"thing": "a"}), ("look", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        result = run(way, agent)
    assert (answers(result), result.final_output) == ([{"id": "a"}, "a: fine"], "done")
    (step,) = saga.report.kept
    assert (saga.report.outcome, step.tool, step.kwargs, step.result) == (
        "committed",
        "charge",
        {"thing": "a"},
        {"id": "a"},
    )


@WAYS
def test_a_run_that_fails_is_rolled_back(kit, shop, maker, way):
    """An exception that leaves the run rolls everything back, in reverse, and stays the original one."""
    fails = raising("boom", ValueError("no stock"))
    calls = [("charge", {"thing": "a"}), ("acharge", {"thing": "b"}), ("boom", {"thing": "c"})]
    agent = maker.agent([charge, acharge, fails], *calls)
    with pytest.raises(UserError, match="no stock"), kit.transaction("buy") as saga:
        run(way, agent)
    assert (saga.report.clean, shop.standing) == (True, [])
    assert shop.events[2:] == [("refund", "b"), ("refund", "a")]


@WAYS
@pytest.mark.parametrize("custom", [False, True])
def test_swallowed_errors_do_not_commit(kit, shop, maker, way, custom):
    """An error that the framework tells to the model still fails the saga, and the message names it."""
    tool = boom if way == "sync" else aboom
    shop.raises[tool.name] = ValueError("no stock")
    if custom:
        tool = function_tool(tool.__wrapped__, failure_error_function=lambda context, error: "never mind")
    agent = maker.agent([charge, tool], ("charge", {"thing": "a"}), (tool.name, {"thing": "b"}))
    with pytest.raises(SagaRolledBack, match=tool.name), kit.transaction("buy"):
        result = run(way, agent)
        assert result.final_output == "done"
    assert shop.standing == []
    assert ("never mind" in answers(result)) == custom


def test_a_failure_that_the_model_repairs_commits(kit, shop, maker):
    """A failed call that the model makes again, and that succeeds then, leaves nothing unresolved."""
    failures = iter([ValueError("busy")])

    @function_tool
    def flaky(thing: str) -> dict:
        """Fail once."""
        for failure in failures:
            raise failure
        return new("flaky", thing)

    kit.declare("flaky", **BACK)
    agent = maker.agent([flaky], ("flaky", {"thing": "a"}), ("flaky", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        run_sync(agent)
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"])


def test_the_intent_is_durable_before_the_body(kit, maker):
    """When a tool's body runs, another reader of the log finds its intent there."""
    seen = []

    @function_tool
    def spy(thing: str) -> str:
        """Look into the log."""
        seen.extend(record for record in read_records(kit.log) if record["kind"] == "intent")
        return "seen"

    kit.declare("spy", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    with kit.transaction("buy"):
        run_sync(maker.agent([spy], ("spy", {"thing": "a"})))
    (intent,) = seen
    assert (intent["tool"], intent["adapter"], intent["call_id"]) == ("spy", "openai-agents", "c1")
    assert intent["values"]["kwargs.thing"] == "a"


def test_without_a_saga_nothing_happens(kit, shop, maker, tmp_path):
    """Outside of a saga a protected agent runs as it did, and writes no log."""
    bare = Agent(name="a", model=Scripted(turns(("charge", {"thing": "a"}))), tools=[charge])
    agent = maker.agent([charge], ("charge", {"thing": "a"}))
    assert answers(run_sync(agent)) == answers(run_sync(bare))
    assert (shop.count("charge"), list(tmp_path.iterdir())) == (2, [])


# -- what an agent is, and what is added to it --------------------------------------------------------------------


def test_an_agent_stays_what_it_was(kit):
    """Protecting changes an agent in place, once; it is an instance of its class, and equal in all fields."""

    class Mine(Agent):
        pass

    agent = Mine(name="a", tools=[charge], instructions="Buy.", handoffs=[])
    before = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
    assert protect(agent, kit) is agent
    tools = list(agent.tools)
    assert protect(agent, kit) is agent
    assert isinstance(agent, Mine)
    assert all(one is other for one, other in zip(agent.tools, tools, strict=True))
    assert {name: getattr(agent, name) for name in before if name != "tools"} == {
        name: value for name, value in before.items() if name != "tools"
    }


@pytest.mark.parametrize(
    "copied",
    [
        lambda agent, **changes: agent.clone(**changes),
        dataclasses.replace,
        lambda agent, **changes: [setattr(twin := copy.copy(agent), *item) for item in changes.items()] and twin,
    ],
    ids=["clone", "replace", "copy"],
)
def test_copies_of_an_agent_are_protected(kit, shop, maker, copied):
    """A copy of a protected agent is protected, also where it has other tools."""
    agent = copied(maker.agent([charge], ("boom", {"thing": "a"})), tools=[boom])
    with kit.transaction("buy") as saga:
        run_sync(agent)
    assert [step.tool for step in saga.report.kept] == ["boom"]


@pytest.mark.parametrize("declared", [False, True])
def test_tools_added_later(kit, shop, maker, declared):
    """A tool that is added to a protected agent is a step; an undeclared one is refused, with the line to add."""

    @function_tool
    def extra(thing: str) -> dict:
        """Not known before."""
        return new("extra", thing)

    agent = maker.agent([charge], ("extra", {"thing": "a"}))
    agent.tools.append(extra)
    if declared:
        kit.declare("extra", **BACK)
    with kit.transaction("buy") as saga:
        (answer,) = answers(run_sync(agent))
    assert len(saga.report.kept) == shop.count("extra") == declared
    assert declared or "kit.declare('extra'" in answer


def test_tools_that_may_not_be_there_are_still_asked(kit, maker):
    """`is_enabled` decides as before."""
    shown = function_tool(charge.__wrapped__, is_enabled=lambda context, agent: agent.name == "buyer")
    hidden = function_tool(boom.__wrapped__, is_enabled=False)
    agent = maker.agent([shown, hidden])
    run_sync(agent)
    assert [tool.name for tool in agent.model.tools[0]] == ["charge"]


# -- other agents -------------------------------------------------------------------------------------------------


def seller(calls, name="seller", tools=(boom,), **options):
    return Agent(name=name, model=Scripted(turns(*calls, ids=name)), tools=list(tools), **options)


FORMS = {
    "agent": lambda target: target,
    "handoff": handoff,
    "filtered": lambda target: handoff(target, input_filter=lambda data: data),
}


@pytest.mark.parametrize("way", ["async", "stream"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("added", ["before", "after"])
def test_handoffs(kit, maker, way, form, added):
    """The agent that a protected one hands over to is protected, also when the handoff is added later."""
    target = FORMS[form](seller([("boom", {"thing": "b"})]))
    calls = [("charge", {"thing": "a"}), ("transfer_to_seller", {})]
    agent = maker.agent([charge], *calls, handoffs=[target] if added == "before" else [])
    if added == "after":
        agent.handoffs.append(target)
    with kit.transaction("buy") as saga:
        run(way, agent)
    assert [step.tool for step in saga.report.kept] == ["charge", "boom"]


def test_a_handoff_to_an_agent_made_on_the_way(kit, shop, maker):
    """An agent that a handoff makes when it is asked for is protected then."""
    made = handoff(seller([]))
    made._agent_ref = None  # As of a Handoff made by hand.

    async def on_invoke_handoff(context, arguments):
        return seller([("boom", {"thing": "b"})])

    made.on_invoke_handoff = on_invoke_handoff
    agent = maker.agent([charge], ("transfer_to_seller", {}), handoffs=[made])
    with kit.transaction("buy") as saga:
        run_sync(agent)
    assert [step.tool for step in saga.report.kept] == ["boom"]


def test_agents_that_hand_over_in_a_circle(kit, shop):
    """Agents that know one another are all protected, whichever is named."""
    first = seller([("charge", {"thing": "a"}), ("transfer_to_second", {})], "first", [charge])
    second = seller([("transfer_to_first", {})], "second", handoffs=[first])
    first.handoffs.append(second)
    protect(second, kit)
    with kit.transaction("buy") as saga:
        run_sync(first)
    assert [step.tool for step in saga.report.kept] == ["charge"]


@WAYS
def test_an_agent_as_a_tool_is_a_pass_through(kit, shop, maker, way):
    """The tools of an agent that is a tool itself are steps of the same saga; the agent is none, and needs no word."""
    fails = raising("boom", ValueError("no stock"))
    inner = seller([("acharge", {"thing": "a"})], tools=[acharge])
    calls = [("ask", {"input": "x"}), ("boom", {"thing": "b"})]
    agent = maker.agent([inner.as_tool("ask", "Ask."), fails], *calls)
    with pytest.raises(UserError, match="no stock"), kit.transaction("buy") as saga:
        run(way, agent)
    assert [step.tool for step in saga.report.compensated] == ["acharge"]
    assert shop.events == [("acharge", "a"), ("refund", "a")]


def test_equal_calls_of_an_agent_that_is_asked_twice(kit, shop, maker):
    """Two runs of one sub-agent are two runs: equal calls with equal ids in them are two steps."""
    inner = Agent(name="inner", tools=[charge], model=Scripted([[("charge", {"thing": "a"}, "s1")], []] * 2))
    agent = maker.agent([inner.as_tool("ask", "Ask.")], ("ask", {"input": "x"}), ("ask", {"input": "y"}))
    with kit.transaction("buy") as saga:
        run_sync(agent)
    assert len(saga.report.kept) == shop.count("charge") == 2


# -- at the same time ---------------------------------------------------------------------------------------------


@WAYS
def test_parallel_calls(kit, shop, maker, way):
    """Calls of one turn run in parallel, in threads and in the loop, each as a step of its own."""
    calls = [("acharge" if number % 2 else "charge", {"thing": str(number)}) for number in range(6)]
    with kit.transaction("buy") as saga:
        run(way, maker.agent([charge, acharge], calls))
    assert sorted(step.result["id"] for step in saga.report.kept) == list("012345") == sorted(shop.standing)


@pytest.mark.parametrize("slow", ["thread", "loop"])
def test_parallel_with_a_failing_sibling(kit, shop, maker, slow):
    """When one of two parallel calls fails, what the other one does is taken back, also when it acts afterwards."""
    started, failed = threading.Event(), threading.Event()

    @function_tool
    def late(thing: str) -> dict:
        """Act when the sibling has failed."""
        started.set()
        assert failed.wait(20)
        return new("late", thing)

    @function_tool(name_override="late")
    async def alate(thing: str) -> dict:
        """Act before the sibling fails, and be cancelled."""
        result = new("late", thing)
        started.set()
        await asyncio.Event().wait()
        return result

    @function_tool(failure_error_function=None)
    async def fails(thing: str) -> dict:
        """Fail once the sibling runs."""
        assert await asyncio.to_thread(started.wait, 20)
        asyncio.get_running_loop().call_later(0.05, failed.set)
        raise ValueError("no stock")

    kit.declare("fails", **BACK)
    tools = [late if slow == "thread" else alate, fails]
    agent = maker.agent(tools, [("late", {"thing": "a"}), ("fails", {"thing": "b"})])

    async def buy():
        async with kit.transaction("buy") as saga:
            sagas.append(saga)
            await Runner.run(agent, "go")

    sagas = []
    with pytest.raises(UserError, match="no stock"):
        asyncio.run(buy())
    assert (sagas[0].report.clean, shop.events) == (True, [("late", "a"), ("refund", "a")])


def test_two_sagas_side_by_side(kit, shop, maker):
    """Runs in two tasks, each in a saga of its own, stay apart."""

    async def buy(tools, *calls):
        async with kit.transaction("buy") as saga:
            await Runner.run(maker.agent(tools, *calls), "go")
        return saga.report

    async def main():
        fails = raising("boom", ValueError("no stock"))
        good = buy([acharge], ("acharge", {"thing": "a"}))
        bad = buy([acharge, fails], ("acharge", {"thing": "b"}), ("boom", {"thing": "c"}))
        return await asyncio.gather(good, bad, return_exceptions=True)

    report, error = asyncio.run(main())
    assert (report.outcome, len(report.kept), type(error), shop.standing) == ("committed", 1, UserError, ["a"])


def test_a_shared_agent_serves_sagas_and_none(kit, shop, maker):
    """One protected agent may run in several sagas and outside of any at once."""

    async def main():
        agent = maker.agent([acharge])
        agent.model = Scripted([[("acharge", {"thing": "a"}, "c1")]] * 3)

        async def buy(within):
            if not within:
                return await Runner.run(agent, "go")
            async with kit.transaction("buy", policies=within) as saga:
                await Runner.run(agent, "go")
            return saga.report

        return await asyncio.gather(buy([NoBigOnes()]), buy(()), buy([]))

    with pytest.warns(match="without a saga"):
        refused, _, _ = asyncio.run(main())
    assert (refused.kept, shop.count("acharge")) == ((), 2)


class NoBigOnes:
    def decide(self, call, saga):
        from agent_saga import Refuse

        return Refuse("too big")


# -- ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_session", [False, True])
@pytest.mark.parametrize("within_one_trace", [False, True])
def test_equal_ids_in_other_runs_are_new_calls(kit, shop, maker, with_session, within_one_trace):
    """Two runs in one saga, of one session or trace, that use the same ids for equal calls, make two steps."""
    agent = maker.agent([charge])
    agent.model = Scripted([[("charge", {"thing": "a"}, "c1")], [], [("charge", {"thing": "a"}, "c1")], []])
    session = SQLiteSession("s1") if with_session else None

    async def main():
        async with kit.transaction("buy") as saga:
            for _ in range(2):
                await Runner.run(agent, "go", session=session)
        return saga.report

    if within_one_trace:
        with trace("both"):
            report = asyncio.run(main())
    else:
        report = asyncio.run(main())
    assert len(report.kept) == shop.count("charge") == 2
    if session is not None:
        session.close()


def test_an_equal_id_in_one_run(kit, shop, maker):
    """The framework makes an equal call with an equal id once, and refuses another one; the saga rolls back."""
    agent = maker.agent([charge])
    agent.model = Scripted([[("charge", {"thing": "a"}, "c1")], [("charge", {"thing": "b"}, "c1")]])
    with pytest.raises(ModelBehaviorError), kit.transaction("buy"):
        run_sync(agent)
    assert shop.events == [("charge", "a"), ("refund", "a")]


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
