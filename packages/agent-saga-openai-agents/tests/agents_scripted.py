"""A model that says what the test wrote, on all releases from 0.20, and agents that run it."""

import asyncio
import itertools
import json

import pytest
from agents import Agent, Model, ModelResponse, Runner, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from agent_saga_openai_agents import protect

_numbers = itertools.count(1)


class Scripted(Model):
    """Each turn is a list of (tool, arguments, id), or an exception; after the last one it says that it is done.

    A turn is found by counting the model's earlier calls in its input, so a run that is resumed hears what is next.
    """

    def __init__(self, turns, first=0):
        self.turns = turns
        self.said = first
        self.tools = []
        self.inputs = []

    def _next(self, given, tools):
        self.tools.append(tools)
        self.inputs.append(given)
        turn = self.turns[self.said] if self.said < len(self.turns) else []
        self.said += 1
        if isinstance(turn, BaseException):
            raise turn
        return [_call(*call) for call in turn] or [_message()]

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):  # noqa: A002
        return ModelResponse(output=self._next(input, tools), usage=Usage(), response_id=None)

    async def stream_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):  # noqa: A002
        response = Response(
            id="r",
            created_at=0,
            model="scripted",
            object="response",
            output=self._next(input, tools),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=response)


def _call(name, arguments, call_id):
    arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ResponseFunctionToolCall(
        id=f"fc_{next(_numbers)}",
        call_id=call_id,
        name=name,
        arguments=arguments,
        type="function_call",
        status="completed",
    )


def _message():
    text = ResponseOutputText(text="done", type="output_text", annotations=[])
    return ResponseOutputMessage(
        id=f"m_{next(_numbers)}", type="message", role="assistant", status="completed", content=[text]
    )


def turns(*calls, ids="c"):
    """One turn for each argument: a call, a list of calls made at once, or an exception; ids are c1, c2, ..."""
    numbers = itertools.count(1)
    listed = [call if isinstance(call, list | BaseException) else [call] for call in calls]
    return [
        turn if isinstance(turn, BaseException) else [(name, args, f"{ids}{next(numbers)}") for name, args in turn]
        for turn in listed
    ]


def answers(result):
    """What the model was told about its calls, in order."""
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


def run_sync(agent, given="go", **options):
    """Runner.run_sync, which leaves its event loop open, with a loop that is closed afterwards."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return Runner.run_sync(agent, given, **options)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()


async def stream(agent, given="go", **options):
    """Run an agent through the streaming interface, to the end of the stream."""
    result = Runner.run_streamed(agent, given, **options)
    async for _ in result.stream_events():
        pass
    return result


def run(way, agent, given="go", **options):
    """Run an agent in one of the `WAYS`."""
    if way == "sync":
        return run_sync(agent, given, **options)
    return asyncio.run((stream if way == "stream" else Runner.run)(agent, given, **options))


WAYS = pytest.mark.parametrize("way", ["sync", "async", "stream"])


class Maker:
    """Makes protected agents for the tests of one kit."""

    def __init__(self, kit):
        self.kit = kit

    def agent(self, tools, *calls, model=None, name="buyer", **options):
        return protect(Agent(name=name, model=model or Scripted(turns(*calls)), tools=tools, **options), self.kit)
