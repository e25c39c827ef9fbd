"""Tools of local MCP servers: known only when a run begins, and steps like the others."""

import asyncio

import pytest
from agents import Agent, Runner, function_tool
from agents.mcp import MCPServer
from agents_scripted import Scripted, answers, run_sync, turns
from agents_shop import charge, new, refund
from mcp.types import CallToolResult
from mcp.types import Tool as MCPTool

from agent_saga import Refuse, SagaRolledBack
from agent_saga.errors import DeclarationError
from agent_saga_openai_agents import protect

SCHEMA = {
    "type": "object",
    "properties": {"thing": {"type": "string"}, "idempotency_key": {"type": "string"}},
    "required": ["thing", "idempotency_key"],
}
PLAIN = {"effect": "compensable", "compensate": refund.bind(thing="kwargs.thing")}


class Server(MCPServer):
    """A server in this process: `wire` acts, and fails as the test says."""

    def __init__(self, fails=None):
        super().__init__()
        self.fails = fails
        self.given = []

    @property
    def name(self):
        return "bank"

    async def connect(self):
        pass

    async def cleanup(self):
        pass

    async def list_tools(self, run_context=None, agent=None):
        return [MCPTool.model_validate({"name": "wire", "description": "Wire.", "inputSchema": SCHEMA})]

    async def call_tool(self, tool_name, arguments, meta=None):
        self.given.append(arguments)
        if isinstance(self.fails, BaseException):
            raise self.fails
        content = [{"type": "text", "text": self.fails or "sent"}]
        if self.fails is None:
            new("wire", arguments["thing"])
        return CallToolResult.model_validate({"content": content, "isError": self.fails is not None})

    async def list_prompts(self):
        raise NotImplementedError

    async def get_prompt(self, name, arguments=None):
        raise NotImplementedError


def agent_of(server, *calls, kit, **options):
    model = Scripted(turns(*calls))
    return protect(Agent(name="a", model=model, tools=[charge], mcp_servers=[server], **options), kit)


WIRE = ("wire", {"thing": "x"})


@pytest.mark.parametrize("added", ["before", "after"])
def test_a_servers_tool_is_a_step(kit, shop, added):
    """A call of a server's tool is a step with the server's own answer; its key is hidden, and reaches the server."""
    kit.declare("wire", key_param="idempotency_key", **PLAIN)
    server = Server()
    agent = agent_of(server, WIRE, kit=kit) if added == "before" else protect(Agent(name="a"), kit)
    if added == "after":
        agent.mcp_servers.append(server)
        agent.model = Scripted(turns(WIRE))
    with kit.transaction("buy") as saga:
        assert answers(run_sync(agent)) == [{"type": "text", "text": "sent"}]
    (step,) = saga.report.kept
    assert (step.tool, step.kwargs, shop.standing) == ("wire", {"thing": "x"}, ["x"])
    assert server.given == [{"thing": "x", "idempotency_key": step.key}]
    (shown,) = [tool for tool in agent.model.tools[0] if tool.name == "wire"]
    assert (list(shown.params_json_schema["properties"]), shown.params_json_schema["required"]) == (
        ["thing"],
        ["thing"],
    )


def test_a_servers_tool_is_compensated(kit, shop):
    """What a server's tool did is taken back when the run fails."""
    kit.declare("wire", **PLAIN)

    @function_tool(failure_error_function=None)
    def boom(thing: str) -> dict:
        """Fail."""
        raise ValueError("no stock")

    agent = agent_of(Server(), WIRE, ("boom", {"thing": "b"}), kit=kit)
    agent.tools.append(boom)
    with pytest.raises(Exception, match="no stock"), kit.transaction("buy"):
        run_sync(agent)
    assert shop.events == [("wire", "x"), ("refund", "x")]


