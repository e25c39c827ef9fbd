"""Approvals through LangGraph's own pause, and a tool of the log's own command."""

import asyncio

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from scripted import answers, ask, thread, waiting
from shop import charge

from agent_saga import Ask, SagaSuspended, current_saga
from agent_saga.runtime.operators import decide_approval
from agent_saga_langgraph import protect


class AskFirst:
    """Charges wait for a person."""

    def decide(self, call, saga):
        return Ask(f"{call.tool} needs a word", suspend=True)


POLICIES = {"policies": [AskFirst()]}


@pytest.fixture(params=["agent", "graph"])
def make(request, runner):
    maker = runner.agent if request.param == "agent" else runner.graph
    return lambda *args, **options: maker(*args, checkpointer=InMemorySaver(), **options)


def test_a_question_is_an_interrupt(kit, shop, make):
    """A call that needs a word pauses the graph, in the form of LangChain's approvals, before its effect."""
    graph = make([charge], ("charge", {"thing": "a"}))
    with kit.transaction("buy", key="order-1", **POLICIES) as saga:
        (asked,) = graph.invoke(ask(), thread())["__interrupt__"]
    value = asked.value
    assert (value["type"], value["tool_call_id"], value["name"], value["args"]) == (
        "tool_approval",
        "c1",
        "charge",
        {"thing": "a"},
    )
    assert value["saga_id"] == saga.id
    assert "charge needs a word" in value["description"]
    assert (saga.report.outcome, shop.events) == ("suspended", [])


@pytest.mark.parametrize(
    "answer", [True, "approve", {"type": "approve"}, {"decisions": [{"type": "approve"}]}], ids=str
)
@pytest.mark.parametrize("use_async", [False, True])
def test_an_approval_lets_the_call_run(kit, shop, make, answer, use_async):
    """The answer to the interrupt is the word on the request; the call runs once."""
    graph = make([charge], ("charge", {"thing": "a"}))

    async def arun(given):
        async with kit.transaction("buy", key="order-1", **POLICIES) as saga:
            await graph.ainvoke(given, thread())
        return saga

    def run(given):
        if use_async:
            return asyncio.run(arun(given))
        with kit.transaction("buy", key="order-1", **POLICIES) as saga:
            graph.invoke(given, thread())
        return saga

    run(ask())
    saga = run(Command(resume=answer))
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_approval_within_one_scope(kit, shop, make):
    """A question that is answered while its scope is open does not suspend the saga."""
    graph = make([charge], ("charge", {"thing": "a"}))
    with kit.transaction("buy", **POLICIES) as saga:
        graph.invoke(ask(), thread())
        graph.invoke(Command(resume=True), thread())
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"])


@pytest.mark.parametrize("answer", [False, "reject", {"type": "reject", "message": "not today"}], ids=str)
def test_a_rejection_is_an_error_message(kit, shop, make, answer):
    """A rejected call reaches the model as a tool's error, with the reason that was given."""
    graph = make([charge], ("charge", {"thing": "a"}))
    with kit.transaction("buy", **POLICIES) as saga:
        graph.invoke(ask(), thread())
        result = graph.invoke(Command(resume=answer), thread())
    ((status, text),) = answers(result)
    assert (status, shop.events, saga.report.outcome) == ("error", [], "committed")
    assert "rejected by langgraph" in text
    assert ("not today" in text) == isinstance(answer, dict)


def test_an_answer_that_is_no_word_asks_again(kit, shop, make):
    """An answer that says neither yes nor no approves nothing: the graph waits on."""
    graph = make([charge], ("charge", {"thing": "a"}))
    with kit.transaction("buy", **POLICIES) as saga:
        graph.invoke(ask(), thread())
        assert "__interrupt__" in graph.invoke(Command(resume={"what": "ever"}), thread())
    assert (saga.report.outcome, shop.events) == ("suspended", [])


def test_a_word_on_the_log(kit, shop, make):
    """A request that is approved in the log, past LangGraph, runs when the graph is resumed, whatever the answer."""
    graph = make([charge], ("charge", {"thing": "a"}))
    with kit.transaction("buy", key="order-1", **POLICIES):
        (asked,) = graph.invoke(ask(), thread())["__interrupt__"]
    decide_approval(kit.writer(), asked.value["approval"], "approved", by="ann")
    with kit.transaction("buy", key="order-1", **POLICIES) as saga:
        graph.invoke(Command(resume="look again"), thread())
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_two_questions_at_once(kit, shop, make):
    """Two calls that wait at once have requests of their own, and each answer goes to the request that it names."""
    graph = make([charge], [("charge", {"thing": "a"}), ("charge", {"thing": "b"})])
    asked = []
    with kit.transaction("buy", **POLICIES) as saga:
        result = graph.invoke(ask(), thread())
        while asking := waiting(result):
            assert len(asked) < 6
            value = asking[0].value
            asked.append(value["approval"])
            word = "approve" if value["args"] == {"thing": "a"} else "reject"
            answer = {"type": word, "approval": value["approval"]}
            result = graph.invoke(Command(resume={asking[0].id: answer}), thread())
    assert (len(set(asked)), saga.report.outcome, shop.events) == (2, "committed", [("charge", "a")])
    assert sorted(status for status, _ in answers(result)) == ["error", "success"]


def test_a_bare_answer_to_one_of_several_calls_approves_nothing(kit, shop, runner):
    """Where calls share a task, an answer that does not say what it answers is no word on any of them."""
    graph = runner.graph(
        [charge], [("charge", {"thing": "a"}), ("charge", {"thing": "b"})], checkpointer=InMemorySaver()
    )
    with kit.transaction("buy", **POLICIES) as saga:
        graph.invoke(ask(), thread())
        for _ in range(3):
            assert "__interrupt__" in graph.invoke(Command(resume=True), thread())
    assert (saga.report.outcome, shop.events) == ("suspended", [])


def test_outside_of_a_graph_the_saga_itself_waits(kit, shop):
    """A protected tool that Python calls has no graph to pause: the suspension leaves the scope."""
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1", **POLICIES):
        protect(charge, kit).invoke({"thing": "a"})
    assert (shop.events, current_saga()) == ([], None)
