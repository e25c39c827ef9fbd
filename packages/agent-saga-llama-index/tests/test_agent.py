"""Agents: of each kind, of several, as tools; with tools that come later; their ids, traces and errors."""

import asyncio
import json

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from llama_scripted import STREAMED, Scripted, arun, results, run, turns
from llama_shop import BACK, NoBigOnes, aboom, acharge, boom, charge, look, tool
from pydantic import Field

from agent_saga import SagaRolledBack
from agent_saga.errors import NoSaga, UndeclaredTool
from agent_saga.spi import read_records
from agent_saga_llama_index import protect

A, B = {"thing": "a"}, {"thing": "b"}


def intents(kit):
    return [one for one in read_records(kit.log) if one["kind"] == "intent"]


def ids(kit):
    return [one["call_id"] for one in intents(kit)]


@STREAMED
def test_an_agent(kit, shop, maker, streaming):
    """Every call of an agent is a step with its id, whether the framework streams the model or not."""
    agent = maker.agent([charge, acharge], ("charge", A), ("acharge", B), streaming=streaming)
    with kit.transaction("buy") as saga:
        told = run(agent)
    assert (ids(kit), saga.report.outcome, shop.standing) == (["c1", "c2"], "committed", ["a", "b"])
    assert {one["adapter"] for one in intents(kit)} == {"llama-index"}
    assert [told[id_].raw_output for id_ in ("c1", "c2")] == [{"id": "a"}, {"id": "b"}]


@pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning")  # By the framework.
def test_a_react_agent(kit, shop):
    """An agent whose model writes its calls as text."""
    said = ['Thought: buy.\nAction: charge\nAction Input: {"thing": "a"}', "Thought: done.\nAnswer: bought"]
    agent = protect(ReActAgent(tools=[charge], llm=Scripted(said)), kit)

    async def main():
        async with kit.transaction("buy") as saga:
            return saga, str(await agent.run(user_msg="go"))

    saga, answer = asyncio.run(main())
    assert ([step.tool for step in saga.report.kept], answer, shop.standing) == (["charge"], "bought", ["a"])


def test_a_code_act_agent(kit, shop):
    """What code calls is a step where the code is given the functions of protected tools."""
    tools = protect([charge, boom], kit)
    functions = {one.metadata.name: one.real_fn for one in tools}

    async def execute(code: str) -> str:
        """Run some code."""
        exec(code, functions)
        return "ok"

    said = ["<execute>charge('a')\ntry:\n    boom('b')\nexcept ValueError:\n    pass</execute>", "done"]
    kit.declare_read_only("execute")  # All that it does are the calls in it.
    shop.raises["boom"] = ValueError("broken")
    agent = protect(CodeActAgent(execute, tools=tools, llm=Scripted(said)), kit)
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("buy"):
        run(agent)
    assert shop.events == [("charge", "a"), ("refund", "a")]


def test_code_itself_must_be_declared(kit):
    """The tool that runs code is a tool like others."""
    with pytest.raises(UndeclaredTool, match="'execute'"):
        protect(CodeActAgent(lambda code: code, llm=Scripted([])), kit)


# -- several agents ---------------------------------------------------------------------------------------------------


def two(kit, *, second, **options):
    first = FunctionAgent(
        name="first", description="d", tools=[charge], llm=Scripted(turns([("charge", A)], [HANDOFF])), **options
    )
    second = FunctionAgent(name="second", description="d", tools=[acharge, boom], llm=Scripted(turns(*second, ids="d")))
    return protect(AgentWorkflow(agents=[first, second], root_agent="first"), kit)


HANDOFF = ("handoff", {"to_agent": "second", "reason": "r"})


def test_agents_that_hand_over(kit, shop):
    """All agents of a workflow are in the saga; handing over is no step, and need not be declared."""
    team = two(kit, second=[("acharge", B)])
    with kit.transaction("buy") as saga:
        told = run(team)
    assert (ids(kit), saga.report.outcome, shop.standing) == (["c1", "d1"], "committed", ["a", "b"])
    assert not told["c2"].is_error


def test_a_failure_after_a_handoff(kit, shop):
    """What one agent did is taken back when another one fails."""
    shop.raises["boom"] = ValueError("broken")
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("buy"):
        run(two(kit, second=[("boom", B)]))
    assert shop.standing == []


def test_undeclared_tools_of_all_agents(kit):
    """The undeclared tools of all agents are named at once, before anything is changed."""
    agents = [
        FunctionAgent(name=name, description="d", tools=[tool(look.real_fn, name=f"{name}_tool")], llm=Scripted([]))
        for name in ("x", "y")
    ]
    with pytest.raises(UndeclaredTool, match=r"(?s)x_tool.*y_tool"):
        protect(AgentWorkflow(agents=agents, root_agent="x"), kit)
    assert type(agents[0]) is FunctionAgent


