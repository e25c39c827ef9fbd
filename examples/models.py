"""Models that need no key: each makes the calls that it was given, a turn at a time, then says a sentence."""

import json
from typing import Any

Calls = list[tuple[str, dict[str, Any]]]
"""(tool, arguments) in order."""


def for_langchain(calls: Calls, last: str) -> Any:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class ScriptedModel(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

    turns = [
        AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{at}"}])
        for at, (name, args) in enumerate(calls)
    ]
    return ScriptedModel(messages=iter([*turns, AIMessage(last)]))


def for_autogen(calls: Calls, last: str) -> Any:
    from autogen_core import FunctionCall
    from autogen_core.models import CreateResult, ModelInfo, RequestUsage
    from autogen_ext.models.replay import ReplayChatCompletionClient

    info = ModelInfo(vision=False, function_calling=True, json_output=False, family="", structured_output=False)
    turns = [
        CreateResult(
            finish_reason="function_calls",
            content=[FunctionCall(id=f"call-{at}", name=name, arguments=json.dumps(args))],
            usage=RequestUsage(0, 0),
            cached=False,
        )
        for at, (name, args) in enumerate(calls)
    ]
    return ReplayChatCompletionClient([*turns, last], info)


def for_openai_agents(calls: Calls, last: str) -> Any:
    from agents import Model, ModelResponse, Usage, set_tracing_disabled
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)  # traces would be sent away, which takes a key
    left = list(enumerate(calls))

    class ScriptedModel(Model):
        async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
            if left:
                at, (name, given) = left.pop(0)
                item: Any = ResponseFunctionToolCall(
                    call_id=f"call-{at}", name=name, arguments=json.dumps(given), type="function_call"
                )
            else:
                text = ResponseOutputText(text=last, type="output_text", annotations=[])
                item = ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    return ScriptedModel()


def for_llama_index(calls: Calls, last: str) -> Any:
    from llama_index.core.base.llms.types import ToolCallBlock
    from llama_index.core.llms import ChatMessage
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    left = list(enumerate(calls))

    def say(_messages: Any, **_options: Any) -> ChatMessage:
        if not left:
            return ChatMessage(role="assistant", content=last)
        at, (name, given) = left.pop(0)
        call = ToolCallBlock(tool_call_id=f"call-{at}", tool_name=name, tool_kwargs=given)
        return ChatMessage(role="assistant", blocks=[call])

    return MockFunctionCallingLLM(response_generator=say, is_chat_model=True)
