"""A model that needs no key: it says what it was given, in order."""

import warnings
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM

# LlamaIndex reads attributes of its agents that pydantic calls deprecated.
warnings.filterwarnings("ignore", "The `__fields|Accessing the 'model_", DeprecationWarning)


def scripted_model(name: str, turns: Sequence[Any]) -> MockFunctionCallingLLM:
    """Return a model whose turns are lists of (tool, arguments), or texts."""
    left = enumerate(turns)

    def say(_messages: Sequence[ChatMessage], **_options: Any) -> ChatMessage:
        number, turn = next(left)
        if isinstance(turn, str):
            return ChatMessage(role="assistant", content=turn)
        blocks = [
            ToolCallBlock(tool_call_id=f"{name}-{number}-{place}", tool_name=tool, tool_kwargs=arguments)
            for place, (tool, arguments) in enumerate(turn)
        ]
        return ChatMessage(role="assistant", blocks=blocks)

    return MockFunctionCallingLLM(response_generator=say, is_chat_model=True)
