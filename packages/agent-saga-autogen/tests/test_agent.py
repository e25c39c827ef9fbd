"""Runs of protected agents: every call is a step, in every way to run, and nothing gets past it."""

import asyncio
import contextlib
import json
import logging

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.code_executor import CodeExecutor
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.tools import FunctionTool, StaticStreamWorkbench
from autogen_scripted import WAYS, Scripted, answers, arun, in_saga, run
from autogen_shop import BACK, AskFirst, acharge, boom, charge, look, new, refund
from opentelemetry import trace

from agent_saga import SagaRolledBack
from agent_saga.errors import UndeclaredTool, UsageError
from agent_saga.spi import read_records
from agent_saga_autogen import protect

CHARGE = ("charge", {"thing": "a"})
BOOM = ("boom", {"thing": "b"})


@WAYS
def test_a_run_that_succeeds_commits(kit, maker, way):
    """Every tool call of a run is one step, and the saga around it commits."""
    agent = maker.agent([charge, look], CHARGE, ("look", {"thing": "a"}))
    result, saga = run(kit, agent, way)
    assert answers(result) == ["{'id': 'a'}", "a: fine"]
    (step,) = saga.report.kept
    assert (saga.report.outcome, step.tool, step.kwargs, step.result) == (
        "committed",
        "charge",
        {"thing": "a"},
        {"id": "a"},
    )


@WAYS
@pytest.mark.parametrize("reflect", [False, True])
def test_swallowed_errors_do_not_commit(kit, shop, maker, way, reflect):
    """AutoGen tells every error to the model; it fails the saga all the same, and the message names it."""
    shop.raises["boom"] = ValueError("no stock")
    agent = maker.agent([charge, boom], [CHARGE, BOOM], max_tool_iterations=1, reflect_on_tool_use=reflect)
    with pytest.raises(SagaRolledBack, match="boom") as caught:
        run(kit, agent, way)
    assert (caught.value.report.clean, shop.events[-1], shop.standing) == (True, ("refund", "a"), [])


@WAYS
def test_a_model_that_dies_rolls_back(kit, shop, maker, way):
    """An exception that leaves the run, here the model's, rolls back what was done."""
    agent = maker.agent([charge, acharge], CHARGE, ("acharge", {"thing": "b"}), OSError("no model"))
    with pytest.raises((OSError, RuntimeError), match="no model"):
        run(kit, agent, way)
    assert shop.events[2:] == [("refund", "b"), ("refund", "a")]


def test_a_failure_that_the_model_repairs_commits(kit, shop, maker):
    """A failed call that the model makes again, and that succeeds then, leaves nothing unresolved."""
    failures = iter([ValueError("busy")])

    async def flaky(thing: str) -> dict:
        """Fail once."""
        for failure in failures:
            raise failure
        return new("flaky", thing)

    kit.declare("flaky", **BACK)
    _, saga = run(kit, maker.agent([flaky], ("flaky", {"thing": "a"}), ("flaky", {"thing": "a"})))
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"])


