"""The conformance suite for adapters, on the real framework: an agent, a team, and a workbench that is no list."""

import asyncio
import copy
import inspect
import json
from typing import ClassVar

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage, ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, TextResultContent, ToolResult, Workbench
from autogen_scripted import Scripted, stream
from pydantic import BaseModel

from agent_saga_autogen import protect
from pytest_agent_saga.conformance import AdapterSuite, Capability, Run, Seen

C = Capability


class Driven:
    """An agent of AutoGen. Each thread is a new conversation; its state is kept by the driver, as JSON."""

    def __init__(self, driver, bodies, *, kit, protect):
        self.driver, self.kit = driver, kit
        self.model = Scripted()
        self.bench = driver.workbench([self.tool(body) for body in bodies])
        self.agent = AssistantAgent("agent", model_client=self.model, workbench=self.bench, max_tool_iterations=99)
        self.runner = RoundRobinGroupChat([self.agent], max_turns=1) if driver.in_team else self.agent
        for _ in range(protect if kit is not None else 0):
            self.protect()

    def protect(self):
        self.runner = protect(self.runner, self.kit)

    def tool(self, body):
        return FunctionTool(body, description=body.__doc__ or "")

    def schemas(self):
        return copy.deepcopy(asyncio.run(self.bench.list_tools()))

    def add(self, body):
        self.bench._tools.append(self.tool(body))

    def run(self, turns, *, thread):
        raise NotImplementedError

    async def arun(self, turns, *, thread):
        return await self._run(turns, thread, type(self.runner).run)

    async def astream(self, turns, *, thread):
        return await self._run(turns, thread, stream)

    async def _run(self, turns, thread, how):
        self.model.turns = [[(call.tool, dict(call.arguments), call.id) for call in turn] for turn in turns]
        self.model.said = 0
        if thread != self.driver.thread:
            self.driver.thread = thread
            await (self.runner.reset() if self.driver.in_team else self.agent.on_reset(None))
        return await self._seen(await how(self.runner, task="go"), thread)

    def answer(self, thread, *, approved):
        return asyncio.run(self.aanswer(thread, approved=approved))

    async def aanswer(self, thread, *, approved):
        state, approvals = json.loads(self.driver.states[thread])
        await self.runner.load_state(state)
        word = {"agent_saga_approve" if approved else "agent_saga_reject": approvals}
        answer = TextMessage(content="So be it.", source="ann", metadata=word)
        self.model.turns = []
        return await self._seen(await self.runner.run(task=answer), thread)

    async def _seen(self, result, thread):
        approvals = result.messages[-1].metadata.get("agent_saga_waits")
        if approvals is not None:
            self.driver.states[thread] = json.dumps([await self.runner.save_state(), approvals])
        events = [one for one in result.messages if isinstance(one, ToolCallExecutionEvent)]
        told = [one for event in events for one in event.content]
        return Run(tuple(Seen(one.call_id, one.content, one.is_error) for one in told), paused=approvals is not None)


class Driver:
    adapter = "autogen"
    capabilities = frozenset(C) - {C.SYNC, C.RAISES, C.ERROR_RESULTS, C.RETRIES, C.CONTROL_FLOW}
    gaps: ClassVar = {
        C.SYNC: "AutoGen runs in event loops only",
        C.RAISES: "every exception of a tool is told to the model",
        C.ERROR_RESULTS: "functions have none; workbenches do, see TestWorkbench",
        C.RETRIES: "tools are not retried",
        C.CONTROL_FLOW: "no exception of a tool steers AutoGen",
    }
    in_team = False

    def __init__(self):
        self.states, self.thread = {}, None

    def agent(self, bodies, *, kit, swallow, retries, protect):
        return Driven(self, bodies, kit=kit, protect=protect)

    def workbench(self, tools):
        return StaticStreamWorkbench(tools)


class TeamDriver(Driver):
    in_team = True


class Own(Workbench):
    """A workbench like an MCP server's: it knows by itself what its tools do, and has results that are errors."""

    component_config_schema = BaseModel
    component_provider_override = "tests.Own"

    def __init__(self, tools):
        self._bodies = {tool.name: (tool, tool._func) for tool in tools}

    async def list_tools(self):
        return [tool.schema for tool, _ in self._bodies.values()]

    async def call_tool(self, name, arguments=None, cancellation_token=None, call_id=None):
        tool, body = self._bodies[name]
        try:
            valid = tool.args_type().model_validate(arguments or {})
            result = body(**dict(valid))
            result = await result if inspect.isawaitable(result) else result
        except Exception as error:
            result = ToolResult(name=name, result=[TextResultContent(content=str(error))], is_error=True)
        if isinstance(result, ToolResult):
            return result
        return ToolResult(name=name, result=[TextResultContent(content=str(result))])

    async def start(self):
        pass

    async def stop(self):
        pass

    async def reset(self):
        pass

    async def save_state(self):
        return {}

    async def load_state(self, state):
        pass

    def _to_config(self):
        raise NotImplementedError

    @classmethod
    def _from_config(cls, config):
        raise NotImplementedError


class WorkbenchDriver(Driver):
    capabilities = Driver.capabilities - {C.DYNAMIC, C.VALIDATES, C.THREADED} | {C.ERROR_RESULTS}
    gaps: ClassVar = {name: why for name, why in Driver.gaps.items() if name != C.ERROR_RESULTS} | {
        C.DYNAMIC: "what it holds is its own affair; what it lists is looked at when it is called",
        C.VALIDATES: "so is its validation",
        C.THREADED: "and so are its threads",
    }

    def workbench(self, tools):
        return Own(tools)

    def error_result(self, text):
        return ToolResult(name="ship", result=[TextResultContent(content=text)], is_error=True)


class TestAgent(AdapterSuite):
    def driver(self, folder):
        return Driver()


class TestTeam(AdapterSuite):
    def driver(self, folder):
        return TeamDriver()


class TestWorkbench(AdapterSuite):
    def driver(self, folder):
        return WorkbenchDriver()
