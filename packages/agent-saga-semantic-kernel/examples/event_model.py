"""A model that needs no key: it says what it was given, in order."""

import json
from collections.abc import AsyncGenerator
from typing import Any, ClassVar

from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
from semantic_kernel.contents import AuthorRole, ChatMessageContent, FunctionCallContent


class ScriptedModel(ChatCompletionClientBase):
    """Each turn is a list of (function, arguments), or a text."""

    SUPPORTS_FUNCTION_CALLING: ClassVar[bool] = True
    turns: list[Any]
    said: int = 0

    def get_prompt_execution_settings_class(self) -> type[PromptExecutionSettings]:
        return PromptExecutionSettings

    async def _inner_get_chat_message_contents(self, chat_history: Any, settings: Any) -> list[ChatMessageContent]:
        turn = self.turns[self.said]
        self.said += 1
        if isinstance(turn, str):
            return [ChatMessageContent(role=AuthorRole.ASSISTANT, content=turn)]
        calls = [
            FunctionCallContent(
                id=f"{self.service_id}-{self.said}-{at}", index=at, name=name, arguments=json.dumps(arguments)
            )
            for at, (name, arguments) in enumerate(turn)
        ]
        return [ChatMessageContent(role=AuthorRole.ASSISTANT, items=calls)]

    async def _inner_get_streaming_chat_message_contents(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        raise NotImplementedError
        yield
