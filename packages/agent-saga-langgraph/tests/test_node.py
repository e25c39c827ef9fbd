"""Hand-made graphs: `protect(ToolNode(...))`, `Send`, sub-graphs, retry and timeout policies."""

import asyncio
import threading

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.errors import NodeTimeoutError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, TimeoutPolicy
from scripted import answers, ask
from shop import acharge, boom, charge, look, new, probed, refund

from agent_saga import SagaRolledBack
from agent_saga.errors import UndeclaredTool
from agent_saga_langgraph import protect

BACK = {"effect": "compensable", "compensate": refund.bind(thing="result.id")}


def calls(*given):
    return [
        AIMessage(
            content="",
            tool_calls=[
                {"name": name, "args": args, "id": f"c{number}", "type": "tool_call"}
                for number, (name, args) in enumerate(given, 1)
            ],
        )
    ]


def around(node):
    """The smallest graph around a node; a ToolNode runs only in one."""
    return StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").add_edge("tools", END).compile()


def test_a_node_stays_the_node_it_was(kit):
    """A protected node is the same object, and protecting it again changes nothing."""
    node = ToolNode([charge, look], name="shop", tags=["x"])
    assert protect(node, kit) is node
    tools = dict(node.tools_by_name)
    assert protect(node, kit).tools_by_name == tools
    assert (node.name, list(tools), [type(one) for one in tools.values()]) == (
        "shop",
        ["charge", "look"],
        [type(charge), type(look)],
    )


def test_undeclared_tools_of_a_node_are_named_at_once(kit):
    """A node with undeclared tools cannot be protected."""

    @tool
    def one(thing: str) -> str:
        """One."""

    with pytest.raises(UndeclaredTool, match="'one'"):
        protect(ToolNode([one, charge]), kit)


@pytest.mark.parametrize("use_async", [False, True])
def test_a_graph_commits_and_rolls_back(kit, shop, runner, use_async):
    """The calls of a hand-made graph are steps, and a failure that leaves it takes them back."""
    shop.raises["boom"] = ValueError("no stock")
    good = runner.graph([charge, acharge], [("charge", {"thing": "a"})])
    bad = runner.graph([charge, boom], ("charge", {"thing": "b"}), ("boom", {"thing": "c"}))
    run = (lambda graph: asyncio.run(graph.ainvoke(ask()))) if use_async else (lambda graph: graph.invoke(ask()))
    with kit.transaction("buy") as saga:
        run(good)
    with pytest.raises(ValueError, match="no stock"), kit.transaction("buy"):
        run(bad)
    assert (len(saga.report.kept), shop.standing) == (1, ["a"])


@pytest.mark.parametrize("handles", [True, "failed", lambda error: "failed"], ids=["True", "text", "function"])
def test_handled_tool_errors_do_not_commit(kit, shop, runner, handles):
    """Errors that `handle_tool_errors` swallows still fail the saga."""
    shop.raises["boom"] = ValueError("no stock")
    graph = runner.graph(
        [charge, boom], ("charge", {"thing": "a"}), ("boom", {"thing": "b"}), handle_tool_errors=handles
    )
    with pytest.raises(SagaRolledBack, match="ValueError"), kit.transaction("buy"):
        assert answers(graph.invoke(ask()))[-1][0] == "error"
    assert shop.standing == []


def test_handled_error_types_are_not_widened(kit, shop, runner):
    """With `handle_tool_errors=SomeType` other errors leave the graph, as they do without the adapter."""
    shop.raises["boom"] = KeyError("no stock")
    graph = runner.graph([boom], ("boom", {"thing": "b"}), handle_tool_errors=ValueError)
    with pytest.raises(KeyError), kit.transaction("buy"):
        graph.invoke(ask())


def test_tools_that_are_put_into_a_node_later(kit, shop):
    """A tool that is added to a protected node is refused while undeclared, and then a step."""

    @tool
    def extra(thing: str) -> dict:
        """Not known before."""
        return new("extra", thing)

    node = protect(ToolNode([charge]), kit)
    node.tools_by_name["extra"] = extra
    graph = around(node)
    with kit.transaction("buy"):
        ((status, _),) = answers(graph.invoke({"messages": calls(("extra", {"thing": "a"}))}))
    assert (status, shop.events) == ("error", [])
    kit.declare("extra", **BACK)
    with kit.transaction("buy") as saga:
        graph.invoke({"messages": calls(("extra", {"thing": "a"}))})
    assert len(saga.report.kept) == 1


