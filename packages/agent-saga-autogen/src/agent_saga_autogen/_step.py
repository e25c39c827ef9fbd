"""A tool's call as a step: what `spi.guard` is told, and what becomes of that which AutoGen cannot bear."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from agent_saga import SagaError, SagaSuspended, current_saga, spi
from agent_saga.errors import (
    CorruptLog,
    InvariantViolation,
    NoSaga,
    OwnerReplaced,
    SagaClosed,
    StoreError,
    UndeclaredTool,
    UsageError,
)
from agent_saga_autogen._info import NAME
from agent_saga_autogen._turns import active, note_fatal, note_wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from autogen_core import CancellationToken

    from agent_saga import AgentKit

_FATAL: Final = (CorruptLog, InvariantViolation, OwnerReplaced, StoreError, UsageError)
_TOLD: Final = (NoSaga, SagaClosed, UndeclaredTool)
"""Of the usage errors, those that a model is told as a refusal. The others, and a broken log, end the run."""


class NotRun(Exception):
    """A call that waits, or was cancelled, in words for the model."""


@dataclass(slots=True, kw_only=True)
class Step:
    """The steps of one tool.

    Attributes:
        name: as declared.
        is_error: tells a result that is an error.
    """

    name: str
    kit: AgentKit | None
    is_error: Callable[[Any], bool] | None = None

    def run(self, named: dict[str, Any], body: Callable[[dict[str, Any]], Any], call_id: str | None) -> Any:
        """Run a call in this thread."""
        try:
            return spi.guard(self.name, named, body, **self._facts(call_id))
        except SagaSuspended as wait:
            raise self._waits(wait) from wait
        except SagaError as error:
            _note(error)
            raise

    async def arun(
        self, named: dict[str, Any], body: Callable[[dict[str, Any]], Awaitable[Any]], call_id: str | None
    ) -> Any:
        """Run a call in the running loop."""
        try:
            return await spi.aguard(self.name, named, body, **self._facts(call_id))
        except SagaSuspended as wait:
            raise self._waits(wait) from wait
        except SagaError as error:
            _note(error)
            raise

    def _facts(self, call_id: str | None) -> dict[str, Any]:
        call = active.get()
        scope = None if call is None or call.call.id != call_id else call.turn.scope
        return {
            "adapter": NAME,
            "call_id": call_id,
            "scope": scope,
            "is_error": self.is_error,
            "plain_replay": True,
            "kit": self.kit,
        }

    def _waits(self, wait: SagaSuspended) -> NotRun:
        text = f"{self.name} did not run: {wait}"
        if note_wait(wait.approval, text):
            return NotRun(text)
        return NotRun(f"{text}. Do not call it again before somebody has answered")


def _note(error: SagaError) -> None:
    if isinstance(error, _FATAL) and not isinstance(error, _TOLD):
        note_fatal(error)


def is_of_the_call(token: CancellationToken | None) -> bool:
    """Tell whether a cancellation that was raised is about a call alone, and not about the task that waits for it."""
    task = asyncio.current_task()
    return (token is not None and token.is_cancelled()) or task is None or not task.cancelling()


def mark_span() -> None:
    """Put the saga's id on the span around."""
    saga = current_saga()
    if saga is not None:
        trace.get_current_span().set_attribute("saga_id", saga.id)
