"""The conformance suite for adapters, on `create_agent` with the middleware and on a hand-made graph."""

from types import MappingProxyType

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Interrupt, RetryPolicy
from scripted import Scripted, ask, thread

from agent_saga import AgentKit
from agent_saga_langgraph import SagaMiddleware, protect
from pytest_agent_saga.conformance import AdapterSuite, Capability, Run, Seen


class Added(AgentMiddleware):
    """Brings tools along that the agent was not made with."""

    def __init__(self):
        super().__init__()
        self.tools_by_name = {}

    def brought(self, request):
        found = self.tools_by_name.get(request.tool_call["name"])
        return request if found is None else request.override(tool=found)

    def wrap_tool_call(self, request, handler):
        return handler(self.brought(request))

    async def awrap_tool_call(self, request, handler):
        return await handler(self.brought(request))


class Swallows(AgentMiddleware):
    """Turns every error of a tool into text."""

    def wrap_tool_call(self, request, handler):
        try:
            return handler(request)
        except GraphInterrupt:
            raise
        except Exception as error:
            return self.told(request, error)

    async def awrap_tool_call(self, request, handler):
        try:
            return await handler(request)
        except GraphInterrupt:
            raise
        except Exception as error:
            return self.told(request, error)

    def told(self, request, error):
        return ToolMessage(f"{type(error).__name__}: {error}", tool_call_id=request.tool_call["id"], status="error")


class Runs:
    """What agents and graphs have in common: see `conformance.Agent`."""

    def __init__(self, model, saver):
        self.model, self.saver = model, saver

    def begin(self, turns, name):
        self.saver.delete_thread(name)
        self.model.turns = [[(call.tool, dict(call.arguments), call.id) for call in turn] for turn in turns]
        return ask(), thread(name)

    def run(self, turns, *, thread):
        return told(self.graph.invoke(*self.begin(turns, thread)))

    async def arun(self, turns, *, thread):
        return told(await self.graph.ainvoke(*self.begin(turns, thread)))

    async def astream(self, turns, *, thread):
        seen = {}
        async for chunk in self.graph.astream(*self.begin(turns, thread), stream_mode="values"):
            seen |= chunk
        return told(seen)

    def answer(self, thread_id, *, approved):
        return told(self.graph.invoke(word(approved), thread(thread_id)))

    async def aanswer(self, thread_id, *, approved):
        return told(await self.graph.ainvoke(word(approved), thread(thread_id)))


def word(approved):
    return Command(resume={"type": "approve" if approved else "reject"})


def told(state):
    messages = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    seen = tuple(Seen(one.tool_call_id, str(one.content), one.status == "error") for one in messages)
    return Run(seen=seen, paused="__interrupt__" in state)


class AgentRuns(Runs):
    """`create_agent` with the middleware; protected twice, its tools are protected as well."""

    def __init__(self, bodies, saver, *, kit, swallow, retries, protect_times):
        super().__init__(Scripted(turns=[], bound=[]), saver)
        self.kit, self.added = kit, Added()
        tools = [tool(body) for body in bodies]
        if protect_times > 1:
            tools = protect(tools, kit)
        retry = ToolRetryMiddleware(max_retries=retries, initial_delay=0, jitter=False, on_failure="error")
        middleware = [
            self.added,
            *([Swallows()] if swallow else []),
            *([retry] if retries else []),
            *([SagaMiddleware(kit)] if kit is not None else []),
        ]
        self.graph = create_agent(self.model, tools, middleware=middleware, checkpointer=saver)

    def schemas(self):
        """What the model is given, inside a saga."""
        with AgentKit("memory:").transaction("look"):
            self.run([], thread="look")
        return [convert_to_openai_tool(one) for one in self.model.bound[-1]]

    def add(self, body):
        self.added.tools_by_name[body.__name__] = tool(body)


class GraphRuns(Runs):
    """A hand-made graph around one ToolNode."""

    def __init__(self, bodies, saver, *, kit, swallow, retries, protect_times):
        super().__init__(Scripted(turns=[]), saver)
        options = {"handle_tool_errors": lambda error: f"{type(error).__name__}: {error}"} if swallow else {}
        self.node = ToolNode([tool(body) for body in bodies], **options)
        if kit is not None:
            for _ in range(protect_times):
                self.node = protect(self.node, kit)
        policy = RetryPolicy(max_attempts=1 + retries, initial_interval=0.001, jitter=False, retry_on=Exception)
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [self.model.invoke(state["messages"])]})
        graph.add_node("tools", self.node, **({"retry_policy": policy} if retries else {}))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
        graph.add_edge("tools", "model")
        self.graph = graph.compile(checkpointer=saver)

    def schemas(self):
        return [convert_to_openai_tool(one) for one in self.node.tools_by_name.values()]

    def add(self, body):
        self.node.tools_by_name[body.__name__] = tool(body)


class Driver:
    """See `conformance.AdapterDriver`."""

    adapter = "langgraph"
    capabilities = frozenset(Capability)
    gaps = MappingProxyType({})

    def __init__(self, runs):
        self.runs, self.saver, self.made = runs, InMemorySaver(), None

    def agent(self, bodies, *, kit, swallow, retries, protect):
        self.made = self.runs(bodies, self.saver, kit=kit, swallow=swallow, retries=retries, protect_times=protect)
        return self.made

    def error_result(self, text):
        """An error message must carry the id of its call, which is the script's last."""
        return ToolMessage(text, tool_call_id=self.made.model.turns[-1][-1][2], status="error")

    def control_flow(self):
        return GraphInterrupt((Interrupt(value="steered by the tool", id="steered"),))


class TestAgents(AdapterSuite):
    """`create_agent` with `SagaMiddleware`."""

    def driver(self, folder):
        return Driver(AgentRuns)


class TestGraphs(AdapterSuite):
    """A `ToolNode` under `protect`."""

    def driver(self, folder):
        return Driver(GraphRuns)
