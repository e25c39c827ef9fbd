"""`create_agent` with `SagaMiddleware`: every call of a run is a step, and nothing gets past it."""

import asyncio
import threading

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException, tool
from langgraph.types import Command
from scripted import Scripted, answers, ask, turns
from shop import aboom, acharge, boom, charge, look, new, probed, refund

from agent_saga import Refuse, SagaRolledBack
from agent_saga.errors import NoSaga, UndeclaredTool
from agent_saga_langgraph import SagaMiddleware

BACK = {"effect": "compensable", "compensate": refund.bind(thing="result.id")}


class Swallows(AgentMiddleware):
    """Turns every error of a tool into text, as LangChain's ToolErrorMiddleware does."""

    def wrap_tool_call(self, request, handler):
        try:
            return handler(request)
        except ValueError as error:
            return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")

    async def awrap_tool_call(self, request, handler):
        try:
            return await handler(request)
        except ValueError as error:
            return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")


def run(agent, *, use_async, given=None, config=None):
    given = given or ask()
    return asyncio.run(agent.ainvoke(given, config)) if use_async else agent.invoke(given, config)


@pytest.mark.parametrize("use_async", [False, True])
def test_run_that_succeeds_commits(kit, runner, use_async):
    """Every tool call of a run is one step, and the saga around it commits."""
    agent = runner.agent([charge, look], ("charge", {"thing": "a"}), ("look", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        result = run(agent, use_async=use_async)
    assert answers(result) == [("success", '{"id": "a"}'), ("success", "a: fine")]
    (step,) = saga.report.kept
    assert (saga.report.outcome, step.tool, step.kwargs, step.result) == (
        "committed",
        "charge",
        {"thing": "a"},
        {"id": "a"},
    )


@pytest.mark.parametrize("use_async", [False, True])
def test_run_that_fails_is_rolled_back(kit, shop, runner, use_async):
    """An exception that leaves the run rolls everything back, in reverse, and stays the original one."""
    shop.raises["boom"] = ValueError("no stock")
    agent = runner.agent(
        [charge, boom], ("charge", {"thing": "a"}), ("charge", {"thing": "b"}), ("boom", {"thing": "c"})
    )
    with pytest.raises(ValueError, match="no stock"), kit.transaction("buy") as saga:
        run(agent, use_async=use_async)
    assert (saga.report.clean, shop.standing) == (True, [])
    assert shop.events[2:] == [("refund", "b"), ("refund", "a")]


def test_the_intent_is_durable_before_the_body(kit, runner):
    """When a tool's body runs, another reader of the log finds its intent there."""
    from agent_saga.spi import read_records

    seen = []

    @tool
    def spy(thing: str) -> str:
        """Look into the log."""
        seen.extend(record for record in read_records(kit.log) if record["kind"] == "intent")
        return "seen"

    kit.declare("spy", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    with kit.transaction("buy"):
        runner.agent([spy], ("spy", {"thing": "a"})).invoke(ask())
    (intent,) = seen
    assert (intent["tool"], intent["adapter"], intent["call_id"], intent["values"]["kwargs.thing"]) == (
        "spy",
        "langgraph",
        "c1",
        "a",
    )


def test_swallowed_errors_do_not_commit(kit, shop, runner):
    """An error that the framework turns into text still fails the saga, and the message names it."""
    shop.raises["boom"] = ToolException("no stock")
    soft = boom.model_copy(update={"handle_tool_error": True})
    agent = runner.agent([charge, soft], [("charge", {"thing": "a"}), ("boom", {"thing": "b"})])
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("buy"):
        assert ("error", "no stock") in answers(agent.invoke(ask()))
    assert shop.standing == []


@pytest.mark.parametrize(
    "swallower",
    [Swallows(), ToolRetryMiddleware(max_retries=0, on_failure="continue")],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("use_async", [False, True])
def test_errors_swallowed_by_middleware(kit, shop, runner, swallower, use_async):
    """Middleware that turns errors into text, outside of ours, hides nothing from the saga."""
    shop.raises["boom"] = ValueError("no stock")
    agent = runner.agent([charge, boom], ("charge", {"thing": "a"}), ("boom", {"thing": "b"}), middleware=[swallower])
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("buy"):
        run(agent, use_async=use_async)
    assert shop.standing == []


def test_a_failure_that_the_model_repairs_commits(kit, shop, runner):
    """A failed call that the model makes again, and that succeeds then, leaves nothing unresolved."""
    failures = iter([ToolException("busy")])

    @tool
    def flaky(thing: str) -> dict:
        """Fail once."""
        for failure in failures:
            raise failure
        return new("flaky", thing)

    flaky.handle_tool_error = True
    kit.declare("flaky", **BACK)
    agent = runner.agent([flaky], ("flaky", {"thing": "a"}), ("flaky", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        agent.invoke(ask())
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"])


@pytest.mark.parametrize("as_command", [False, True])
def test_error_shaped_results_count(kit, runner, as_command):
    """A tool that returns an error message instead of raising has failed."""
    from typing import Annotated

    from langchain_core.tools import InjectedToolCallId

    @tool
    def sulk(thing: str, tool_call_id: Annotated[str, InjectedToolCallId]):
        """Say no."""
        message = ToolMessage("no", tool_call_id=tool_call_id, status="error")
        return Command(update={"messages": [message]}) if as_command else message

    kit.declare("sulk", **BACK)
    agent = runner.agent([sulk], ("sulk", {"thing": "a"}))
    with pytest.raises(SagaRolledBack, match="sulk"), kit.transaction("buy"):
        assert answers(agent.invoke(ask())) == [("error", "no")]


class NoBigOnes:
    def decide(self, call, saga):
        return Refuse("too big")


@pytest.mark.parametrize("use_async", [False, True])
def test_a_refusal_is_an_error_message_with_the_reason(kit, shop, runner, use_async):
    """What the gate refuses reaches the model as a tool's error, with the reason, and the run goes on."""
    agent = runner.agent([charge, look], ("charge", {"thing": "a"}), ("look", {"thing": "a"}))
    with kit.transaction("buy", policies=[NoBigOnes()]) as saga:
        result = run(agent, use_async=use_async)
    (status, text), _ = answers(result)
    assert (status, "too big" in text, result["messages"][-1].content) == ("error", True, "done")
    assert (shop.events, saga.report.outcome) == ([], "committed")


def test_undeclared_tools_are_named_before_the_run(kit, shop):
    """An agent with undeclared tools does not begin in a saga; all of them are named at once."""

    @tool
    def one(thing: str) -> str:
        """One."""

    @tool
    def two(thing: str) -> str:
        """Two."""

    model = Scripted(turns=turns(("charge", {"thing": "a"})))
    agent = create_agent(model, [charge, one, two], middleware=[SagaMiddleware(kit)])
    with pytest.raises(UndeclaredTool, match=r"(?s)'one'.*'two'"), kit.transaction("buy"):
        agent.invoke(ask())
    assert shop.events == []
    agent.invoke(ask())
    assert shop.standing == ["a"]


class Adds(AgentMiddleware):
    """Adds a tool that the agent was not made with, and runs calls of it."""

    def __init__(self, added, *, tell):
        super().__init__()
        self.added, self.tell = added, tell

    def wrap_model_call(self, request, handler):
        return handler(request.override(tools=[*request.tools, self.added]) if self.tell else request)

    def wrap_tool_call(self, request, handler):
        return handler(request.override(tool=self.added) if request.tool is None else request)


@pytest.mark.parametrize("inside", [False, True])
def test_tools_added_later_are_refused(kit, shop, runner, inside):
    """A tool that middleware brings along is refused when it is not declared, wherever that middleware stands."""

    @tool
    def extra(thing: str) -> dict:
        """Not known before."""
        return new("extra", thing)

    adds = Adds(extra, tell=False)
    model = Scripted(turns=turns(("extra", {"thing": "a"})))
    ours = [SagaMiddleware(kit)]
    agent = create_agent(model, [charge], middleware=[*ours, adds] if inside else [adds, *ours])
    with kit.transaction("buy"):
        ((status, text),) = answers(agent.invoke(ask()))
    assert (status, shop.events) == ("error", [])
    assert "kit.declare('extra'" in text
    kit.declare("extra", **BACK)
    with kit.transaction("buy") as saga:
        agent.invoke(ask())
    assert [step.tool for step in saga.report.kept] == ["extra"]


def test_tools_added_for_the_model_are_checked(kit, runner):
    """Tools that middleware adds before the model is asked are checked with the others."""

    @tool
    def extra(thing: str) -> str:
        """Not known before."""

    agent = runner.agent([charge], ("extra", {"thing": "a"}), middleware=[Adds(extra, tell=True)])
    with pytest.raises(UndeclaredTool, match="extra"), kit.transaction("buy"):
        agent.invoke(ask())


def test_unknown_tools_and_bad_arguments_are_no_steps(kit, runner):
    """What the framework answers by itself never becomes a step, and fails nothing."""
    agent = runner.agent([charge], [("nothing", {}), ("charge", {"thing": {}})])
    with kit.transaction("buy") as saga:
        result = agent.invoke(ask())
    assert [status for status, _ in answers(result)] == ["error", "error"]
    assert (saga.report.outcome, saga.report.kept) == ("committed", ())


def test_the_model_sees_no_key(kit, shop, runner):
    """The parameter that takes the key is hidden from the model inside a saga, and each step's key arrives."""

    @tool
    def pay(amount: int, idempotency_key: str) -> dict:
        """Pay."""
        return new("pay", idempotency_key)

    kit.declare("pay", **BACK)
    model = Scripted(turns=turns(("pay", {"amount": 1})), bound=[])
    agent = create_agent(model, [pay, charge], middleware=[SagaMiddleware(kit)])
    with kit.transaction("buy") as saga:
        agent.invoke(ask())
    assert [list(one.args) for one in model.bound[0]] == [["amount"], ["thing"]]
    assert shop.standing == [saga.report.kept[0].key]


def test_without_a_saga_nothing_happens(kit, shop, runner, tmp_path):
    """Outside of a saga the middleware leaves a run as it is, and writes no log."""
    model = Scripted(turns=turns(("charge", {"thing": "a"})), bound=[])
    bare = create_agent(Scripted(turns=turns(("charge", {"thing": "a"}))), [charge])
    result = create_agent(model, [charge], middleware=[SagaMiddleware(kit)]).invoke(ask())
    assert answers(result) == answers(bare.invoke(ask()))
    assert (model.bound[0], shop.count("charge"), list(tmp_path.iterdir())) == ([charge], 2, [])


# -- parallel, threads, streams, sub-agents -----------------------------------------------------------------------


@pytest.mark.parametrize("use_async", [False, True])
def test_parallel_calls(kit, shop, runner, use_async):
    """Calls of one turn run in parallel, each as a step of its own."""
    things = [("acharge" if use_async and number % 2 else "charge", {"thing": str(number)}) for number in range(6)]
    agent = runner.agent([charge, acharge], things)
    with kit.transaction("buy") as saga:
        run(agent, use_async=use_async)
    assert sorted(step.result["id"] for step in saga.report.kept) == list("012345") == sorted(shop.standing)


@pytest.mark.parametrize("slow", ["sync", "async", "sync under async"])
def test_parallel_with_a_failing_sibling(kit, shop, runner, slow):
    """When one of two parallel calls fails, what the other one does is taken back, also when it acts afterwards."""
    started, failed = threading.Event(), threading.Event()

    @tool
    def late(thing: str) -> dict:
        """Act when the sibling has failed."""
        started.set()
        assert failed.wait(20)
        return new("late", thing)

    @tool
    async def alate(thing: str) -> dict:
        """Act when the sibling has failed, unless cancelled."""
        started.set()
        while not failed.is_set():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return new("alate", thing)

    @tool
    async def fails(thing: str) -> dict:
        """Fail once the sibling runs."""
        assert await asyncio.to_thread(started.wait, 20)
        failed.set()
        raise ValueError("no stock")

    @tool("fails")
    def fails_sync(thing: str) -> dict:
        """Fail once the sibling runs."""
        assert started.wait(20)
        failed.set()
        raise ValueError("no stock")

    for name in ("late", "alate", "fails"):
        kit.declare(name, **BACK)
    tools = {"sync": [late, fails_sync], "async": [alate, fails], "sync under async": [late, fails]}[slow]
    agent = runner.agent(tools, [(tools[0].name, {"thing": "a"}), ("fails", {"thing": "b"})])
    with pytest.raises(ValueError, match="no stock"), kit.transaction("buy") as saga:
        run(agent, use_async=slow != "sync")
    left = {step.tool for step in saga.report.in_doubt}
    assert (shop.standing, left <= {"alate"}) == ([], True)


@pytest.mark.parametrize("mode", ["values", "updates", "messages"])
def test_streaming(kit, shop, runner, mode):
    """A run that is streamed inside the scope is covered, sync and async."""
    agent = runner.agent([charge], ("charge", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        assert list(agent.stream(ask(), stream_mode=mode))
    assert len(saga.report.kept) == 1

    async def main():
        async with kit.transaction("buy") as saga:
            assert [chunk async for chunk in agent.astream(ask(), stream_mode=mode)]
            assert [event async for event in agent.astream_events(ask(), version="v2")]
        return saga

    assert len(asyncio.run(main()).report.kept) == 2


def test_a_stream_that_is_left_early(kit, shop, runner):
    """A run whose stream is not read to its end keeps what it did when the scope commits."""
    agent = runner.agent([charge], ("charge", {"thing": "a"}), ("charge", {"thing": "b"}))
    with kit.transaction("buy") as saga:
        for chunk in agent.stream(ask(), stream_mode="updates"):
            if "tools" in chunk:
                break
    assert [step.result["id"] for step in saga.report.kept] == shop.standing == ["a"]


def test_batch(kit, shop, runner):
    """Runs of a batch, in threads, share the saga around it."""
    agent = runner.agent([charge], ("charge", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        agent.batch([ask(), ask(), ask()])
    assert len(saga.report.kept) == 3


@pytest.mark.parametrize("use_async", [False, True])
def test_an_agent_as_a_tool_is_a_pass_through(kit, shop, runner, use_async):
    """The tools of an agent that is a tool itself are steps of the same saga; the agent is none."""
    inner = runner.agent([charge, acharge], ("charge", {"thing": "a"}))

    @tool
    def research(topic: str) -> str:
        """Ask another agent."""
        return inner.invoke(ask(topic))["messages"][-1].content

    @tool("research")
    async def aresearch(topic: str) -> str:
        """Ask another agent."""
        return (await inner.ainvoke(ask(topic)))["messages"][-1].content

    kit.declare_read_only("research")
    shop.raises["boom"] = ValueError("no stock")
    outer = runner.agent(
        [aresearch if use_async else research, boom], ("research", {"topic": "x"}), ("boom", {"thing": "b"})
    )
    with pytest.raises(ValueError, match="no stock"), kit.transaction("buy") as saga:
        run(outer, use_async=use_async)
    assert [step.tool for step in saga.report.compensated] == ["charge"]
    assert shop.events == [("charge", "a"), ("refund", "a")]


def test_an_error_that_a_sub_agent_swallows(kit, shop, runner):
    """A failed step of a sub-agent fails the saga although the outer agent heard that all is well."""
    shop.raises["boom"] = ValueError("no stock")
    inner = runner.agent([boom], ("boom", {"thing": "a"}), middleware=[Swallows()])

    @tool
    def research(topic: str) -> str:
        """Ask another agent."""
        return inner.invoke(ask(topic))["messages"][-1].content

    kit.declare_read_only("research")
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("buy"):
        result = runner.agent([research], ("research", {"topic": "x"})).invoke(ask())
        assert answers(result) == [("success", "done")]


def test_two_sagas_side_by_side(kit, shop, runner):
    """Runs in two tasks, each in a saga of its own, stay apart."""
    shop.raises["aboom"] = ValueError("no stock")

    async def buy(*calls):
        async with kit.transaction("buy") as saga:
            await runner.agent([acharge, aboom], *calls).ainvoke(ask())
        return saga.report

    async def main():
        good = buy(("acharge", {"thing": "a"}))
        bad = buy(("acharge", {"thing": "b"}), ("aboom", {"thing": "c"}))
        return await asyncio.gather(good, bad, return_exceptions=True)

    report, error = asyncio.run(main())
    assert (report.outcome, len(report.kept), type(error)) == ("committed", 1, ValueError)
    assert shop.standing == ["a"]


def test_a_run_in_a_thread_of_its_own_fails_closed(kit, shop, runner):
    """Where the context is lost an irreversible tool is refused, and `saga.bind` brings it back."""
    kit.declare("charge", requires_saga=True, **BACK)
    agent = runner.agent([charge], ("charge", {"thing": "a"}))
    errors = []

    def alone():
        try:
            agent.invoke(ask())
        except NoSaga as error:
            errors.append(error)

    def in_thread(body):
        thread = threading.Thread(target=body)
        thread.start()
        thread.join(20)

    with kit.transaction("buy") as saga:
        in_thread(alone)
        assert (len(errors), shop.events) == (1, [])
        in_thread(saga.bind(alone))
    assert (len(errors), len(saga.report.kept), shop.standing) == (1, 1, ["a"])


def test_a_stream_that_outlives_its_saga_is_refused(kit, shop, runner):
    """A call of a saga that has ended is refused, as the tool's error, and does not run."""
    agent = runner.agent([charge], ("charge", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        pass
    with saga.attach():
        ((status, text),) = answers(agent.invoke(ask()))
    assert (status, shop.events) == ("error", [])
    assert "did not run" in text


# -- time ---------------------------------------------------------------------------------------------------------


def test_a_cancelled_run_with_a_sync_tool(kit, shop, runner):
    """A sync tool that acts after its run was cancelled is waited for, and taken back."""
    started, go_on = threading.Event(), threading.Event()

    @tool
    def late(thing: str) -> dict:
        """Act when told."""
        started.set()
        assert go_on.wait(20)
        return new("late", thing)

    kit.declare("late", **BACK)
    agent = runner.agent([late], ("late", {"thing": "a"}))
    sagas = []

    async def buy():
        async with kit.transaction("buy") as saga:
            sagas.append(saga)
            try:
                await agent.ainvoke(ask())
            finally:
                go_on.set()

    async def main():
        task = asyncio.create_task(buy())
        assert await asyncio.to_thread(started.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (shop.events, sagas[0].report.clean) == ([("late", "a"), ("refund", "a")], True)


def test_a_cancelled_async_tool_is_in_doubt(kit, shop, runner):
    """An async tool that is cancelled after it acted is in doubt, and its probe settles it."""

    @tool("probed")
    async def hangs(thing: str) -> dict:
        """Act, and hang."""
        new("probed", thing)
        acted.set()
        await asyncio.Event().wait()

    agent = runner.agent([hangs], ("probed", {"thing": "a"}))
    sagas = []

    async def buy():
        async with kit.transaction("buy") as saga:
            sagas.append(saga)
            await agent.ainvoke(ask())

    async def main():
        nonlocal acted
        acted = asyncio.Event()
        task = asyncio.create_task(buy())
        await acted.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    acted = None
    asyncio.run(main())
    assert (shop.standing, sagas[0].report.clean) == ([], True)


def test_retrying_middleware_repeats_a_call_only_when_that_is_safe(kit, shop, runner):
    """A retry of a call that failed after its effect finds the effect and gets its result."""
    shop.raises["probed"] = TimeoutError("no answer")
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    agent = runner.agent([probed], ("probed", {"thing": "a"}), middleware=[retry])
    with kit.transaction("buy") as saga:
        assert answers(agent.invoke(ask())) == [("success", '{"id": "a"}')]
    assert (shop.count("probed"), len(saga.report.kept)) == (1, 1)


@pytest.mark.parametrize("retry_outside", [False, True])
def test_retrying_middleware_on_either_side(kit, shop, runner, retry_outside):
    """A tool that fails without effect is run again by retrying middleware on either side of ours."""
    failures = iter([ValueError("busy"), ValueError("busy")])

    @tool
    def flaky(thing: str) -> dict:
        """Fail twice."""
        for failure in failures:
            raise failure
        return new("flaky", thing)

    kit.declare("flaky", **BACK)
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    ours = SagaMiddleware(kit)
    model = Scripted(turns=turns(("flaky", {"thing": "a"})))
    agent = create_agent(model, [flaky], middleware=[retry, ours] if retry_outside else [ours, retry])
    with kit.transaction("buy") as saga:
        agent.invoke(ask())
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"])
