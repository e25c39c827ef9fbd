"""One call of a tool as a step. Nothing here depends on the framework.

`_hook.py` says how its calls come here, `_framework.py` how it says what went wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent_saga import GateRefused, Saga, SagaSuspended, current_saga
from agent_saga.errors import UndeclaredTool
from agent_saga.spi import AgentKit, aguard, decide_approval, guard
from agent_saga_myframework import _framework
from agent_saga_myframework._info import NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkCall:
    """A call that the framework is about to make, after its own validation.

    Attributes:
        tool: the name that the model sees.
        arguments: by name, validated, without the key.
        call_id: the framework's id of the call.
        scope: where that id is unique (a thread, a run); an equal id elsewhere is another call.
        attempt: how often the framework has begun this unit of work before.
        saga: the one in which the run began, for threads that have lost it.
        answer: (approval, word) when the call goes on after a pause for a human's word.
    """

    tool: str
    arguments: Mapping[str, Any]
    call_id: str | None = None
    scope: str | None = None
    attempt: int = 0
    saga: Saga | None = None
    answer: tuple[str, bool] | None = None


def step(call: FrameworkCall, proceed: Callable[[dict[str, Any]], Any], kit: AgentKit | None) -> Any:
    """Make a sync call a step.

    Args:
        call: what is called.
        proceed: calls the tool's own function with these arguments (the key among them, if it takes one), and returns
            its raw result.
        kit: whose declarations count outside of a saga.
    """
    with _attached(call.saga), _told(call):
        return guard(call.tool, call.arguments, proceed, **_options(call), kit=kit)


async def astep(call: FrameworkCall, proceed: Callable[[dict[str, Any]], Awaitable[Any]], kit: AgentKit | None) -> Any:
    """See step; `proceed` is async."""
    with _attached(call.saga), _told(call):
        return await aguard(call.tool, call.arguments, proceed, **_options(call), kit=kit)


def _options(call: FrameworkCall) -> dict[str, Any]:
    return {
        "adapter": NAME,
        "call_id": call.call_id,
        "scope": call.scope,
        "attempt": call.attempt,
        "is_error": _framework.is_error_result,
        "is_pause": _framework.is_pause,
    }


@contextlib.contextmanager
def _attached(saga: Saga | None) -> Iterator[None]:
    """Bring the run's saga into a thread that has lost it."""
    with contextlib.nullcontext() if saga is None or current_saga() is not None else saga.attach():
        yield


@contextlib.contextmanager
def _told(call: FrameworkCall) -> Iterator[None]:
    """Let a refusal reach the model as the framework's error of a tool, and an approval pause the framework."""
    if call.answer is not None:
        approval, word = call.answer
        decide_approval(approval, approved=word, by="human")
    try:
        yield
    except (GateRefused, UndeclaredTool) as error:
        raise _framework.tool_error(str(error)) from error
    except SagaSuspended as error:
        pause = _framework.pause(error.approval or "")
        if pause is None:
            raise
        raise pause from error
