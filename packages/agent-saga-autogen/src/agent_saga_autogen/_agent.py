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
)
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResult, RequestUsage

from agent_saga import current_saga
from agent_saga_autogen import _turns
from agent_saga_autogen._step import is_of_the_call, mark_span
from agent_saga_autogen._turns import WAITS, Active, conversation_of, saga_of, within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from autogen_core import CancellationToken
    from autogen_core.model_context import ChatCompletionContext

    from agent_saga_autogen._turns import Conversation

ADOPT: Final = "_agent_saga_adopt"
_STATE: Final = "agent_saga"


class Runs(BaseChatAgent):
    """What is added to every agent."""

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Any, None]:
        inner: Any = super()
        saga, own = saga_of(self), conversation_of(self)
        own.turn = None
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
                wait = self._wait_after(item)
                yield (item := _of_a_tool(item) if wait is None else item)
                if wait is not None:
                    yield Response(chat_message=wait, inner_messages=[*seen, item])
                    return
                if not isinstance(item, Response | ModelClientStreamingChunkEvent):
                    seen.append(item)
                _turns.raise_fatal(own)

    def _wait_after(self, item: Any) -> StopMessage | None:
        """Return what the run ends with when this thing in its stream says that something further in waits."""
        if isinstance(item, BaseChatMessage) and WAITS in item.metadata:
            return _stop(self, item.to_text(), item.metadata[WAITS])
        return None

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


def _of_a_tool(item: Any) -> Any:
    """Return what a tool streams of the run of another agent without the sign that it waits: the call's end says so."""
    if isinstance(item, BaseChatMessage) and WAITS in item.metadata:
        return item.model_copy(update={"metadata": {}})
    return item


def _stop(agent: BaseChatAgent, text: str, approvals: str) -> StopMessage:
    return StopMessage(content=text, source=agent.name, metadata={WAITS: approvals})


class Assists(Runs, AssistantAgent):
    """What is added to an `AssistantAgent`: its calls are known by turn, and those that waited are made first."""

    def _wait_after(self, item: Any) -> StopMessage | None:
        """Return what the run ends with when its turn has ended, and some of its calls wait."""
        own = conversation_of(self)
        made = own.turn.made if own.turn is not None and isinstance(item, ToolCallExecutionEvent) else {}
        calls = [made[id(result)] for result in item.content if id(result) in made] if made else []
        if own.turn is None or not calls:
            return None
        own.turn.ended, own.known = True, {}
        own.done[own.turn.scope] = [one.call.id for one in calls if not one.waits]
        if own.turn.fatal is not None or not any(one.waits for one in calls):
            return None
        own.waiting = [
            {"call": vars(one.call), "result": None if one.waits else one.result.model_dump()} for one in calls
        ]
        text = "\n".join(one.result.content for one in calls if one.waits)
        return _stop(self, text, " ".join(filter(None, own.turn.approvals)))

    @classmethod
    async def _execute_tool_call(  # type: ignore[override]
        cls, tool_call: FunctionCall, **rest: Any
    ) -> tuple[FunctionCall, Any]:
        inner: Any = super()._execute_tool_call
        agent = _turns.running.get()
        if agent is None or current_saga() is None:
            return await inner(tool_call=tool_call, **rest)  # type: ignore[no-any-return]
        own = conversation_of(agent)
        turn = own.turn_of(rest["stream"])
        call = Active(turn, tool_call, _turns.active.get())
        token = _turns.active.set(call)
        try:
            call.result = own.known.get(id(tool_call)) or (await _bearable(inner, tool_call, rest))[1]
        finally:
            _turns.active.reset(token)
        if call.waits:
            call.result = _failed(tool_call, "\n".join(call.waits))
        turn.made[id(call.result)] = call
        return tool_call, call.result

    @classmethod
    async def _call_llm(cls, **rest: Any) -> AsyncGenerator[Any, None]:  # type: ignore[override]
        inner: Any = super()._call_llm
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
    except BaseException as error:  # noqa: BLE001 - it leaves the run, when its turn has ended.
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