def test_an_agent_as_a_tool(kit, shop, maker):
    """An agent that a tool runs is in the saga; the tool itself does nothing, so it is declared read-only."""
    inner = maker.agent([charge], ("charge", A))

    async def ask(question: str) -> str:
        """Ask somebody else."""
        return str(await inner.run(user_msg=question))

    kit.declare_read_only("ask")
    outer = maker.agent([tool(ask), acharge], ("ask", {"question": "?"}), ("acharge", B))
    with kit.transaction("buy") as saga:
        told = run(outer)
    assert told["c1"].content == "done"
    assert [step.tool for step in saga.report.kept] == ["charge", "acharge"]
    scopes = {one["call_scope"].partition("/")[0] for one in intents(kit)}
    assert len(scopes) == 2


# -- tools that come later --------------------------------------------------------------------------------------------


def test_tools_that_are_added(kit, shop, maker):
    """A tool that is added to a protected agent is covered; an undeclared one is refused when it is called."""
    agent = maker.agent([charge], [("acharge", A), ("later", B)])
    agent.tools += [acharge, tool(look.real_fn, name="later")]
    with kit.transaction("buy") as saga:
        told = run(agent)
    assert [step.tool for step in saga.report.kept] == ["acharge"]
    assert (told["c2"].is_error, "kit.declare('later'" in told["c2"].content) == (True, True)


class Everything:
    """A retriever that finds all tools."""

    def __init__(self, *tools):
        self.tools = tools

    async def aretrieve(self, _text):
        return list(self.tools)


@pytest.mark.parametrize("several", [False, True])
def test_tools_that_are_retrieved(kit, shop, several):
    """Tools that a retriever finds are covered, in an agent and in a workflow of agents."""
    agent = FunctionAgent(llm=Scripted(turns([("charge", A), ("acharge", B)])))
    vars(agent)["tool_retriever"] = Everything(charge, acharge)  # The framework's own needs an index.
    thing = protect(AgentWorkflow(agents=[agent]) if several else agent, kit)
    with kit.transaction("buy") as saga:
        run(thing)
    assert sorted(step.tool for step in saga.report.kept) == ["acharge", "charge"]


def test_a_copy_is_protected(kit, shop, maker):
    """A copy of a protected agent is protected, with the tools that it gets itself."""
    copied = maker.agent([charge], [("charge", A), ("acharge", B)]).model_copy()
    copied.tools = [acharge]
    copied.tools.append(charge)
    with kit.transaction("buy") as saga:
        run(copied)
    assert sorted(step.tool for step in saga.report.kept) == ["acharge", "charge"]


def test_protecting_again(kit, shop, maker):
    """Protecting an agent again changes nothing."""
    agent = maker.agent([charge], ("charge", A))
    kind, tools = type(agent), list(agent.tools)
    assert protect(agent) is agent
    assert protect(agent, kit) is agent
    assert (type(agent), agent.tools) == (kind, tools)
    assert (isinstance(agent, FunctionAgent), kind.__name__, kind.__module__) == (
        True,
        "FunctionAgent",
        FunctionAgent.__module__,
    )


# -- at the same time -------------------------------------------------------------------------------------------------


def test_a_failing_sibling(kit, shop, maker):
    """When one of the calls of a turn fails, what the others did is taken back."""
    shop.raises |= {"boom": ValueError("x"), "aboom": ValueError("y")}
    calls = [("charge", A), ("boom", B), ("acharge", {"thing": "c"}), ("aboom", {"thing": "d"})]
    with pytest.raises(SagaRolledBack, match=r"(?s)boom.*boom"), kit.transaction("buy"):
        told = run(maker.agent([charge, boom, acharge, aboom], calls))
    assert [told[id_].is_error for id_ in ("c1", "c2", "c3", "c4")] == [False, True, False, True]
    assert (shop.standing, shop.count("refund")) == ([], 2)


def test_a_repaired_failure(kit, shop, maker):
    """A failure that the model repairs with an equal call does not roll anything back."""
    shop.raises["aboom"] = ValueError("x")

    async def main():
        agent = maker.agent([aboom], ("aboom", A), ("aboom", A))
        async with kit.transaction("buy") as saga:
            handler = agent.run(user_msg="go")
            async for event in handler.stream_events():
                if isinstance(event, ToolCallResult):
                    shop.raises.clear()
            await handler
        return saga

    assert (asyncio.run(main()).report.outcome, shop.standing) == ("committed", ["a"])


def test_a_refusal_is_a_tool_error(kit, shop, maker):
    """What a policy refuses the model reads as an error of the tool, with the reason; the saga commits."""
    with kit.transaction("buy", policies=[NoBigOnes()]) as saga:
        told = run(maker.agent([charge], ("charge", A)))
    assert told["c1"].is_error
    assert "too big" in told["c1"].content
    assert (saga.report.outcome, shop.events) == ("committed", [])


# -- ids --------------------------------------------------------------------------------------------------------------


