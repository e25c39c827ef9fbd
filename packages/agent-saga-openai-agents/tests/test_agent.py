"""Runs of protected agents: every call is a step, in every way to run, and nothing gets past it."""

import asyncio
import copy
import dataclasses
import threading

import pytest
from agents import (
    Agent,
    ModelBehaviorError,
    Runner,
    SQLiteSession,
    UserError,
    function_tool,
    handoff,
    trace,
)
from agents_scripted import WAYS, Scripted, answers, run, run_sync, turns
from agents_shop import BACK, NoBigOnes, aboom, acharge, boom, charge, look, new, raising, refund

from agent_saga import SagaRolledBack
from agent_saga.spi import read_records
from agent_saga_openai_agents import protect


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
