"""A tool's call as a step: what `spi.guard` is told, and what the model is told when it says no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga import SagaSuspended, current_saga, spi
from agent_saga.errors import (
    AlreadyCommitted,
    GateRefused,
    NoSaga,
    ReplayUnavailable,
    SagaClosed,
    StepInDoubt,
    UndeclaredTool,
)
from agent_saga_openai_agents import _pause, _runs
from agent_saga_openai_agents._info import NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent_saga import AgentKit

REFUSALS: Final = (
    AlreadyCommitted,
    GateRefused,
    NoSaga,
    ReplayUnavailable,
    SagaClosed,
    StepInDoubt,
    UndeclaredTool,
)
"""What a model is told: the call did not run, and why. Every other error of ours stops the run, or is the tool's."""


@dataclass(slots=True, kw_only=True)
class Step:
    """The steps of one tool.

    Attributes:
        name: as declared.
        key_param: the parameter that receives the key.
        is_error: tells a result that is an error.
        refused: makes of a refusal what the tool returns.
    """

    name: str
    kit: AgentKit | None
    key_param: str | None = None
    is_error: Callable[[Any], bool] | None = None
    refused: Callable[[str], Any] = str

    def run(self, context: Any, named: dict[str, Any], body: Callable[[dict[str, Any]], Any]) -> Any:
        """Run a call in this thread."""
        asked: set[str] = set()
        while True:
            try:
                return spi.guard(self.name, named, body, **self._facts(context))
            except SagaSuspended as wait:
                self._try_again(wait, context, asked)
            except REFUSALS as error:
                return self._refusal(error, context)

    async def arun(self, context: Any, named: dict[str, Any], body: Callable[[dict[str, Any]], Awaitable[Any]]) -> Any:
        """Run a call in the running loop."""
        asked: set[str] = set()
        while True:
            try:
                return await spi.aguard(self.name, named, body, **self._facts(context))
            except SagaSuspended as wait:
                self._try_again(wait, context, asked)
            except REFUSALS as error:
                return self._refusal(error, context)

    def _facts(self, context: Any) -> dict[str, Any]:
        if current_saga() is None:
            return {"adapter": NAME, "kit": self.kit}
        call_id = _call_id(context)
        return {
            "adapter": NAME,
            "call_id": call_id,
            "scope": None if call_id is None else _runs.scope_of(context, self.name, call_id),
            "is_error": self.is_error,
            "plain_replay": True,  # The framework takes its own output types as plain data, too.
            "kit": self.kit,
        }

    def _try_again(self, wait: SagaSuspended, context: Any, asked: set[str]) -> None:
        if wait.approval in asked or not _pause.pass_on(wait, context, self.name, _call_id(context)):
            raise wait
        asked.add(wait.approval)

    def _refusal(self, error: Exception, context: Any) -> Any:
        if _call_id(context) is None:
            raise error  # No model made the call.
        _runs.mark_refused(str(error))
        return self.refused(str(error))

    def without_key(self, effective: dict[str, Any]) -> dict[str, Any]:
        """Return effective arguments as the tool takes them: outside of a saga its own default is the key."""
        if self.key_param is not None and effective.get(self.key_param) is None:
            return {name: value for name, value in effective.items() if name != self.key_param}
        return effective


def _call_id(context: Any) -> str | None:
    return getattr(context, "tool_call_id", None)
