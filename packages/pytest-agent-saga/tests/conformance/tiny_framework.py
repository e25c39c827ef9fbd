"""A small agent framework with what makes real ones hard: threads without context, gather, retries, pauses, swallowing.

It knows nothing of sagas. `tiny_adapter.py` is its adapter.
"""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any


class ToolFailed(Exception):
    """A tool's error, told to the model as text."""


class Pause(Exception):
    """Raised by a tool to pause the thread until somebody answers; `payload` is shown to whoever does."""

    def __init__(self, payload=None):
        super().__init__("paused")
        self.payload = payload


@dataclass(frozen=True)
class ErrorResult:
    """Returned by a tool that failed without raising."""

    text: str


@dataclass(frozen=True)
class Request:
    """A call that the model makes; `answer` is (payload, word) when it was paused."""

    tool: str
    arguments: dict
    id: str
    answer: Any = None


@dataclass(frozen=True)
class Message:
    """What the model sees of a call."""

    call_id: str
    text: str
    is_error: bool = False


@dataclass
class RunState:
    """One run of a thread: what middleware may look at and keep things in."""

    thread: str
    attempt: int = 0
    notes: dict = field(default_factory=dict)


@dataclass
class RunResult:
    messages: list
    paused: bool = False


class Tool:
    """A function as a tool; its schema is what the model is shown."""

    def __init__(self, fn):
        self.fn, self.name, self.description = fn, fn.__name__, inspect.getdoc(fn) or ""
        self.hidden = set()

    @property
    def parameters(self):
        return list(inspect.signature(self.fn).parameters)

    def schema(self):
        kinds = {name: kind.__name__ for name, kind in self.fn.__annotations__.items() if name != "return"}
        shown = {name: kinds[name] for name in self.parameters if name not in self.hidden}
        return {"name": self.name, "description": self.description, "parameters": shown}

    def validate(self, arguments):
        known = [name for name in self.parameters if name not in self.hidden]
        wanted = [name for name in known if inspect.signature(self.fn).parameters[name].default is inspect._empty]
        if set(arguments) - set(known) or set(wanted) - set(arguments):
            raise ToolFailed(f"{self.name} takes {known}, not {sorted(arguments)}")
        return dict(arguments)


class Middleware:
    """What stands around the innermost call of each tool."""

    def begin(self, run, tools):
        """A run begins."""

    def call(self, run, request, tool, proceed, arguments):
        return proceed(arguments)

    async def acall(self, run, request, tool, proceed, arguments):
        return await proceed(arguments)


class ToolAgent:
    """Follows a script of turns, as a model would, and calls tools for it."""

    def __init__(self, tools, *, swallow=False, retries=0, memory=None):
        self.tools = {tool.name: tool for tool in tools}
        self.swallow, self.retries = swallow, retries
        self.memory = {} if memory is None else memory
        self.middleware = []

    # -- runs -------------------------------------------------------------------------------------------------------

    def run(self, turns, thread):
        steps = self._steps([list(turn) for turn in turns], thread)
        batch = next(steps)
        while not isinstance(batch, RunResult):
            run, requests = batch
            batch = steps.send(self._together(run, requests))
        return batch

    async def arun(self, turns, thread):
        steps = self._steps([list(turn) for turn in turns], thread)
        batch = next(steps)
        while not isinstance(batch, RunResult):
            run, requests = batch
            batch = steps.send(await self._atogether(run, requests))
        return batch

    async def astream(self, turns, thread):
        steps = self._steps([list(turn) for turn in turns], thread)
        batch = next(steps)
        while not isinstance(batch, RunResult):
            run, requests = batch
            outcomes = await self._atogether(run, requests)
            for outcome in outcomes:
                yield outcome
            batch = steps.send(outcomes)
        yield batch

    def answer(self, thread, word):
        return self.run(self._answered(thread, word), thread)

    async def aanswer(self, thread, word):
        return await self.arun(self._answered(thread, word), thread)

    def _answered(self, thread, word):
        turns, payloads = self.memory.pop(thread)
        first = [
            Request(one.tool, one.arguments, one.id, (payloads[one.id], word)) if one.id in payloads else one
            for one in turns[0]
        ]
        return [first, *turns[1:]]

    def _steps(self, turns, thread):
        """Yield (run, requests) to be called, take the outcomes, and yield the result at the end."""
        run, messages = RunState(thread), []
        for one in self.middleware:
            one.begin(run, list(self.tools.values()))
        for number, turn in enumerate(turns):
            run.attempt = 0
            while True:
                outcomes = yield run, turn
                errors = [one for one in outcomes if isinstance(one, BaseException)]
                pauses = {
                    request.id: one.payload
                    for request, one in zip(turn, outcomes, strict=True)
                    if isinstance(one, Pause)
                }
                if not errors:
                    break
                if pauses:
                    self.memory[thread] = (turns[number:], pauses)
                    yield RunResult(messages, paused=True)
                    return
                if run.attempt >= self.retries or not isinstance(errors[0], Exception):
                    raise errors[0]
                run.attempt += 1
            messages += outcomes
        yield RunResult(messages)

    # -- calls ------------------------------------------------------------------------------------------------------

    def _together(self, run, requests):
        if len(requests) == 1:
            return [self._outcome(run, requests[0])]
        with ThreadPoolExecutor(len(requests)) as pool:  # As elsewhere, its threads know nothing of this context.
            return list(pool.map(lambda request: self._outcome(run, request), requests))

    async def _atogether(self, run, requests):
        outcomes = await asyncio.gather(*[self._aoutcome(run, request) for request in requests])
        return list(outcomes)

    def _outcome(self, run, request):
        try:
            tool, arguments = self._checked(request)
            proceed = lambda given: tool.fn(**given)  # noqa: E731
            for one in reversed(self.middleware):
                proceed = self._around(one.call, run, request, tool, proceed)
            return self._message(request, proceed(arguments))
        except BaseException as error:
            return self._told(request, error)

    async def _aoutcome(self, run, request):
        try:
            tool, arguments = self._checked(request)
            if not inspect.iscoroutinefunction(tool.fn):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(None, self._outcome, run, request)

            async def proceed(given):
                return await tool.fn(**given)

            for one in reversed(self.middleware):
                proceed = self._around(one.acall, run, request, tool, proceed)
            return self._message(request, await proceed(arguments))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return self._told(request, error)

    @staticmethod
    def _around(call, run, request, tool, proceed):
        return lambda arguments: call(run, request, tool, proceed, arguments)

    def _checked(self, request):
        tool = self.tools.get(request.tool)
        if tool is None:
            raise ToolFailed(f"there is no tool {request.tool}")
        return tool, tool.validate(request.arguments)

    @staticmethod
    def _message(request, result):
        if isinstance(result, ErrorResult):
            return Message(request.id, result.text, is_error=True)
        return Message(request.id, str(result))

    def _told(self, request, error):
        """Return what the model is told, or the error when it is none for the model."""
        if isinstance(error, ToolFailed) or (
            self.swallow and isinstance(error, Exception) and not isinstance(error, Pause)
        ):
            return Message(request.id, f"Error: {error}", is_error=True)
        return error
