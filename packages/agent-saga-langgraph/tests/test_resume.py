"""Interrupts, resumes, replays and repeated ids: an effect runs once, and a paused saga waits."""

import asyncio
import os
import signal
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolRetryMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from scripted import Scripted, answers, ask, thread, turns, waiting
from shop import charge, look, new, refund

from agent_saga import SagaSuspended
from agent_saga_langgraph import SagaMiddleware

HERE = Path(__file__).parent
BACK = {"effect": "compensable", "compensate": refund.bind(thing="result.id")}


@tool
def approve(thing: str) -> dict:
    """Ask a person, and then charge."""
    if interrupt({"question": thing}) != "yes":
        raise ValueError("no")
    return new("approve", thing)


@pytest.fixture(params=["agent", "graph"])
def make(request, kit, runner):
    """An agent, whose calls are tasks of their own, or a hand-made graph, whose calls share one."""
    kit.declare("approve", **BACK)
    maker = runner.agent if request.param == "agent" else runner.graph
    return lambda *args, **options: maker(*args, checkpointer=InMemorySaver(), **options)


def test_a_pause_and_its_answer_in_one_saga(kit, shop, make):
    """A tool that interrupts is no failure; answered in the same scope it runs, and its siblings are not repeated."""
    graph = make([charge, approve], [("charge", {"thing": "a"}), ("approve", {"thing": "b"})])
    with kit.transaction("buy") as saga:
        (asked,) = graph.invoke(ask(), thread())["__interrupt__"]
        assert (asked.value, shop.count("charge")) == ({"question": "b"}, 1)
        graph.invoke(Command(resume="yes"), thread())
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a"), ("approve", "b")])


def test_a_paused_saga_is_suspended_and_resumed(kit, shop, make):
    """A scope that ends while its graph waits suspends the saga; the next scope of its key goes on, and commits."""
    graph = make(
        [charge, approve], ("charge", {"thing": "z"}), [("charge", {"thing": "a"}), ("approve", {"thing": "b"})]
    )
    with kit.transaction("buy", key="order-1") as saga:
        graph.invoke(ask(), thread())
    assert (saga.report.outcome, shop.standing) == ("suspended", ["z", "a"])
    with kit.transaction("buy", key="order-1") as saga:
        graph.invoke(Command(resume="yes"), thread())
    assert (saga.report.outcome, len(saga.report.kept), shop.count("charge")) == ("committed", 3, 2)


