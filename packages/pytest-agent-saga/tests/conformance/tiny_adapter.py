"""The adapter of the tiny framework, and the driver with which the conformance suite reaches it."""

import contextlib

from tiny_framework import ErrorResult, Middleware, Pause, Request, Tool, ToolAgent, ToolFailed

from agent_saga import GateRefused, SagaSuspended, current_saga
from agent_saga.spi import adopt_parameters, aguard, decide_approval, guard, require_declared
from pytest_agent_saga.conformance import Capability, Run, Seen


class SagaMiddleware(Middleware):
    """Makes each call of each tool a step of the saga in which the run began."""

    def __init__(self, kit):
        self.kit = kit

    def begin(self, run, tools):
        run.notes["saga"] = current_saga()
        require_declared([tool.name for tool in tools], self.kit)
        for tool in tools:
            key = adopt_parameters(tool.name, tool.parameters, self.kit)
            tool.hidden = {key} - {None}

    def call(self, run, request, tool, proceed, arguments):
        with self.attached(run), self.translated(request):
            return guard(request.tool, arguments, proceed, **self.options(run, request))

    async def acall(self, run, request, tool, proceed, arguments):
        with self.attached(run), self.translated(request):
            return await aguard(request.tool, arguments, proceed, **self.options(run, request))

    def options(self, run, request):
        return {
            "adapter": "tiny",
            "call_id": request.id,
            "scope": f"thread:{run.thread}",
            "attempt": run.attempt,
            "is_error": lambda result: isinstance(result, ErrorResult),
            "is_pause": lambda error: isinstance(error, Pause),
            "kit": self.kit,
        }

    @contextlib.contextmanager
    def attached(self, run):
        saga = run.notes["saga"]
        if saga is None or current_saga() is not None:
            yield
            return
        with saga.attach():
            yield

    @contextlib.contextmanager
    def translated(self, request):
        if request.answer is not None and request.answer[0] is not None:
            payload, word = request.answer
            decide_approval(payload["approval"], approved=word, by="human")
        try:
            yield
        except GateRefused as error:
            raise ToolFailed(str(error)) from error
        except SagaSuspended as error:
            raise Pause({"approval": error.approval}) from error


def protect(agent, kit, middleware=SagaMiddleware):
    """Protect an agent; a second time changes nothing."""
    if not any(isinstance(one, SagaMiddleware) for one in agent.middleware):
        agent.middleware.append(middleware(kit))
        for tool in agent.tools.values():
            tool.hidden = {adopt_parameters(tool.name, tool.parameters, kit)} - {None}
    return agent


class TinyAgent:
    """See `conformance.Agent`."""

    def __init__(self, agent):
        self.agent = agent

    def schemas(self):
        return [tool.schema() for tool in self.agent.tools.values()]

    def add(self, body):
        self.agent.tools[body.__name__] = Tool(body)

    def run(self, turns, *, thread):
        return told(self.agent.run(requests(turns), thread))

    async def arun(self, turns, *, thread):
        return told(await self.agent.arun(requests(turns), thread))

    async def astream(self, turns, *, thread):
        events = [event async for event in self.agent.astream(requests(turns), thread)]
        return told(events[-1])

    def answer(self, thread, *, approved):
        return told(self.agent.answer(thread, approved))

    async def aanswer(self, thread, *, approved):
        return told(await self.agent.aanswer(thread, approved))


def requests(turns):
    return [[Request(call.tool, dict(call.arguments), call.id) for call in turn] for turn in turns]


def told(result):
    seen = tuple(Seen(one.call_id, one.text, one.is_error) for one in result.messages)
    return Run(seen=seen, paused=result.paused)


class TinyDriver:
    """See `conformance.AdapterDriver`."""

    adapter = "tiny"
    capabilities = frozenset(Capability)
    gaps = {}  # noqa: RUF012 - read only.
    protect = staticmethod(protect)

    def __init__(self):
        self.memory = {}

    def agent(self, bodies, *, kit, swallow, retries, protect):
        agent = ToolAgent([Tool(body) for body in bodies], swallow=swallow, retries=retries, memory=self.memory)
        if kit is not None:
            for _ in range(protect):
                agent = self.protect(agent, kit)
        return TinyAgent(agent)

    def error_result(self, text):
        return ErrorResult(text)

    def control_flow(self):
        return Pause("steered by the tool")
