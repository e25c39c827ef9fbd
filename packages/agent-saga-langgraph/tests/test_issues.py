"""What users of LangGraph and LangChain reported, as runs inside a saga."""

import asyncio
import threading

import pytest
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeTimeoutError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, TimeoutPolicy, interrupt
from scripted import Scripted, answers, ask, thread, turns, waiting
from shop import boom, charge, find_probed, new, probed, refund

from agent_saga import SagaRolledBack
from agent_saga.errors import NoSaga
from agent_saga_langgraph import SagaMiddleware, protect

BACK = {"effect": "compensable", "compensate": refund.bind(thing="result.id")}


@tool("ask")
def ask_human(thing: str) -> str:
    """Ask a person."""
    return str(interrupt({"question": thing}))


@pytest.fixture(autouse=True)
def declared(kit):
    kit.declare_read_only("ask")


def test_langgraph_3126_a_pause_repeats_the_whole_node(kit, shop, runner):
    """https://github.com/langchain-ai/langgraph/pull/3126: the node runs again, the sibling's effect does not."""
    graph = runner.graph(
        [charge, ask_human], [("charge", {"thing": "a"}), ("ask", {"thing": "b"})], checkpointer=InMemorySaver()
    )
    with kit.transaction("buy") as saga:
        graph.invoke(ask(), thread())
        result = graph.invoke(Command(resume="yes"), thread())
    assert answers(result) == [("success", '{"id": "a"}'), ("success", "yes")]
    assert (saga.report.outcome, shop.count("charge")) == ("committed", 1)


@pytest.mark.parametrize("shape", ["agent", "graph"])
def test_langgraph_6626_parallel_pauses_are_told_apart(kit, shop, runner, shape):
    """https://github.com/langchain-ai/langgraph/issues/6626: two gated calls have two requests."""
    from agent_saga import Ask

    class AskFirst:
        def decide(self, call, saga):
            return Ask("needs a word", suspend=True)

    make = runner.agent if shape == "agent" else runner.graph
    graph = make([charge], [("charge", {"thing": "a"}), ("charge", {"thing": "b"})], checkpointer=InMemorySaver())
    with kit.transaction("buy", policies=[AskFirst()]) as saga:
        result = graph.invoke(ask(), thread())
        seen = []
        while asking := waiting(result):
            assert len(seen) < 6
            approval = asking[0].value["approval"]
            seen.append(approval)
            result = graph.invoke(Command(resume={asking[0].id: {"type": "approve", "approval": approval}}), thread())
    assert (len(set(seen)), len(saga.report.kept), sorted(shop.standing)) == (2, 2, ["a", "b"])


def test_langgraph_8702_what_a_retry_repeats(kit, shop, runner):
    """https://github.com/langchain-ai/langgraph/issues/8702: a call that raised after its effect is not repeated."""
    shop.raises["probed"] = ConnectionError("no answer")
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=ConnectionError)
    graph = runner.graph([probed], ("probed", {"thing": "a"}), node_options={"retry_policy": policy})
    with kit.transaction("buy") as saga:
        graph.invoke(ask())
    assert (shop.count("probed"), saga.report.outcome) == (1, "committed")


@pytest.mark.parametrize("use_async", [False, True])
def test_langgraph_8217_a_wrapper_that_turns_pauses_into_errors(kit, runner, use_async):
    """https://github.com/langchain-ai/langgraph/issues/8217: a pause passes our wrapper and handled errors."""
    ours = SagaMiddleware(kit)
    node = ToolNode(
        [ask_human],
        handle_tool_errors=True,
        wrap_tool_call=ours.wrap_tool_call,
        awrap_tool_call=ours.awrap_tool_call,
    )
    model = Scripted(turns=turns(("ask", {"thing": "a"})))
    graph = StateGraph(MessagesState).add_node("tools", node)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    graph = graph.compile(checkpointer=InMemorySaver())

    def run(given):
        return asyncio.run(graph.ainvoke(given, thread())) if use_async else graph.invoke(given, thread())

    with kit.transaction("buy") as saga:
        assert run(ask())["__interrupt__"][0].value == {"question": "a"}
        assert answers(run(Command(resume="yes"))) == [("success", "yes")]
    assert saga.report.outcome == "committed"


