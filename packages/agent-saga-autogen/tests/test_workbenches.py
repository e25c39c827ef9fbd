"""Workbenches: of tools, with streams and other names, and those that know by themselves what their tools do."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.tools import (
    FunctionTool,
    StaticStreamWorkbench,
    StaticWorkbench,
    TextResultContent,
    ToolOverride,
    ToolResult,
    Workbench,
)
from autogen_scripted import Scripted, answers, in_saga, run, turns
from autogen_shop import NoBigOnes, boom, charge, new, refund

from agent_saga import SagaRolledBack, SagaSuspended
from agent_saga.errors import UndeclaredTool
from agent_saga_autogen import protect


class Server(Workbench):
    """Shaped like `McpWorkbench`: tools that only the other side knows, with errors as results."""

    component_provider_override = "tests.Server"

    def __init__(self, *names, raises=None):
        self.names, self.raises, self.calls, self.started = names, raises, [], False
        self.hold = None

    async def list_tools(self):
        key = {"idempotency_key": {"type": "string"}} if "keyed" in self.names else {}
        properties = {"thing": {"type": "string"}, **key}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        return [{"name": name, "description": "D.", "parameters": parameters} for name in self.names]

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        self.calls.append((name, dict(arguments), call_id))
        if self.raises is not None:
            raise self.raises
        if self.hold is not None:
            self.hold.set()
            await cancellation_token.link_future(asyncio.get_running_loop().create_future())
        if arguments["thing"] == "sold out":
            return ToolResult(name=name, result=[TextResultContent(content="sold out")], is_error=True)
        return ToolResult(name=name, result=[TextResultContent(content=str(new(name, arguments["thing"])))])

    async def start(self):
        self.started = True

    async def stop(self):
        self.started = False

    async def reset(self):
        pass

    async def save_state(self):
        return {"calls": len(self.calls)}

    async def load_state(self, state):
        pass

    def _to_config(self):
        raise NotImplementedError

    @classmethod
    def _from_config(cls, config):
        raise NotImplementedError


KEPT = {"effect": "compensable", "compensate": refund.bind(thing="kwargs.thing")}


def agent_on(bench, *calls, kit=None, **options):
    agent = AssistantAgent("a", model_client=Scripted(turns(*calls)), workbench=bench, max_tool_iterations=9, **options)
    return agent if kit is None else protect(agent, kit)


FORMS = pytest.mark.parametrize("form", ["agent", "workbench"])


def protected(form, bench, *calls, kit):
    """An agent on a workbench; one of both is protected."""
    if form == "agent":
        return agent_on(bench, *calls, kit=kit)
    assert protect(bench, kit) is bench
    return agent_on(bench, *calls)


@FORMS
@pytest.mark.parametrize("kind", [StaticWorkbench, StaticStreamWorkbench])
def test_a_workbench_of_tools(kit, form, kind):
    """The tools of a workbench are steps, those that it is given later too; it stays what it is."""
    tools = [FunctionTool(charge, "C.")]
    bench = kind(tools)
    agent = protected(form, bench, ("charge", {"thing": "a"}), ("boom", {"thing": "b"}), kit=kit)
    tools.append(FunctionTool(boom, "B."))
    _, saga = run(kit, agent)
    assert [step.tool for step in saga.report.kept] == ["charge", "boom"]
    assert (isinstance(bench, kind), type(bench).__name__) == (True, kind.__name__)


def test_other_names_for_tools(kit):
    """A tool that a workbench shows under another name is declared under its own."""
    bench = StaticWorkbench([FunctionTool(charge, "C.")], tool_overrides={"charge": ToolOverride(name="buy")})
    _, saga = run(kit, agent_on(bench, ("buy", {"thing": "a"}), kit=kit))
    assert [step.tool for step in saga.report.kept] == ["charge"]


@FORMS
def test_a_server_s_calls_are_steps(kit, shop, form):
    """Calls of a workbench of any other kind are steps, with its own results, and are taken back."""
    kit.declare("book", **KEPT)
    server = Server("book")
    agent = protected(form, server, ("book", {"thing": "a"}), kit=kit)
    result, saga = run(kit, agent)
    assert (answers(result), server.calls) == (["{'id': 'a'}"], [("book", {"thing": "a"}, "c1")])
    (step,) = saga.report.kept
    assert (step.tool, step.kwargs) == ("book", {"thing": "a"})
    assert (isinstance(server, Server), shop.standing) == (True, ["a"])


@FORMS
@pytest.mark.parametrize("kind", ["result", "exception"])
def test_a_server_s_errors_count(kit, shop, form, kind):
    """A result that is an error fails the step; so does an exception, with which AutoGen would wait for ever."""
    kit.declare("book", **KEPT)
    server = Server("book", raises=OSError("no connection") if kind == "exception" else None)
    calls = [("charge", {"thing": "a"}), ("book", {"thing": "sold out"})]
    tools = StaticWorkbench([FunctionTool(charge, "C.")])
    if form == "workbench":
        protect(tools, kit)
    agent = protected(form, [tools, server], *calls, kit=kit) if form == "agent" else None
    agent = agent or agent_on([tools, protect(server, kit)], *calls)

    async def main(saga):
        return await asyncio.wait_for(agent.run(task="go"), 20)

    with pytest.raises(SagaRolledBack, match="book"):
        in_saga(kit, main)
    assert shop.events == [("charge", "a"), ("refund", "a")]


@FORMS
def test_a_server_s_undeclared_tools(kit, form):
    """All undeclared tools of a server are named at once, before the model is asked."""
    agent = protected(form, Server("book", "cancel"), ("book", {"thing": "a"}), kit=kit)
    with pytest.raises(UndeclaredTool) as caught:
        run(kit, agent)
    assert all(f"kit.declare({name!r}" in str(caught.value) for name in ("book", "cancel"))
    assert agent._model_client.said == 0


def test_a_server_s_new_undeclared_tool(kit, shop):
    """A tool that a server gets while it runs, and nobody declared, is refused when it is called."""
    kit.declare("book", **KEPT)
    server = Server("book")
    agent = agent_on(server, ("book", {"thing": "a"}), ("new", {"thing": "b"}), kit=kit)
    server.names = ("book",)

    async def main(saga):
        await server.list_tools()
        server.names = ("book", "new")
        return await agent.run(task="go")

    result, saga = in_saga(kit, main)
    assert "kit.declare('new'" in answers(result)[1]
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"])


def test_the_key_of_a_server_s_tool(kit):
    """A parameter that takes the key is hidden from the model, and receives the step's key."""
    kit.declare("keyed", key_param="idempotency_key", **KEPT)
    server = Server("keyed")
    agent = agent_on(server, ("keyed", {"thing": "a"}), kit=kit)
    _, saga = run(kit, agent)
    (step,) = saga.report.kept
    assert server.calls == [("keyed", {"thing": "a", "idempotency_key": step.key}, "c1")]
    assert list(agent._model_client.tools[0][0]["parameters"]["properties"]) == ["thing"]