@pytest.mark.parametrize("fails", ["no such account", RuntimeError("broken"), ConnectionError("lost")], ids=str)
def test_a_servers_error_counts(kit, shop, fails):
    """An answer that is an error, and an exception, fail the step, though the model is told, and told the same."""
    kit.declare("wire", **PLAIN)
    told = []
    with pytest.raises(SagaRolledBack, match="wire"), kit.transaction("buy"):
        told.append(answers(run_sync(agent_of(Server(fails), WIRE, kit=kit))))
    bare = Agent(name="a", model=Scripted(turns(WIRE)), mcp_servers=[Server(fails)])
    assert told == [answers(run_sync(bare))]


def test_the_real_exception_is_judged(kit, shop):
    """A request that was sent and got no answer is in doubt, although the framework wraps its exception."""
    kit.declare("wire", **PLAIN)
    states = []
    with pytest.raises(SagaRolledBack), kit.transaction("buy") as saga:
        run_sync(agent_of(Server(TimeoutError("no answer")), WIRE, kit=kit))
        states.extend(step.state for step in saga.steps())
    assert states == ["in_doubt"]


class No:
    def decide(self, call, saga):
        return Refuse("too big")


@pytest.mark.parametrize("declared", [False, True])
def test_a_refused_tool_does_not_reach_the_server(kit, declared):
    """A refused tool, and one that is not declared, is answered as the server's own error, with the reason."""
    if declared:
        kit.declare("wire", **PLAIN)
    server = Server()
    with kit.transaction("buy", policies=[No()]) as saga:
        (answer,) = answers(run_sync(agent_of(server, WIRE, kit=kit)))
    assert ("too big" if declared else "kit.declare('wire'") in answer["text"]
    assert (server.given, saga.report.outcome) == ([], "committed")


def test_a_servers_answer_is_replayed(kit, shop):
    """A resumed saga answers with what the server answered."""
    kit.declare("wire", **PLAIN)
    server = Server()
    for _ in range(2):
        with kit.transaction("buy", key="order-1"):
            told = answers(run_sync(agent_of(server, WIRE, kit=kit)))
    assert (told, len(server.given)) == ([{"type": "text", "text": "sent"}], 1)


def test_names_that_the_framework_makes_unique(kit, shop):
    """A tool whose name has the server's in front is declared by the name that the model sees."""
    kit.declare("mcp_bank__wire", **PLAIN)
    server = Server()
    agent = agent_of(server, kit=kit, mcp_config={"include_server_in_tool_names": True})

    async def main():
        (name,) = [tool.name for tool in await agent.get_all_tools(None) if tool.name != "charge"]
        kit.declare(name, **PLAIN)
        agent.model = Scripted(turns((name, {"thing": "x"})))
        async with kit.transaction("buy") as saga:
            await Runner.run(agent, "go")
        return name, saga.report

    name, report = asyncio.run(main())
    assert [step.tool for step in report.kept] == [name]
    assert name != "wire"


def test_other_requests_are_left_alone(kit, shop):
    """What a program asks a server itself is no step, also in a saga; nor is it outside of one."""
    server = Server()
    agent = agent_of(server, WIRE, kit=kit)
    run_sync(agent)
    with kit.transaction("buy") as saga:
        asyncio.run(server.call_tool("wire", {"thing": "y"}))
    assert (saga.report.kept, shop.standing) == ((), ["x", "y"])


def test_a_declaration_that_does_not_fit_is_noticed(kit):
    """A declaration that names a parameter that a server's tool lacks stops the run before its first call."""
    kit.declare("wire", effect="compensable", compensate=refund.bind(thing="kwargs.account"))
    with pytest.raises(DeclarationError, match="account"), kit.transaction("buy"):
        run_sync(agent_of(Server(), WIRE, kit=kit))


def test_bad_arguments_do_not_reach_the_server(kit):
    """Arguments that are no JSON object are no step."""
    kit.declare("wire", **PLAIN)
    server = Server()
    agent = agent_of(server, kit=kit)
    agent.model = Scripted([[("wire", "{", "c1")]])
    with kit.transaction("buy") as saga:
        run_sync(agent)
    assert (server.given, saga.report.kept) == ([], ())