def test_ids_that_the_model_repeats(kit, shop):
    """A model that uses an id again, in a later turn, makes a new call, also with equal arguments."""
    said = [[("charge", A, "same")], [("charge", A, "same")], [("acharge", A, "same")]]
    agent = protect(FunctionAgent(tools=[charge, acharge], llm=Scripted(said)), kit)
    with kit.transaction("buy") as saga:
        run(agent)
    assert len(saga.report.kept) == 3
    assert shop.count("charge") == 2


def test_two_runs_with_equal_ids(kit, shop, maker):
    """Two runs in one saga are two runs, whatever their ids are, and also in one context."""
    agent = maker.agent([charge])

    async def main():
        async with kit.transaction("buy") as saga:
            context = Context(agent)
            for ctx in (None, context, context):
                agent.llm.say(turns(("charge", A)))
                await arun(agent, **({} if ctx is None else {"ctx": ctx}))
            agent.llm.say(turns(("charge", A)) * 2)
            await asyncio.gather(arun(agent), arun(agent))
        return saga

    assert len(asyncio.run(main()).report.kept) == shop.count("charge") == 5


# -- traces -----------------------------------------------------------------------------------------------------------


class Tags(SimpleSpanHandler):
    seen: list = Field(default_factory=list)

    def new_span(self, id_, bound_args, instance=None, parent_span_id=None, tags=None, **kwargs):
        self.seen.append((id_.rpartition("-")[0], (tags or {}).get("saga_id")))
        return super().new_span(id_, bound_args, instance, parent_span_id, tags, **kwargs)


def test_spans_have_the_saga(kit, shop, maker):
    """Every span in a run, those of its tools too, is tagged with the saga's id; the framework tags no run's own."""
    handler, dispatcher = Tags(), get_dispatcher()
    dispatcher.add_span_handler(handler)
    try:
        with kit.transaction("buy") as saga:
            run(maker.agent([charge], ("charge", A)))
    finally:
        dispatcher.span_handlers.remove(handler)
    assert any("FunctionTool.acall" in name for name, _ in handler.seen)
    assert {tag for name, tag in handler.seen if not name.startswith("FunctionAgent.run-")} == {saga.id}


# -- lost contexts ----------------------------------------------------------------------------------------------------


def test_a_run_that_began_before_the_saga(kit, shop, maker):
    """A run keeps the context in which it began: what must have a saga does not run in one that was opened later."""
    kit.declare("must", requires_saga=True, **BACK)
    agent = maker.agent([tool(charge.real_fn, name="must")], ("must", A))

    async def main():
        handler = agent.run(user_msg="go")
        async with kit.transaction("late"):
            return (await results(handler))[0]["c1"]

    output = asyncio.run(main())
    assert (type(output.exception), shop.events) == (NoSaga, [])


def test_a_run_that_ends_after_the_saga(kit, shop, maker):
    """A run that goes on after its scope has ended makes no more calls; the model hears why."""
    agent = maker.agent([charge], ("charge", A))

    async def main():
        async with kit.transaction("short"):
            handler = agent.run(user_msg="go")
        return (await results(handler))[0]["c1"]

    output = asyncio.run(main())
    assert (output.is_error, shop.events) == (True, [])
    assert "did not run" in output.content


def test_tools_of_an_agent_that_is_not_protected(kit, shop):
    """Tools that were protected in a list are steps, with their ids, in any agent."""
    agent = FunctionAgent(tools=protect([charge, acharge], kit), llm=Scripted(turns([("charge", A), ("acharge", B)])))
    with kit.transaction("buy") as saga:
        run(agent)
    assert (sorted(ids(kit)), len(saga.report.kept)) == (["c1", "c2"], 2)


def test_without_a_saga(kit, shop, maker, tmp_path):
    """Outside of a saga an agent does what it did, and no log is made."""
    told = run(maker.agent([charge, FunctionTool.from_defaults(_unseen, name="look")], ("charge", A), ("look", A)))
    assert json.dumps([one.raw_output for one in told.values()]) == '[{"id": "a"}, "seen"]'
    assert not (tmp_path / "agent-saga.db").exists()


def _unseen(thing: str) -> str:
    """Look."""
    return "seen"


def test_what_a_thread_of_its_own_does(kit, shop, maker):
    """A tool that calls others in a thread of its own binds it to the saga, or the call fails closed."""
    import threading

    from agent_saga import current_saga

    kit.declare("must", requires_saga=True, **BACK)
    must = protect(tool(charge.real_fn, name="must"), kit)
    failed = []

    def call(thing):
        try:
            must(thing=thing)
        except NoSaga as error:
            failed.append(error)

    def spread(thing: str) -> str:
        """Do it elsewhere."""
        for target in (call, current_saga().bind(call)):
            thread = threading.Thread(target=target, args=(thing,))
            thread.start()
            thread.join()
        return "spread"

    kit.declare_read_only("spread")
    with kit.transaction("buy") as saga:
        run(maker.agent([tool(spread)], ("spread", A)))
    assert (len(failed), [step.tool for step in saga.report.kept]) == (1, ["must"])
    assert shop.events == [("charge", "a")]