def test_the_intent_is_durable_before_the_body(kit, maker):
    """When a tool's body runs, another reader of the log finds its intent there, with the framework's id."""
    seen = []

    def spy(thing: str) -> str:
        """Look into the log."""
        seen.extend(record for record in read_records(kit.log) if record["kind"] == "intent")
        return "seen"

    kit.declare("spy", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    run(kit, maker.agent([spy], ("spy", {"thing": "a"})))
    (intent,) = seen
    assert (intent["tool"], intent["adapter"], intent["call_id"]) == ("spy", "autogen", "c1")
    assert intent["values"]["kwargs.thing"] == "a"


def test_repeated_ids_are_new_calls(kit, shop, maker):
    """A model's id is unique in its turn only: an equal call with the same id in a later turn is another step."""
    model = Scripted([[("charge", {"thing": "a"}, "c1")], [("charge", {"thing": "a"}, "c1")]])
    _, saga = run(kit, maker.agent([charge], model=model))
    assert (len(saga.report.kept), shop.count("charge")) == (2, 2)


@pytest.mark.parametrize("arguments", ['{"thing": {}}', "{", '{"thin": "a"}', "[1]", '"a"'])
def test_invalid_arguments_are_no_step(kit, shop, maker, arguments):
    """Arguments that AutoGen refuses never become an intent, and fail nothing."""
    _, saga = run(kit, maker.agent([charge], ("charge", arguments)))
    assert (saga.report.outcome, saga.report.kept, shop.events) == ("committed", (), [])


def test_without_a_saga_nothing_happens(shop, maker, tmp_path):
    """Outside of a saga a protected agent runs as it did, and writes no log."""
    ran = [asyncio.run(make([charge], CHARGE).run(task="go")) for make in (maker.bare, maker.agent)]
    assert answers(ran[0]) == answers(ran[1])
    assert (shop.count("charge"), list(tmp_path.iterdir())) == (2, [])


# -- what an agent is, and what is added to it --------------------------------------------------------------------


def test_an_agent_stays_what_it_was(kit, maker):
    """Protecting changes an agent in place, once; it stays an instance of its class, and what it shows of itself."""

    class Mine(AssistantAgent):
        pass

    agent = Mine("a", model_client=Scripted(), tools=[charge])
    assert protect(agent, kit) is agent
    before = dict(vars(agent))
    assert protect(agent, kit) is agent
    assert isinstance(agent, Mine)
    assert (type(agent).__name__, type(agent).__module__, vars(agent)) == ("Mine", __name__, before)
    assert isinstance(agent._workbench[0], StaticStreamWorkbench)


def test_tools_added_later(kit, shop, maker):
    """A tool that an agent is given after it was protected is a step, and refused where it is not declared."""
    agent = maker.agent([charge], BOOM, ("secret", {"thing": "s"}))
    agent._tools.append(FunctionTool(boom, "Later."))

    def secret(thing: str) -> dict:
        """Nobody said what this does."""
        return new("secret", thing)

    agent._tools.append(FunctionTool(secret, "Later."))
    result, saga = run(kit, agent)
    assert [step.tool for step in saga.report.kept] == ["boom"]
    assert "kit.declare('secret'" in answers(result)[1]
    assert shop.events == [("boom", "b")]


def test_a_tool_that_only_the_framework_knows(kit, shop, maker):
    """A tool that the model calls and no workbench has is AutoGen's error, and no step."""
    result, saga = run(kit, maker.agent([charge], ("nothing", {})))
    assert ("not found" in answers(result)[0], saga.report.outcome, shop.events) == (True, "committed", [])


class Careless(BaseChatAgent):
    """An agent of the user's own, that calls a tool of its own."""

    produced_message_types = (TextMessage,)

    def __init__(self, *tools):
        super().__init__("careless", "Careless.")
        self.mine = {tool.name: tool for tool in tools}

    async def on_messages(self, messages, cancellation_token):
        for tool in self.mine.values():
            told = await tool.run_json({"thing": "c"}, cancellation_token)
        return Response(chat_message=TextMessage(content=str(told), source=self.name))

    async def on_reset(self, cancellation_token):
        pass


@WAYS
def test_an_agent_of_ones_own(kit, shop, way):
    """Tools that an agent of any class holds are steps; what it lets out is what leaves the run."""
    shop.raises["boom"] = ValueError("no stock")
    agent = protect(Careless(FunctionTool(charge, "C."), FunctionTool(boom, "B.")), kit)
    with pytest.raises((ValueError, RuntimeError), match="no stock"):
        run(kit, agent, way)
    assert shop.events == [("charge", "c"), ("refund", "c")]


def test_a_code_executor_is_refused(kit):
    """An agent that runs what a model wrote is refused, unless it is said to change nothing."""

    class Never(CodeExecutor):
        start = stop = restart = execute_code_blocks = None

    def make():
        return CodeExecutorAgent("coder", code_executor=Never(), approval_func=lambda request: None)

    with pytest.raises(UndeclaredTool, match="coder"):
        protect(make(), kit)
    kit.declare("coder", effect="irreversible")
    with pytest.raises(UsageError, match=r"kit.declare_read_only\('coder'\)"):
        protect(make(), kit)


# -- agents within agents -----------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("kind", ["agent", "team"])
def test_an_agent_as_a_tool_is_a_pass_through(kit, shop, maker, way, kind):
    """An agent or team that is a tool is no step; its tools are, of the same saga, and an outer failure undoes them."""
    inner = maker.bare([charge], CHARGE, name="inner")
    asks = AgentTool(inner) if kind == "agent" else TeamTool(RoundRobinGroupChat([inner], max_turns=1), "inner", "I.")
    shop.raises["boom"] = ValueError("no stock")
    agent = maker.agent([asks, boom], ("inner", {"task": "do"}), BOOM)
    with pytest.raises(SagaRolledBack, match="boom") as caught:
        run(kit, agent, way)
    assert [step.tool for step in caught.value.report.compensated] == ["charge"]
    assert shop.events == [("charge", "a"), ("refund", "a")]


def test_a_handoff_is_no_step(kit, maker):
    """Handing over is AutoGen's own affair; calls beside it are steps."""
    agent = maker.agent([charge], [CHARGE, ("transfer_to_user", {})], handoffs=["user"])
    result, saga = run(kit, agent)
    assert isinstance(result.messages[-1], HandoffMessage)
    assert [step.tool for step in saga.report.kept] == ["charge"]


@pytest.mark.parametrize("streaming", [False, True])
def test_the_model_is_told_what_it_is_told_without_us(kit, maker, streaming):
    """The messages that a model receives, and the schemas, are equal with the adapter and without."""
    calls = ([CHARGE, ("look", {"thing": "x"})], ("nothing", {}), ("charge", "{"))
    bare = maker.bare([charge, look], *calls, model_client_stream=streaming)
    asyncio.run(bare.run(task="go"))
    agent = maker.agent([charge, look], *calls, model_client_stream=streaming)
    run(kit, agent)
    assert agent._model_client.inputs == bare._model_client.inputs
    assert agent._model_client.tools == bare._model_client.tools


def test_a_buffered_context(kit, maker):
    """A context that shows the model only its last messages changes nothing for the saga."""
    context = BufferedChatCompletionContext(2)
    _, saga = run(kit, maker.agent([charge], CHARGE, ("charge", {"thing": "b"}), model_context=context))
    assert len(saga.report.kept) == 2


# -- traces ---------------------------------------------------------------------------------------------------------


class Span(trace.NonRecordingSpan):
    def __init__(self, name):
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name, self.attributes = name, {}

    def set_attribute(self, key, value):
        self.attributes[key] = value


class Spans(trace.TracerProvider, trace.Tracer):
    """OpenTelemetry with a list as its exporter; its SDK is no dependency of AutoGen's."""

    def __init__(self):
        self.spans = []

    def get_tracer(self, *args, **options):
        return self

    def start_span(self, name, *args, **options):
        self.spans.append(Span(name))
        return self.spans[-1]

    @contextlib.contextmanager
    def start_as_current_span(self, name, *args, **options):
        with trace.use_span(self.start_span(name)) as span:
            yield span


def test_the_saga_is_on_the_spans(kit, maker, monkeypatch):
    """The saga's id is an attribute of the spans of the agent and of its tools, sync and async."""
    provider = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    _, saga = run(kit, maker.agent([charge, acharge], [CHARGE, ("acharge", {"thing": "b"})]))
    marked = {span.name for span in provider.spans if span.attributes.get("saga_id") == saga.id}
    assert marked == {"invoke_agent buyer", "execute_tool charge", "execute_tool acharge"}


def test_the_event_log_is_the_frameworks_own(kit, maker, caplog):
    """AutoGen's tool events are logged as without the adapter: once for a call, with the raw arguments."""
    with caplog.at_level(logging.INFO, "autogen_core.events"):
        run(kit, maker.agent([charge], CHARGE))
    events = [json.loads(str(one.msg)) for one in caplog.records if "ToolCall" in type(one.msg).__name__]
    assert [(one["tool_name"], one["arguments"]) for one in events] == [("charge", {"thing": "a"})]


# -- what must not hang -----------------------------------------------------------------------------------------------


class Hard(BaseException):
    """Not an `Exception`."""


@WAYS
@pytest.mark.parametrize("nature", ["sync", "async"])
def test_a_tool_that_raises_no_exception_at_all(kit, shop, maker, way, nature):
    """Where AutoGen would wait for ever, the run ends with what the tool raised, and everything is taken back."""

    def hard(thing: str) -> dict:
        """Raise."""
        raise Hard("hard")

    async def ahard(thing: str) -> dict:
        """Raise."""
        raise Hard("hard")

    kit.declare("hard", **BACK)
    body = hard if nature == "sync" else ahard
    agent = maker.agent([charge, FunctionTool(body, "H.", name="hard")], [CHARGE, ("hard", {"thing": "h"})])

    async def main(saga):
        return await asyncio.wait_for(arun(way, agent), 20)

    with pytest.raises(SagaRolledBack if way == "team" else Hard):
        in_saga(kit, main)
    assert shop.standing == []


@pytest.mark.parametrize("way", ["run", "stream"])
def test_an_inner_agent_that_raises_no_exception_at_all(kit, shop, maker, way):
    """The same within an agent that is a tool: the outer run ends with it too."""

    async def hard(thing: str) -> dict:
        """Raise."""
        raise Hard("hard")

    kit.declare("hard", **BACK)
    inner = maker.bare([hard], ("hard", {"thing": "h"}), name="inner")
    agent = maker.agent([charge, AgentTool(inner)], CHARGE, ("inner", {"task": "do"}))

    async def main(saga):
        return await asyncio.wait_for(arun(way, agent), 20)

    with pytest.raises(Hard):
        in_saga(kit, main)
    assert shop.events == [("charge", "a"), ("refund", "a")]


def test_a_call_that_waits_beside_one_that_ends_the_run(kit, shop, maker):
    """What ends the run comes before what it would wait for."""

    async def hard(thing: str) -> dict:
        """Raise."""
        raise Hard("hard")

    kit.declare("hard", **BACK)
    with pytest.raises(Hard):
        run(kit, maker.agent([charge, hard], [CHARGE, ("hard", {"thing": "h"})]), policies=[AskFirst()])
    assert shop.events == []


def test_errors_of_usage_end_the_run(kit, shop, maker):
    """A mistake of the program's is no matter for the model: it leaves the run, with its own class."""
    agent = maker.agent([acharge], ("acharge", {"thing": "a"}))

    async def main():
        with kit.transaction("buy"):  # A sync scope in a loop cannot take back async tools.
            await agent.run(task="go")

    with pytest.raises(UsageError, match="async with"):
        asyncio.run(main())
    assert shop.events == []
