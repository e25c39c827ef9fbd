"""The conformance suite for adapters, on the real framework."""

import asyncio
from typing import ClassVar

from agents import Agent, Runner, RunState, function_tool
from agents_scripted import Scripted, run_sync

from agent_saga_openai_agents import protect
from pytest_agent_saga.conformance import AdapterSuite, Capability, Run, Seen

C = Capability
_ERRORS = ("An error occurred", "was refused in saga", "is not declared", "did not run", "Tool execution was not")


class Driven:
    """An agent of the SDK. A thread's state is kept by the driver, as JSON, as a program would in a file."""

    def __init__(self, driver, bodies, *, kit, swallow, protect):
        self.driver, self.kit, self.swallow = driver, kit, swallow
        self.model = Scripted([])
        self.agent = Agent(name="agent", model=self.model, tools=[self.tool(body) for body in bodies])
        for _ in range(protect if kit is not None else 0):
            self.protect()

    def protect(self):
        self.agent = protect(self.agent, self.kit)

    def tool(self, body):
        if self.swallow:
            return function_tool(body, failure_error_function=lambda context, error: f"An error occurred: {error}")
        return function_tool(body, failure_error_function=None)

    def schemas(self):
        return [(tool.name, tool.description, tool.params_json_schema) for tool in self.agent.tools]

    def add(self, body):
        self.agent.tools.append(self.tool(body))

    def _begin(self, turns):
        self.model.turns = [[(call.tool, dict(call.arguments), call.id) for call in turn] for turn in turns]
        self.model.said = 0

    def run(self, turns, *, thread):
        self._begin(turns)
        return self._seen(run_sync(self.agent), thread)

    async def arun(self, turns, *, thread):
        self._begin(turns)
        return self._seen(await Runner.run(self.agent, "go"), thread)

    async def astream(self, turns, *, thread):
        self._begin(turns)
        result = Runner.run_streamed(self.agent, "go")
        async for _ in result.stream_events():
            pass
        return self._seen(result, thread)

    def answer(self, thread, *, approved):
        return asyncio.run(self.aanswer(thread, approved=approved))

    async def aanswer(self, thread, *, approved):
        state = await RunState.from_json(self.agent, self.driver.states[thread])
        for item in state.get_interruptions():
            (state.approve if approved else state.reject)(item)
        self._begin([])
        return self._seen(await Runner.run(self.agent, state), thread)

    def _seen(self, result, thread):
        if result.interruptions:
            self.driver.states[thread] = result.to_state().to_json()
        items = [item for item in result.new_items if item.type == "tool_call_output_item"]
        seen = [
            Seen(item.raw_item["call_id"], str(item.output), any(text in str(item.output) for text in _ERRORS))
            for item in items
        ]
        return Run(tuple(seen), paused=bool(result.interruptions))


class Driver:
    adapter = "openai-agents"
    capabilities = frozenset(C) - {C.ERROR_RESULTS, C.RETRIES, C.CONTROL_FLOW}
    gaps: ClassVar = {
        C.ERROR_RESULTS: "function tools have none; those of MCP servers do, see test_mcp.py",
        C.RETRIES: "the SDK retries the model, not tools",
        C.CONTROL_FLOW: "no exception of a tool steers the SDK",
    }

    def __init__(self):
        self.states = {}

    def agent(self, bodies, *, kit, swallow, retries, protect):
        return Driven(self, bodies, kit=kit, swallow=swallow, protect=protect)


class TestOpenAIAgents(AdapterSuite):
    def driver(self, folder):
        return Driver()