@pytest.mark.parametrize("use_async", [False, True])
def test_tools_that_a_wrapper_brings_along(kit, shop, use_async):
    """A tool that the node's own wrapper puts into a request is covered too."""

    @tool
    def extra(thing: str) -> dict:
        """Not known before."""
        return new("extra", thing)

    async def awrap(request, execute):
        return await execute(request.override(tool=extra))

    kit.declare("extra", **BACK)
    wraps = {"awrap_tool_call": awrap} if use_async else {"wrap_tool_call": lambda r, e: e(r.override(tool=extra))}
    graph = around(protect(ToolNode([charge], **wraps), kit))
    given = {"messages": calls(("extra", {"thing": "a"}))}
    with kit.transaction("buy") as saga:
        asyncio.run(graph.ainvoke(given)) if use_async else graph.invoke(given)
    assert [step.tool for step in saga.report.kept] == ["extra"]


@pytest.mark.parametrize("use_async", [False, True])
def test_send(kit, shop, use_async):
    """Calls that are spread over tasks with `Send` are steps of the saga."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", protect(ToolNode([charge]), kit))
    graph.add_conditional_edges(
        START, lambda state: [Send("tools", [call]) for call in state["messages"][-1].tool_calls], ["tools"]
    )
    given = {"messages": calls(*[("charge", {"thing": str(number)}) for number in range(3)])}
    compiled = graph.compile()
    with kit.transaction("buy") as saga:
        asyncio.run(compiled.ainvoke(given)) if use_async else compiled.invoke(given)
    assert len(saga.report.kept) == 3
    assert sorted(shop.standing) == ["0", "1", "2"]


def test_sub_graphs(kit, shop, runner):
    """Calls in a graph that is a node of another graph are steps of the saga around both."""
    inner = runner.graph([charge], ("charge", {"thing": "a"}))
    outer = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner").compile()
    with pytest.raises(ZeroDivisionError), kit.transaction("buy"):
        outer.invoke(ask())
        raise ZeroDivisionError
    assert shop.events == [("charge", "a"), ("refund", "a")]


def test_a_tool_called_in_a_node(kit, shop):
    """A protected tool that a node of the user's calls by itself is a step."""
    protected = protect(charge, kit)
    graph = around(lambda state: {"messages": [("ai", protected.invoke({"thing": "a"})["id"])]})
    with kit.transaction("buy") as saga:
        graph.invoke(ask())
    assert len(saga.report.kept) == 1


# -- control flow -------------------------------------------------------------------------------------------------


def test_a_command_to_the_parent_is_no_failure(kit, shop):
    """A tool that hands over to the parent graph has succeeded, whether it returns or raises the command."""
    from langgraph.errors import ParentCommand

    @tool
    def hand_over(thing: str):
        """Hand over by raising, as a graph inside of a tool does."""
        new("hand_over", thing)
        raise ParentCommand(Command(graph=Command.PARENT, goto="end"))

    kit.declare("hand_over", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    outer = StateGraph(MessagesState)
    outer.add_node("inner", around(protect(ToolNode([hand_over]), kit)), destinations=("end",))
    outer.add_node("end", lambda state: {"messages": [("ai", "handed over")]})
    outer.add_edge(START, "inner")
    with kit.transaction("buy") as saga:
        result = outer.compile().invoke({"messages": calls(("hand_over", {"thing": "a"}))})
    assert (result["messages"][-1].content, saga.report.outcome) == ("handed over", "committed")
    assert shop.standing == ["a"]


def test_a_command_is_a_result(kit, shop, runner):
    """A tool that returns a `Command` succeeds; the command reaches the graph, its fields reach the compensation."""
    from typing import Annotated

    from langchain_core.tools import InjectedToolCallId

    @tool
    def move(thing: str, tool_call_id: Annotated[str, InjectedToolCallId]):
        """Change the graph's state."""
        new("move", thing)
        return Command(update={"messages": [ToolMessage("moved", tool_call_id=tool_call_id, artifact={"id": thing})]})

    kit.declare("move", effect="compensable", compensate=refund.bind(thing="result.update.messages.0.artifact.id"))
    with pytest.raises(ZeroDivisionError), kit.transaction("buy"):
        assert answers(runner.graph([move], ("move", {"thing": "a"})).invoke(ask())) == [("success", "moved")]
        raise ZeroDivisionError
    assert shop.standing == []


# -- retries and timeouts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_async", [False, True])
def test_retry_policy_runs_finished_calls_once(kit, shop, runner, use_async):
    """When a node is run again by its `RetryPolicy`, calls that succeeded are answered, not repeated."""
    failures = iter([ValueError("busy")])

    @tool
    def flaky(thing: str) -> dict:
        """Fail once."""
        assert charged.wait(20)
        for failure in failures:
            raise failure
        return new("flaky", thing)

    @tool("charge")
    def charging(thing: str) -> dict:
        """Charge."""
        result = new("charge", thing)
        charged.set()
        return result

    charged = threading.Event()
    kit.declare("flaky", **BACK)
    policy = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False, retry_on=ValueError)
    graph = runner.graph(
        [charging, flaky],
        [("charge", {"thing": "a"}), ("flaky", {"thing": "b"})],
        node_options={"retry_policy": policy},
    )
    with kit.transaction("buy") as saga:
        result = asyncio.run(graph.ainvoke(ask())) if use_async else graph.invoke(ask())
    assert [status for status, _ in answers(result)] == ["success", "success"]
    assert (shop.count("charge"), shop.count("flaky"), saga.report.outcome) == (1, 1, "committed")


