"""Agents: their turns run in the saga, and end when one of their calls has to wait for a person."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    StopMessage,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResult, RequestUsage

from agent_saga import current_saga
from agent_saga_autogen import _turns
from agent_saga_autogen._step import is_of_the_call, mark_span
from agent_saga_autogen._turns import WAITS, Active, conversation_of, saga_of, within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from autogen_agentchat.base import ChatAgent
    from autogen_core import CancellationToken
    from autogen_core.model_context import ChatCompletionContext

    from agent_saga_autogen._turns import Conversation, Turn

ADOPT: Final = "_agent_saga_adopt"
_STATE: Final = "agent_saga"


class Runs(BaseChatAgent):
    """What is added to every agent."""

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        inner: Any = super()
        saga, own = saga_of(self), conversation_of(self)
        vars(self)[ADOPT](self)
        with within(self, saga):
            if saga is not None:
                mark_span()
                _turns.hear(messages)
                own.enter(saga)
        seen: list[Any] = []
        async with aclosing(inner.on_messages_stream(messages, cancellation_token)) as stream:
            while True:
                with within(self, saga):
                    item = await anext(stream, None)
                if item is None:
                    return
                yield item
                if isinstance(item, Response | ModelClientStreamingChunkEvent):
                    continue
                seen.append(item)
                wait = _wait_after(self, own, seen)
                if wait is not None:
                    yield Response(chat_message=wait, inner_messages=seen)
                    return

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        inner: Any = super()
        await inner.on_reset(cancellation_token)
        _turns.new_conversation(self)

    async def save_state(self) -> Mapping[str, Any]:
        inner: Any = super()
        return {**await inner.save_state(), _STATE: conversation_of(self).saved()}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        inner: Any = super()
        await inner.load_state({name: value for name, value in state.items() if name != _STATE})
        _turns.new_conversation(self, state.get(_STATE))


def _wait_after(agent: Any, own: Conversation, seen: list[Any]) -> StopMessage | None:
    """Return what a run ends with when the last thing in its stream says that a call waits, here or further in.

    Raises:
        BaseException: what has to leave the run.
    """
    last, turn = seen[-1], own.turn
    if isinstance(last, BaseChatMessage) and WAITS in last.metadata:
        return _stop(agent, last.to_text(), last.metadata[WAITS])
    if turn is None or not isinstance(last, ToolCallExecutionEvent):
        return None
    if turn.fatal is not None:
        raise turn.fatal
    request = next(one for one in reversed(seen) if isinstance(one, ToolCallRequestEvent))
    return _end_of_turn(agent, own, turn, list(zip(request.content, last.content, strict=True)))


def _end_of_turn(
    agent: Any, own: Conversation, turn: Turn, made: list[tuple[FunctionCall, FunctionExecutionResult]]
) -> StopMessage | None:
    waiting = {id(call) for call in turn.waiting}
    own.known = {}
    own.done[turn.scope] = [call.id for call, _ in made if id(call) not in waiting]
    if not waiting:
        return None
    own.waiting = [
        {"call": vars(call), "result": None if id(call) in waiting else result.model_dump()} for call, result in made
    ]
    texts = [result.content for call, result in made if id(call) in waiting]
    return _stop(agent, "\n".join(texts), " ".join(filter(None, turn.approvals)))


def _stop(agent: ChatAgent, text: str, approvals: str) -> StopMessage:
    return StopMessage(content=text, source=agent.name, metadata={WAITS: approvals})


class Assists(Runs, AssistantAgent):
    """What is added to an `AssistantAgent`: its calls are known by turn, and those that waited are made first."""

    @classmethod
    async def _execute_tool_call(cls, tool_call: FunctionCall, **rest: Any) -> tuple[FunctionCall, Any]:
        inner: Any = super()._execute_tool_call  # type: ignore[misc]  # the agent's
        agent = _turns.running.get()
        if agent is None or current_saga() is None:
            return await inner(tool_call=tool_call, **rest)  # type: ignore[no-any-return]
        own = conversation_of(agent)
        turn = own.turn_of(rest["stream"])
        known = own.known.get(id(tool_call))
        if known is not None:
            return tool_call, known
        call = Active(turn, tool_call, _turns.active.get())
        token = _turns.active.set(call)
        try:
            result = (await _bearable(inner, tool_call, rest))[1]
        finally:
            _turns.active.reset(token)
        if call.waits:
            turn.waiting.append(tool_call)
            result = _failed(tool_call, "\n".join(call.waits))
        return tool_call, result

    @classmethod
    async def _call_llm(cls, **rest: Any) -> AsyncGenerator[Any, None]:
        inner: Any = super()._call_llm  # type: ignore[misc]  # the agent's
        agent = _turns.running.get()
        own = None if agent is None or current_saga() is None else conversation_of(agent)
        if own is not None and own.waiting:
            yield await _take_up(own, rest["model_context"])
            return
        async with aclosing(inner(**rest)) as stream:
            async for item in stream:
                yield item


async def _bearable(inner: Callable[..., Any], call: FunctionCall, rest: dict[str, Any]) -> tuple[Any, Any]:
    """Make a call; AutoGen waits for ever for one that raises, also where a handoff or a workbench does."""
    try:
        return await inner(tool_call=call, **rest)  # type: ignore[no-any-return]
    except asyncio.CancelledError:
        if not is_of_the_call(rest["cancellation_token"]):
            raise
        return call, _failed(call, f"{call.name} was cancelled")
    except Exception as error:
        _turns.note_fatal(error)
        return call, _failed(call, str(error))


def _failed(call: FunctionCall, text: str) -> FunctionExecutionResult:
    return FunctionExecutionResult(content=text, call_id=call.id, is_error=True, name=call.name)


async def _take_up(own: Conversation, context: ChatCompletionContext) -> CreateResult:
    """Return the turn that waits as what the model says now, and take it out of the context, to which it is added."""
    waiting, own.waiting = own.waiting, []
    calls = [FunctionCall(**one["call"]) for one in waiting]
    own.known = {
        id(call): FunctionExecutionResult(**one["result"])
        for call, one in zip(calls, waiting, strict=True)
        if one["result"] is not None
    }
    state = dict(await context.save_state())
    messages = list(state.get("messages", ()))
    ids = [call.id for call in calls]
    thought = None
    for at in reversed(range(len(messages))):
        if [one.get("id") for one in messages[at]["content"] if isinstance(one, dict)] == ids:
            thought = messages[at].get("thought")
            del messages[at : at + 2]  # The calls, and what was told of them.
            await context.load_state({**state, "messages": messages})
            break
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    return CreateResult(finish_reason="function_calls", content=calls, usage=usage, cached=True, thought=thought)
