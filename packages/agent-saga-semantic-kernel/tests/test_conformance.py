"""The conformance suite for adapters, on the real framework."""

from typing import ClassVar

from kernel_scripted import agent_of, kernel_of, results
from semantic_kernel.agents import ChatHistoryAgentThread
from semantic_kernel.connectors.ai.function_calling_utils import (
    kernel_function_metadata_to_function_call_format,
)
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

from agent_saga_semantic_kernel import protect, resume
from pytest_agent_saga.conformance import AdapterSuite, Capability, Run, Seen

C = Capability
_ERRORS = ("An error occurred", "Missing required", "out of stock")


async def retries(context, next):  # noqa: A002 - the framework gives it by this name.
    """A filter that begins a failed call once more, as in the framework's own samples."""
    try:
        await next(context)
    except Exception:
        await next(context)


class Driven:
    """An agent of the framework. A thread's history is kept by the driver, as JSON, as a program would in a file."""

    def __init__(self, driver, bodies, *, kit, retry, protect_times):
        self.driver, self.kit = driver, kit
        self.kernel = kernel_of(*map(kernel_function, bodies))
        self.agent = agent_of(self.kernel)
        for _ in range(protect_times if kit is not None else 0):
            self.agent = protect(self.agent, kit)
        if retry:
            self.kernel.add_filter("function_invocation", retries)

    def schemas(self):
        metadata = self.kernel.get_full_list_of_function_metadata()
        return [kernel_function_metadata_to_function_call_format(one) for one in metadata]

    def add(self, body):
        self.kernel.add_function("shop", kernel_function(body))

    def _begin(self, turns):
        listed = [[(f"shop-{call.tool}", dict(call.arguments), call.id) for call in turn] for turn in turns]
        self.kernel.services["scripted"].turns = listed

    async def arun(self, turns, *, thread):
        self._begin(turns)
        history = ChatHistory()
        await self.agent.get_response("go", thread=ChatHistoryAgentThread(chat_history=history))
        return self._seen(history, thread)

    async def astream(self, turns, *, thread):
        self._begin(turns)
        history = ChatHistory()
        async for _ in self.agent.invoke_stream("go", thread=ChatHistoryAgentThread(chat_history=history)):
            pass
        return self._seen(history, thread)

    async def aanswer(self, thread, *, approved):
        self._begin([])
        history = ChatHistory.restore_chat_history(self.driver.states[thread])
        await resume(self.agent, history, approved=approved)
        await self.agent.get_response(thread=ChatHistoryAgentThread(chat_history=history))
        return self._seen(history, thread)

    def _seen(self, history, thread):
        self.driver.states[thread] = history.serialize()
        seen = [
            Seen(call_id, str(text), any(one in str(text) for one in _ERRORS)) for call_id, text in results(history)
        ]
        return Run(tuple(seen), paused="was not made yet" in str(results(history)))


class Driver:
    adapter = "semantic-kernel"
    capabilities = frozenset(C) - {C.SYNC, C.THREADED, C.RAISES, C.CONTROL_FLOW}
    gaps: ClassVar = {
        C.SYNC: "the framework runs in an event loop only",
        C.THREADED: "sync functions run on the event loop itself, so nothing can stop one; see test_functions.py",
        C.RAISES: "its loop tells the model of every exception; kernel.invoke raises, see test_functions.py",
        C.CONTROL_FLOW: "no exception of a function steers the framework",
    }

    def __init__(self):
        self.states = {}

    def agent(self, bodies, *, kit, swallow, retries, protect):
        return Driven(self, bodies, kit=kit, retry=retries, protect_times=protect)

    def error_result(self, text):
        return f"An error occurred while invoking the function other-one: {text}"


class TestSemanticKernel(AdapterSuite):
    def driver(self, folder):
        return Driver()
