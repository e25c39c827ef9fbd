"""A model that says what the test wrote, and agents and teams that run it."""

import asyncio
import itertools
import json

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

from agent_saga_autogen import protect

INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=False,
    multiple_system_messages=True,
)
NOTHING = RequestUsage(prompt_tokens=0, completion_tokens=0)


class Scripted(ChatCompletionClient):
    """Each turn is a list of (tool, arguments, id), a text, or an exception; after the last one it says "done".

    Attributes:
        inputs, tools: what it was given, turn by turn.
    """

    component_type = "model"

    def __init__(self, turns=()):
        self.turns, self.said, self.inputs, self.tools = list(turns), 0, [], []

    async def create(self, messages, *, tools=(), cancellation_token=None, **options):
        turn = self.turns[self.said] if self.said < len(self.turns) else "done"
        self.said += 1
        self.inputs.append(list(messages))
        self.tools.append(list(tools))
        if isinstance(turn, BaseException):
            raise turn
        content = turn if isinstance(turn, str) else [_call(*call) for call in turn]
        reason = "stop" if isinstance(turn, str) else "function_calls"
        return CreateResult(finish_reason=reason, content=content, usage=NOTHING, cached=False)

    async def create_stream(self, messages, **options):
        result = await self.create(messages, **options)
        if isinstance(result.content, str):
            yield result.content
        yield result

    async def close(self):
        pass

    def actual_usage(self):
        return NOTHING

    def total_usage(self):
        return NOTHING

    def count_tokens(self, messages, **options):
        return 0

    def remaining_tokens(self, messages, **options):
        return 1

    @property
    def capabilities(self):
        return INFO

    @property
    def model_info(self):
        return INFO


def _call(name, arguments, call_id):
    arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return FunctionCall(id=call_id, name=name, arguments=arguments)


def turns(*calls, ids="c"):
    """One turn for each argument: a call, a list of calls made at once, a text or an exception; ids are c1, c2, ..."""
    numbers = itertools.count(1)
    listed = [[call] if isinstance(call, tuple) else call for call in calls]
    return [
        [(name, args, f"{ids}{next(numbers)}") for name, args in turn] if isinstance(turn, list) else turn
        for turn in listed
    ]


def answers(result):
    """What the model was told about its calls, in order."""
    events = [one for one in result.messages if isinstance(one, ToolCallExecutionEvent)]
    return [told.content for event in events for told in event.content]


async def stream(runner, **options):
    """Run through the streaming interface, to the end of the stream."""
    async for item in runner.run_stream(**options):
        last = item
    return last


async def arun(way, runner, task="go", **options):
    """Run an agent or a team in one of the `WAYS`."""
    if way == "team":
        runner = protect(RoundRobinGroupChat([runner], max_turns=1))
    return await (stream if way == "stream" else type(runner).run)(runner, task=task, **options)


def in_saga(kit, main, **options):
    """Run `main(saga)` in a saga, in a loop of its own; returns its result and the saga."""

    async def inside():
        async with kit.transaction("buy", **options) as saga:
            result = await main(saga)
        return result, saga

    return asyncio.run(inside())


def run(kit, runner, way="run", *, task="go", **options):
    """Run an agent or a team in a saga; returns its result and the saga."""
    return in_saga(kit, lambda _saga: arun(way, runner, task), **options)


WAYS = pytest.mark.parametrize("way", ["run", "stream", "team"])


class Maker:
    """Makes protected agents for the tests of one kit."""

    def __init__(self, kit):
        self.kit = kit

    def bare(self, tools, *calls, model=None, name="buyer", **options):
        """An agent that is not protected."""
        model = model or Scripted(turns(*calls))
        return AssistantAgent(name, model_client=model, tools=tools, **{"max_tool_iterations": 9, **options})

    def agent(self, tools, *calls, **options):
        return protect(self.bare(tools, *calls, **options), self.kit)