def test_langchain_38722_retries_swallow_pauses(kit, runner):
    """https://github.com/langchain-ai/langchain/pull/38722: a pause passes retrying middleware and is not retried."""
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    agent = runner.agent([ask_human], ("ask", {"thing": "a"}), middleware=[retry], checkpointer=InMemorySaver())
    with kit.transaction("buy"):
        assert len(agent.invoke(ask(), thread())["__interrupt__"]) == 1
        assert answers(agent.invoke(Command(resume="yes"), thread())) == [("success", "yes")]


@pytest.mark.parametrize("handled", [False, True])
def test_langgraph_6486_errors_stop_the_graph_or_not(kit, shop, runner, handled):
    """https://github.com/langchain-ai/langgraph/issues/6486: the saga fails in either case."""
    shop.raises["boom"] = ValueError("no stock")
    options = {"handle_tool_errors": True} if handled else {}
    graph = runner.graph([charge, boom], ("charge", {"thing": "a"}), ("boom", {"thing": "b"}), **options)
    with pytest.raises(SagaRolledBack if handled else ValueError), kit.transaction("buy"):
        graph.invoke(ask())
    assert shop.events == [("charge", "a"), ("refund", "a")]


@pytest.mark.parametrize("has_probe", [False, True])
def test_langgraph_9006_a_tool_timeout(kit, shop, runner, has_probe):
    """https://github.com/langchain-ai/langgraph/issues/9006: after a timeout the effect is in doubt."""

    @tool("probed")
    async def hangs(thing: str) -> dict:
        """Act, and hang."""
        new("probed", thing)
        await asyncio.Event().wait()

    kit.declare("probed", **BACK, **({"probe": find_probed} if has_probe else {}))
    policy = {"timeout": TimeoutPolicy(run_timeout=0.2)}
    graph = runner.graph([hangs], ("probed", {"thing": "a"}), node_options=policy)
    sagas = []

    async def buy():
        async with kit.transaction("buy") as saga:
            sagas.append(saga)
            await graph.ainvoke(ask())

    with pytest.raises(Exception) as caught:
        asyncio.run(buy())
    assert isinstance(caught.value, NodeTimeoutError) or isinstance(caught.value.__cause__, NodeTimeoutError)
    report = sagas[0].report
    assert (report.clean, len(report.in_doubt), shop.standing) == ((True, 0, []) if has_probe else (False, 1, ["a"]))


def test_docs_4070_the_same_input_twice(kit, shop, runner):
    """https://github.com/langchain-ai/docs/issues/4070: a second turn with the same call id is new work."""
    model = Scripted(turns=[[("charge", {"thing": "a"}, "c1")], [], [("charge", {"thing": "a"}, "c1")], []])
    graph = runner.graph([charge], model=model, checkpointer=InMemorySaver())
    with kit.transaction("buy") as saga:
        for _ in range(2):
            graph.invoke(ask(), thread())
    assert (shop.count("charge"), len(saga.report.kept)) == (2, 2)


def test_deepagents_694_one_failing_call_kills_its_siblings(kit, shop, runner):
    """https://github.com/langchain-ai/deepagents/issues/694: what a sibling does late is taken back."""
    started, failed = threading.Event(), threading.Event()

    @tool
    def late(thing: str) -> dict:
        """Act after the sibling has failed."""
        started.set()
        assert failed.wait(20)
        return new("late", thing)

    @tool
    async def fails(thing: str) -> dict:
        """Fail once the sibling runs."""
        assert await asyncio.to_thread(started.wait, 20)
        failed.set()
        raise ValueError("no stock")

    kit.declare("late", **BACK)
    kit.declare("fails", **BACK)
    agent = runner.agent([late, fails], [("late", {"thing": "a"}), ("fails", {"thing": "b"})])

    async def buy():
        async with kit.transaction("buy"):
            await agent.ainvoke(ask())

    with pytest.raises(ValueError, match="no stock"):
        asyncio.run(buy())
    assert shop.events == [("late", "a"), ("refund", "a")]


def test_decepticon_345_a_context_that_does_not_reach_the_workers(kit, shop):
    """https://github.com/BitterSecurity/Decepticon/pull/345: a tool that needs its saga does not run without it."""
    kit.declare("charge", requires_saga=True, **BACK)
    protected = protect(charge, kit)
    errors = []

    def work():
        try:
            protected.invoke({"thing": "a"})
        except NoSaga as error:
            errors.append(str(error))

    with kit.transaction("buy"):
        worker = threading.Thread(target=work)
        worker.start()
        worker.join(20)
    assert (shop.events, len(errors)) == ([], 1)
    assert "must run inside a saga" in errors[0]