def test_a_refusal_of_a_server_s_tool(kit, shop):
    """A refusal is the workbench's error, with the reason, and fails nothing."""
    kit.declare("book", **KEPT)
    result, saga = run(kit, agent_on(Server("book"), ("book", {"thing": "a"}), kit=kit), policies=[NoBigOnes()])
    assert "too big" in answers(result)[0]
    assert (saga.report.outcome, shop.events) == ("committed", [])


def test_a_server_s_result_is_replayed(kit, shop):
    """A resumed saga answers a server's call with its recorded result, as the framework's own object."""
    kit.declare("book", **KEPT)

    async def once(saga):
        await protect(Server("book"), kit).call_tool("book", {"thing": "a"})
        raise SagaSuspended("later")

    with pytest.raises(SagaSuspended):
        in_saga(kit, once, key="order-1")
    result, _ = run(kit, agent_on(Server("book"), ("book", {"thing": "a"}), kit=kit), key="order-1")
    assert (answers(result), shop.events) == (["{'id': 'a'}"], [("book", "a")])


@FORMS
def test_a_server_s_call_is_cancelled(kit, shop, form):
    """A token that is cancelled while a server works does not hang the run; the call is in doubt."""
    kit.declare("book", **KEPT)
    server = Server("book")
    agent = protected(form, server, ("book", {"thing": "a"}), kit=kit)
    token = CancellationToken()

    async def main(saga):
        server.hold = asyncio.Event()
        running = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
        await server.hold.wait()
        token.cancel()
        return await asyncio.wait_for(running, 20)

    with pytest.raises(SagaRolledBack) as caught:
        in_saga(kit, main)
    assert [step.tool for step in caught.value.report.in_doubt] == ["book"]
    assert shop.events == []


def test_outside_of_a_saga_a_server_is_bare(kit, tmp_path):
    """Without a saga a protected workbench raises and returns what it does without us."""
    kit.declare("book", **KEPT)

    async def main():
        bad = protect(Server("book", raises=OSError("no connection")), kit)
        with pytest.raises(OSError, match="no connection"):
            await bad.call_tool("book", {"thing": "a"})
        return await protect(Server("book"), kit).call_tool("book", {"thing": "a"})

    assert asyncio.run(main()).to_text() == "{'id': 'a'}"
    assert not list(tmp_path.glob("agent-saga.db*"))
