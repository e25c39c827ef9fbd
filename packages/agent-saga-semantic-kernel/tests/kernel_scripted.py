"""A model that says what the test wrote, and kernels and agents that run it."""

import itertools
import json
from typing import Any, ClassVar

from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
from semantic_kernel.contents import (
    AuthorRole,
    ChatHistory,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    StreamingChatMessageContent,
)
from semantic_kernel.functions import KernelFunctionFromMethod

from agent_saga_semantic_kernel import protect


class Scripted(ChatCompletionClientBase):
    """Each turn is a list of (function, arguments, id), or an exception; after the last one it says that it is done."""

    SUPPORTS_FUNCTION_CALLING: ClassVar[bool] = True
    turns: list[Any]
    offered: list[Any]
    heard: list[Any]

    def get_prompt_execution_settings_class(self):
        return PromptExecutionSettings

    def _update_function_choice_settings_callback(self):
        return lambda configuration, settings, kind: self.offered.append(configuration.available_functions)

    def _items(self, history):
        self.heard.append([str(message) for message in history.messages])
        turn = self.turns.pop(0) if self.turns else "done"
        if isinstance(turn, BaseException):
            raise turn
        if isinstance(turn, str):
            return turn
        return [
            FunctionCallContent(id=call_id, index=at, name=name, arguments=json.dumps(arguments))
            for at, (name, arguments, call_id) in enumerate(turn)
        ]

    async def _inner_get_chat_message_contents(self, chat_history, settings):
        return [_message(ChatMessageContent, self._items(chat_history))]

    async def _inner_get_streaming_chat_message_contents(self, chat_history, settings, function_invoke_attempt=0):
        more = {"choice_index": 0, "function_invoke_attempt": function_invoke_attempt}
        yield [_message(StreamingChatMessageContent, self._items(chat_history), **more)]


def _message(kind, said, **more):
    given = {"content": said} if isinstance(said, str) else {"items": said}
    return kind(role=AuthorRole.ASSISTANT, **given, **more)


def turns(*calls, ids="c"):
    """One turn for each argument: a call, a list of calls made at once, a text or an exception; ids are c1, c2, ..."""
    numbers = itertools.count(1)
    listed = [call if isinstance(call, list | str | BaseException) else [call] for call in calls]
    return [
        [(name, args, f"{ids}{next(numbers)}") for name, args in turn] if isinstance(turn, list) else turn
        for turn in listed
    ]


def model(*calls, ids="c"):
    return Scripted(ai_model_id="m", service_id="scripted", turns=turns(*calls, ids=ids), offered=[], heard=[])


def settings(**options):
    behavior = FunctionChoiceBehavior.Auto(**options)
    return PromptExecutionSettings(service_id="scripted", function_choice_behavior=behavior)


def kernel_of(*functions, calls=(), plugin="shop", kit=None, ids="c"):
    """A kernel with functions in one plugin and a scripted model; protected if a kit is given."""
    kernel = Kernel(services=[model(*calls, ids=ids)])
    for function in functions:
        kernel.add_function(plugin, function)
    return kernel if kit is None else protect(kernel, kit)


def agent_of(kernel, name="buyer", **options):
    return ChatCompletionAgent(kernel=kernel, name=name, description=f"the {name}", **options)


def say(kernel, *calls, ids="c"):
    """Let the kernel's model say something else from now on."""
    kernel.services["scripted"].turns = turns(*calls, ids=ids)


def history_of(text="go"):
    history = ChatHistory()
    history.add_user_message(text)
    return history


async def chat(kernel, history=None, **options):
    """Run the framework's loop to its end; returns the history, the answer included."""
    history = history or history_of()
    service = kernel.services["scripted"]
    answer = await service.get_chat_message_content(history, settings(**options), kernel=kernel)
    if answer.role is not AuthorRole.TOOL:
        history.add_message(answer)
    return history


async def stream(kernel, history=None, **options):
    """The same through the streaming interface."""
    history = history or history_of()
    service = kernel.services["scripted"]
    async for _ in service.get_streaming_chat_message_contents(history, settings(**options), kernel=kernel):
        pass
    return history


def stored(history):
    """A history as another process would read it."""
    return ChatHistory.restore_chat_history(history.serialize())


def results(history):
    """What the model was told of its calls, in order: (id, result)."""
    items = [item for message in history.messages for item in message.items]
    return [(item.id, item.result) for item in items if isinstance(item, FunctionResultContent)]


def answers(history):
    return [result for _, result in results(history)]


def native(method, plugin="shop"):
    return KernelFunctionFromMethod(method=method, plugin_name=plugin)
