"""The conformance suite for adapters, on the real framework."""

import asyncio
import json
from typing import ClassVar

from llama_index.core.agent.workflow import FunctionAgent, ToolCall, ToolCallResult
from llama_index.core.tools import FunctionTool, ToolOutput
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, step
from llama_scripted import Scripted
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed
from workflows.runtime.types.results import AddWaiter, WaitingForEvent

from agent_saga.errors import SagaError
from agent_saga_llama_index import protect
from pytest_agent_saga.conformance import AdapterSuite, Capability, Run, Seen

C = Capability


class Retrying(FunctionAgent):
    """An agent whose calls are tried again by the framework's retry policy, as users write it."""

    @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
    async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
        result = await super().call_tool(ctx, ev)
        error = result.tool_output.exception
        if error is not None and not isinstance(error, SagaError):
            raise error
        return result


class Driven:
    """An agent. Contexts are kept by the driver, as JSON, as a program would in a file.

    That of a thread is stored when the model is asked for the first time; beginning again resumes it.
    """

    def __init__(self, driver, bodies, *, kit, retries, protect):
        self.driver, self.kit = driver, kit
        self.model = Scripted([])
        kind = Retrying if retries else FunctionAgent
        self.agent = kind(llm=self.model, tools=[FunctionTool.from_defaults(body) for body in bodies])
        for _ in range(protect if kit is not None else 0):
            self.protect()

    def protect(self):
        self.agent = protect(self.agent, self.kit)

    def schemas(self):
        return [tool.metadata.to_openai_tool() for tool in self.agent.tools]

    def add(self, body):
        self.agent.tools.append(FunctionTool.from_defaults(body))

    def run(self, turns, *, thread):
        return asyncio.run(self.arun(turns, thread=thread))

    async def arun(self, turns, *, thread, streaming=False):
        self.agent.streaming = streaming
        stored = self.driver.begun.get(thread)
        said = [[(call.tool, dict(call.arguments), call.id) for call in turn] for turn in turns]
        self.model.say(said, before=lambda: self.driver.begun.setdefault(thread, json.dumps(handler.ctx.to_dict())))
        if stored is None:
            handler = self.agent.run(user_msg="go")
        else:
            handler = self.agent.run(ctx=Context.from_dict(self.agent, json.loads(stored)))
        return await self._seen(handler, thread)

    async def astream(self, turns, *, thread):
        return await self.arun(turns, thread=thread, streaming=True)

    def answer(self, thread, *, approved):
        return asyncio.run(self.aanswer(thread, approved=approved))

    async def aanswer(self, thread, *, approved):
        self.model.say([])
        data, questions = self.driver.paused[thread]
        handler = self.agent.run(ctx=Context.from_dict(self.agent, json.loads(data)))
        for approval in questions:
            handler.ctx.send_event(HumanResponseEvent(response="yes" if approved else "no", approval=approval))
        return await self._seen(handler, thread)

    async def _seen(self, handler, thread):
        seen = []
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult):
                output = event.tool_output
                seen.append(Seen(event.tool_id, output.content, output.is_error))
            if isinstance(event, InputRequiredEvent):
                self.driver.paused[thread] = json.dumps(handler.ctx.to_dict()), [event.get("approval")]
                await handler.cancel_run()
                return Run(tuple(seen), paused=True)
        await handler
        return Run(tuple(seen))


class Driver:
    adapter = "llama-index"
    capabilities = frozenset(C) - {C.RAISES}
    gaps: ClassVar = {
        C.RAISES: "agents tell the model of every exception; in workflows of one's own they leave the run"
    }

    def __init__(self):
        self.begun, self.paused = {}, {}

    def agent(self, bodies, *, kit, swallow, retries, protect):
        return Driven(self, bodies, kit=kit, retries=retries, protect=protect)

    def error_result(self, text):
        return ToolOutput(content=text, tool_name="ship", raw_input={}, raw_output=text, is_error=True)

    def control_flow(self):
        waiter = InputRequiredEvent(prefix="which one?")
        return WaitingForEvent(AddWaiter(waiter_id="w", waiter_event=waiter, event_type=HumanResponseEvent))


class TestLlamaIndex(AdapterSuite):
    def driver(self, folder):
        return Driver()
