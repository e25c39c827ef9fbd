"""A tool's call as a step: what `spi.guard` is told of it."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.tools import ToolOutput

from agent_saga import spi
from agent_saga_llama_index._info import NAME
from agent_saga_llama_index._pause import is_pause
from agent_saga_llama_index._spot import spot_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent_saga import AgentKit

_failed: ContextVar[tuple[Step, dict[str, Any], BaseException] | None] = ContextVar(
    "agent_saga_llama_index_failed", default=None
)
"""The last call in this context that was given its argument by place, and raised."""


def is_error(result: Any) -> bool:
    """Tell a result that the framework takes for an error."""
    return isinstance(result, ToolOutput) and result.is_error


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """The steps of one tool.

    Attributes:
        name: as declared.
        key_param: the parameter that receives the key.
    """

    name: str
    kit: AgentKit | None
    key_param: str | None = None

    def run(
        self,
        named: dict[str, Any],
        body: Callable[[dict[str, Any]], Any],
        *,
        by_place: bool = False,
        error: Callable[[Any], bool] = is_error,
    ) -> Any:
        """Run a call in this thread; what it raises, a refusal too, the framework tells the model."""
        self._check_not_again(named, by_place=by_place)
        try:
            return spi.guard(self.name, named, body, is_error=error, **self._facts())
        except Exception as raised:
            _failed.set((self, named, raised) if by_place else None)
            raise

    async def arun(
        self,
        named: dict[str, Any],
        body: Callable[[dict[str, Any]], Awaitable[Any]],
        *,
        by_place: bool = False,
        error: Callable[[Any], bool] = is_error,
    ) -> Any:
        """Run a call in the running loop; see `run`."""
        self._check_not_again(named, by_place=by_place)
        try:
            return await spi.aguard(self.name, named, body, is_error=error, **self._facts())
        except Exception as raised:
            _failed.set((self, named, raised) if by_place else None)
            raise

    def _facts(self) -> dict[str, Any]:
        call_id, scope, attempt = spot_of(self.name)
        return {
            "adapter": NAME,
            "call_id": call_id,
            "scope": scope,
            "attempt": attempt,
            "is_pause": is_pause,
            "plain_replay": True,
            "kit": self.kit,
        }

    def _check_not_again(self, named: dict[str, Any], *, by_place: bool) -> None:
        """Let the first error stand where `call_tool` tries a call, which has failed by place, once more by name.

        It does so on any error, so the effect of the first try may have happened.
        """
        failed = None if by_place else _failed.get()
        if failed is None:
            return
        step, before, error = failed
        if step is self and before == named and sys.exc_info()[1] is error:
            _failed.set(None)
            raise error
