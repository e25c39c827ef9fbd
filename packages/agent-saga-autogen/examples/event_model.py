"""A model that needs no key: AutoGen's own replay client, with a short way to write its turns."""

import json
import logging
from collections.abc import Sequence

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=False,
    family="unknown",
    structured_output=False,
    multiple_system_messages=True,
)
logging.getLogger("autogen_core").setLevel(logging.ERROR)  # Errors of tools are its routine, and ours to report.


def scripted(*turns: str | Sequence[tuple[str, dict[str, object]]]) -> ReplayChatCompletionClient:
    """Each turn is a text, or a list of (tool, arguments)."""
    return ReplayChatCompletionClient([turn if isinstance(turn, str) else _calls(turn) for turn in turns], INFO)


def _calls(turn: Sequence[tuple[str, dict[str, object]]]) -> CreateResult:
    calls = [
        FunctionCall(id=f"call-{name}-{number}", name=name, arguments=json.dumps(arguments))
        for number, (name, arguments) in enumerate(turn)
    ]
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    return CreateResult(finish_reason="function_calls", content=calls, usage=usage, cached=False)
