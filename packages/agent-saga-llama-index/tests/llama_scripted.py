"""A model that says what the test wrote, and agents that run it."""

import asyncio
import itertools
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from pydantic import PrivateAttr

from agent_saga_llama_index import protect


class Scripted(FunctionCallingLLM):
    """Each turn is a list of (tool, arguments, id), a text, or an exception; after the last one it says "done"."""

    _turns: list[Any] = PrivateAttr()
    _said: int = PrivateAttr(default=0)
    _given: list[Any] = PrivateAttr(default_factory=list)
    _before: Any = PrivateAttr(default=None)

    def __init__(self, turns, first=0):
        super().__init__()
        self.say(turns, first)

    def say(self, turns, first=0, before=None):
        """Begin again; `before` is called when the first turn is asked for."""
        self._turns, self._said, self._given, self._before = list(turns), first, [], before

    @property
    def metadata(self):
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True, model_name="scripted")

    def _prepare_chat_with_tools(self, tools, user_msg=None, chat_history=None, **kwargs):
        messages = list(chat_history or [])
        if user_msg:
            messages.append(ChatMessage(role="user", content=user_msg) if isinstance(user_msg, str) else user_msg)
        return {"messages": messages}

    def _next(self, messages):
        if not self._given and self._before is not None:
            self._before()
        self._given.append(list(messages))
        turn = self._turns[self._said] if self._said < len(self._turns) else "done"
        self._said += 1
        if isinstance(turn, BaseException):
            raise turn
        if isinstance(turn, str):
            return ChatResponse(message=ChatMessage(role="assistant", content=turn), delta=turn)
        blocks = [ToolCallBlock(tool_call_id=id_, tool_name=name, tool_kwargs=args) for name, args, id_ in turn]
        return ChatResponse(message=ChatMessage(role="assistant", blocks=blocks), delta="")

    def get_tool_calls_from_response(self, response, error_on_no_tool_call=False, **kwargs):
        blocks = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
        return [
            ToolSelection(tool_id=block.tool_call_id, tool_name=block.tool_name, tool_kwargs=dict(block.tool_kwargs))
            for block in blocks
        ]

    def chat(self, messages, **kwargs):
        return self._next(messages)

    async def achat(self, messages, **kwargs):
        return self._next(messages)

    def stream_chat(self, messages, **kwargs):
        return iter([self._next(messages)])

    async def astream_chat(self, messages, **kwargs):
        response = self._next(messages)

        async def stream():
            yield response

        return stream()

    def complete(self, prompt, formatted=False, **kwargs):
        raise NotImplementedError

    acomplete = stream_complete = astream_complete = complete


def turns(*calls, ids="c"):
    """One turn for each argument: a call, a list of calls made at once, a text or an exception; ids are c1, c2, ..."""
    numbers = itertools.count(1)

    def turn(said):
        if isinstance(said, str | BaseException):
            return said
        calls = said if isinstance(said, list) else [said]
        return [(name, args, f"{ids}{next(numbers)}") for name, args in calls]

    return [turn(said) for said in calls]


async def results(handler):
    """Run to the end; returns what the model was told about the calls, and the run's own result."""
    told = {}
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            told[event.tool_id] = event.tool_output
    return told, await handler


async def arun(agent, given="go", **options):
    """Run an agent to its end; returns what the model was told, by call id."""
    return (await results(agent.run(user_msg=given, **options)))[0]


def run(agent, given="go", **options):
    """Run an agent from a program without a loop; returns what the model was told, by call id."""

    async def main():
        return await arun(agent, given, **options)

    return asyncio.run(main())


STREAMED = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])


class Maker:
    """Makes protected agents for the tests of one kit."""

    def __init__(self, kit):
        self.kit = kit

    def agent(self, tools, *calls, kind=FunctionAgent, llm=None, **options):
        return protect(kind(llm=llm or Scripted(turns(*calls)), tools=tools, **options), self.kit)