def test_a_command_is_answered_again_from_the_log(kit, shop, make):
    """A sibling that returned a `Command` is answered with it in a later scope, rebuilt from the log."""

    @tool
    def move(thing: str, tool_call_id: Annotated[str, InjectedToolCallId]):
        """Change the graph's state."""
        new("move", thing)
        return Command(update={"messages": [ToolMessage("moved", tool_call_id=tool_call_id)]})

    kit.declare("move", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    graph = make([move, approve], [("move", {"thing": "a"}), ("approve", {"thing": "b"})])
    with kit.transaction("buy", key="order-1"):
        graph.invoke(ask(), thread())
    with kit.transaction("buy", key="order-1") as saga:
        result = graph.invoke(Command(resume="yes"), thread())
    assert answers(result) == [("success", "moved"), ("success", '{"id": "b"}')]
    assert (saga.report.outcome, shop.events) == ("committed", [("move", "a"), ("approve", "b")])


@pytest.mark.parametrize("as_command", [False, True])
def test_a_recorded_message_answers_another_call(kit, shop, runner, as_command):
    """A run that begins anew in a resumed saga, with ids of its own, gets recorded messages under its own ids."""

    @tool
    def move(thing: str, tool_call_id: Annotated[str, InjectedToolCallId]):
        """Answer with a message of the tool's own making."""
        new("move", thing)
        message = ToolMessage("moved", tool_call_id=tool_call_id)
        return Command(update={"messages": [message]}) if as_command else message

    kit.declare("move", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        runner.agent([move], ("move", {"thing": "a"})).invoke(ask())
        raise SagaSuspended("later")
    again = Scripted(turns=[[("move", {"thing": "a"}, "another")]])
    with kit.transaction("buy", key="order-1"):
        messages = runner.agent([move], model=again).invoke(ask())["messages"]
    (message,) = [one for one in messages if isinstance(one, ToolMessage)]
    assert (message.tool_call_id, message.content, shop.count("move")) == ("another", "moved", 1)


def test_a_pause_without_a_checkpointer(kit, shop, runner):
    """A pause suspends the saga also where no checkpoint was made: it is no failure of the tool."""
    kit.declare("approve", **BACK)
    agent = runner.agent([charge, approve], ("charge", {"thing": "a"}), ("approve", {"thing": "b"}))
    with kit.transaction("buy", key="order-1") as saga:
        assert waiting(agent.invoke(ask()))
    assert (saga.report.outcome, shop.standing) == ("suspended", ["a"])


def test_an_answer_that_fails_rolls_back_what_was_done_before(kit, shop, make):
    """When a resumed run fails, the effects from before its pause are taken back."""
    graph = make([charge, approve], [("charge", {"thing": "a"}), ("approve", {"thing": "b"})])
    with kit.transaction("buy", key="order-1"):
        graph.invoke(ask(), thread())
    with pytest.raises(ValueError, match="no"), kit.transaction("buy", key="order-1"):
        graph.invoke(Command(resume="no"), thread())
    assert shop.events == [("charge", "a"), ("refund", "a")]


# The oldest supported release has no modes.
MODES = ["batched", "per_call"] if "interrupt_mode" in signature(HumanInTheLoopMiddleware).parameters else [None]


@pytest.mark.parametrize("mode", MODES)
def test_the_frameworks_own_human_in_the_loop(kit, shop, mode):
    """A pause by HumanInTheLoopMiddleware, outside of any tool, suspends the saga, and its answer resumes it."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"look": True}, **({"interrupt_mode": mode} if mode else {}))
    model = Scripted(turns=turns(("charge", {"thing": "a"}), ("look", {"thing": "b"})))
    agent = create_agent(model, [charge, look], middleware=[gate, SagaMiddleware(kit)], checkpointer=InMemorySaver())
    with kit.transaction("buy", key="order-1") as saga:
        agent.invoke(ask(), thread())
    assert saga.report.outcome == "suspended"
    decision = {"type": "approve"}
    with kit.transaction("buy", key="order-1") as saga:
        result = agent.invoke(Command(resume=decision if mode == "per_call" else {"decisions": [decision]}), thread())
    assert (saga.report.outcome, shop.events, answers(result)[-1]) == (
        "committed",
        [("charge", "a")],
        ("success", "b: fine"),
    )


@pytest.mark.parametrize("use_async", [False, True])
def test_a_node_that_asks_a_person(kit, shop, runner, use_async):
    """A pause in a node of the user's suspends the saga; the resumed run need not call a tool again."""
    model = Scripted(turns=turns(("charge", {"thing": "a"})))
    inner = runner.graph([charge], model=model)
    graph = StateGraph(MessagesState)
    graph.add_node("shop", inner)
    graph.add_node("review", lambda state: {"messages": [("ai", interrupt("fine?"))]})
    graph.add_edge(START, "shop").add_edge("shop", "review").add_edge("review", END)
    graph = graph.compile(checkpointer=InMemorySaver())

    def run(given):
        if use_async:
            return asyncio.run(graph.ainvoke(given, thread()))
        return graph.invoke(given, thread())

    with kit.transaction("buy", key="order-1") as saga:
        run(ask())
    assert saga.report.outcome == "suspended"
    with kit.transaction("buy", key="order-1") as saga:
        assert run(Command(resume="fine"))["messages"][-1].content == "fine"
    assert (saga.report.outcome, len(saga.report.kept), shop.count("charge")) == ("committed", 1, 1)


@pytest.mark.parametrize("use_async", [False, True])
def test_a_pause_inside_of_an_agent_that_is_a_tool(kit, shop, runner, use_async):
    """A pause bubbles up through an agent that is a tool, and its answer reaches the tool that asked."""
    kit.declare("approve", **BACK)
    kit.declare_read_only("research")
    inner = runner.agent([charge, approve], ("charge", {"thing": "a"}), ("approve", {"thing": "b"}))

    @tool
    def research(topic: str) -> str:
        """Ask another agent."""
        return inner.invoke(ask(topic))["messages"][-1].content

    @tool("research")
    async def aresearch(topic: str) -> str:
        """Ask another agent."""
        return (await inner.ainvoke(ask(topic)))["messages"][-1].content

    outer = runner.agent(
        [aresearch if use_async else research], ("research", {"topic": "x"}), checkpointer=InMemorySaver()
    )

    def run(given):
        return asyncio.run(outer.ainvoke(given, thread())) if use_async else outer.invoke(given, thread())

    with kit.transaction("buy") as saga:
        assert "__interrupt__" in run(ask())
        run(Command(resume="yes"))
    assert (saga.report.outcome, sorted(shop.standing)) == ("committed", ["a", "b"])


def test_two_pauses_at_once(kit, shop, make):
    """Two calls that pause at once are answered one by one, each runs once, and the saga waits for both."""
    graph = make([approve], [("approve", {"thing": "a"}), ("approve", {"thing": "b"})])
    with kit.transaction("buy", key="order-1"):
        first = waiting(graph.invoke(ask(), thread()))[0]
    with kit.transaction("buy", key="order-1") as saga:
        (second,) = waiting(graph.invoke(Command(resume={first.id: "yes"}), thread()))
    assert saga.report.outcome == "suspended"
    with kit.transaction("buy", key="order-1") as saga:
        graph.invoke(Command(resume={second.id: "yes"}), thread())
    assert (saga.report.outcome, sorted(shop.standing), shop.count("approve")) == ("committed", ["a", "b"], 2)


def test_retrying_middleware_does_not_retry_a_pause(kit, shop, runner):
    """A pause passes retrying middleware untouched."""
    kit.declare("approve", **BACK)
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    agent = runner.agent([approve], ("approve", {"thing": "a"}), middleware=[retry], checkpointer=InMemorySaver())
    with kit.transaction("buy") as saga:
        assert len(agent.invoke(ask(), thread())["__interrupt__"]) == 1
        agent.invoke(Command(resume="yes"), thread())
    assert (saga.report.outcome, shop.events) == ("committed", [("approve", "a")])


def test_a_pause_after_an_effect_with_a_probe(kit, shop, make):
    """A tool that acts before it asks is in doubt while it waits, and is taken back when nobody answers."""

    @tool("probed")
    def acts_and_asks(thing: str) -> dict:
        """Act, and then ask."""
        result = new("probed", thing)
        interrupt("sure?")
        return result

    graph = make([acts_and_asks], ("probed", {"thing": "a"}))
    with pytest.raises(ZeroDivisionError), kit.transaction("buy") as saga:
        graph.invoke(ask(), thread())
        raise ZeroDivisionError
    assert (shop.standing, saga.report.clean) == ([], True)


def test_a_failed_run_that_is_continued(kit, shop, make):
    """A run that failed is continued in the same saga: calls that succeeded are not repeated."""
    shop.raises["boom"] = ValueError("busy")

    @tool("boom")
    def fails_second(thing: str) -> dict:
        """Fail while the test says so."""
        if "boom" in shop.raises:
            raise shop.raises["boom"]
        return new("boom", thing)

    graph = make(
        [charge, fails_second], ("charge", {"thing": "a"}), [("charge", {"thing": "b"}), ("boom", {"thing": "c"})]
    )
    with kit.transaction("buy") as saga:
        with pytest.raises(ValueError, match="busy"):
            graph.invoke(ask(), thread())
        del shop.raises["boom"]
        graph.invoke(None, thread())
    assert (saga.report.outcome, shop.count("charge"), shop.count("boom")) == ("committed", 2, 1)


# -- ids ----------------------------------------------------------------------------------------------------------


def test_call_ids_that_are_used_again(kit, shop, runner):
    """A model that uses an id again in a later turn makes a new call: both effects, both known."""
    model = Scripted(turns=[[("charge", {"thing": "a"}, "c0")], [], [("charge", {"thing": "a"}, "c0")], []])
    agent = runner.agent([charge], model=model, checkpointer=InMemorySaver())
    with kit.transaction("buy") as saga:
        agent.invoke(ask(), thread())
        agent.invoke(ask(), thread())
    assert (shop.count("charge"), len(saga.report.kept)) == (2, 2)


def test_one_id_for_two_calls(kit, shop, runner):
    """Calls with the same id and other arguments are different calls."""
    model = Scripted(turns=[[("charge", {"thing": "a"}, "c0"), ("charge", {"thing": "b"}, "c0")]])
    with kit.transaction("buy") as saga:
        runner.graph([charge], model=model).invoke(ask())
    assert (sorted(shop.standing), len(saga.report.kept)) == (["a", "b"], 2)


def test_equal_calls_with_ids_of_their_own(kit, shop, runner):
    """Equal calls with different ids are different calls."""
    with kit.transaction("buy") as saga:
        runner.graph([charge], [("charge", {"thing": "a"}), ("charge", {"thing": "a"})]).invoke(ask())
    assert (shop.count("charge"), len(saga.report.kept)) == (2, 2)


@pytest.mark.parametrize("fails", [False, True])
def test_time_travel(kit, shop, runner, fails):
    """A replay from an older checkpoint is a new step: both effects are known, and taken back together."""
    agent = runner.agent([charge], ("charge", {"thing": "a"}), checkpointer=InMemorySaver())

    def play():
        agent.invoke(ask(), thread())
        (before,) = [state for state in agent.get_state_history(thread()) if "tools" in state.next]
        agent.invoke(None, before.config)
        if fails:
            raise ZeroDivisionError

    sagas = []

    def buy():
        with kit.transaction("buy") as saga:
            sagas.append(saga)
            play()

    if fails:
        with pytest.raises(ZeroDivisionError):
            buy()
    else:
        buy()
    report = sagas[0].report
    assert (shop.count("charge"), len(report.kept), len(report.compensated)) == (2, *((0, 2) if fails else (2, 0)))


# -- another process ----------------------------------------------------------------------------------------------


class Program:
    """resume_program.py in processes of their own, with its log, checkpoints and world in one folder."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, *words, killed=False):
        done = subprocess.run(
            [sys.executable, str(HERE / "resume_program.py"), str(self.folder), *words],
            env={**os.environ, "PYTHONPATH": str(HERE)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == (-signal.SIGKILL if killed else 0), done.stdout + done.stderr
        return done.stdout.split()

    @property
    def world(self):
        return (self.folder / "world").read_text().split()


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["agent", "graph"])
def test_an_answer_in_another_process(program, form):
    """A paused run is answered by another process from its SQLite checkpoint: each effect once, the saga commits."""
    assert program.run(form, "ask") == ["suspended"]
    assert program.run(form, "answer") == ["committed", "3"]
    assert sorted(program.world) == ["command:b", "plain:a", "plain:c"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["agent", "graph"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_killed_run_is_resumed(program, form, durability):
    """A run that is killed in its second tool, after the effect, goes on in another process: each effect once."""
    program.run(form, "die", durability, killed=True)
    assert program.run(form, "go-on", durability) == ["committed", "3"]
    assert sorted(program.world) == ["command:b", "plain:a", "plain:c"]