def test_retry_policy_of_a_node_that_calls_tools(kit, shop):
    """A user's node that is run again has its calls answered in their order, equal ones one by one."""
    protected = protect(charge, kit)
    failures = iter([ValueError("busy")])

    def node(state):
        ids = [protected.invoke({"thing": thing})["id"] for thing in ("a", "a", "b")]
        for failure in failures:
            raise failure
        return {"messages": [("ai", "".join(ids))]}

    policy = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False, retry_on=ValueError)
    graph = StateGraph(MessagesState).add_node("node", node, retry_policy=policy).add_edge(START, "node").compile()
    with kit.transaction("buy") as saga:
        assert graph.invoke(ask())["messages"][-1].content == "aab"
    assert (shop.count("charge"), len(saga.report.kept)) == (3, 3)


def test_a_node_timeout_leaves_the_call_in_doubt(kit, shop, runner):
    """A call that the node's timeout cancels after it acted is in doubt; its probe finds the effect."""

    @tool("probed")
    async def hangs(thing: str) -> dict:
        """Act, and hang."""
        new("probed", thing)
        await asyncio.Event().wait()

    graph = runner.graph([hangs], ("probed", {"thing": "a"}), node_options={"timeout": TimeoutPolicy(run_timeout=0.2)})

    async def main():
        async with kit.transaction("buy") as saga:
            sagas.append(saga)
            await graph.ainvoke(ask())

    sagas = []
    with pytest.raises(NodeTimeoutError):
        asyncio.run(main())
    assert (shop.standing, sagas[0].report.clean) == ([], True)


def test_a_retry_after_a_lost_answer(kit, shop, runner):
    """A call that acted and lost its answer is settled by its probe before the node's retry, and not repeated."""
    shop.raises["probed"] = ConnectionError("lost the answer")
    policy = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False, retry_on=ConnectionError)
    graph = runner.graph([probed], ("probed", {"thing": "a"}), node_options={"retry_policy": policy})
    with kit.transaction("buy") as saga:
        assert answers(graph.invoke(ask())) == [("success", '{"id": "a"}')]
    assert (shop.count("probed"), saga.report.outcome) == (1, "committed")


def test_async_siblings_that_a_node_leaves_running(kit, shop, runner):
    """`ToolNode` leaves async siblings of a failed call running; what they do is taken back."""

    @tool
    async def late(thing: str) -> dict:
        """Act after the sibling has failed."""
        await failed.wait()
        return new("late", thing)

    @tool
    async def fails(thing: str) -> dict:
        """Fail."""
        failed.set()
        raise ValueError("no stock")

    kit.declare("late", **BACK)
    kit.declare("fails", **BACK)
    graph = runner.graph([late, fails], [("late", {"thing": "a"}), ("fails", {"thing": "b"})])

    async def main():
        nonlocal failed
        failed = asyncio.Event()
        async with kit.transaction("buy"):
            await graph.ainvoke(ask())

    failed = None
    with pytest.raises(ValueError, match="no stock"):
        asyncio.run(main())
    assert shop.standing == []
