"""A model that needs no key: it says what it was given, in order."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class ScriptedModel(Model):
    """Each turn is a list of (tool, arguments), or a text."""

    def __init__(self, name: str, turns: Sequence[Any]) -> None:
        self.name, self.turns, self.said = name, turns, 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        turn = self.turns[self.said]
        self.said += 1
        return ModelResponse(output=self._items(turn), usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError

    def _items(self, turn: Any) -> list[Any]:
        if isinstance(turn, str):
            text = ResponseOutputText(text=turn, type="output_text", annotations=[])
            return [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])]
        return [
            ResponseFunctionToolCall(
                id=f"fc-{self.name}-{self.said}-{number}",
                call_id=f"{self.name}-{self.said}-{number}",
                name=name,
                arguments=json.dumps(arguments),
                type="function_call",
                status="completed",
            )
            for number, (name, arguments) in enumerate(turn)
        ]
