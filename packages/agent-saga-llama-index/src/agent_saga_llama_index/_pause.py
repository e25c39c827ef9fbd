"""Approvals through the framework's own events, and runs that wait when their saga's scope ends."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, Final

from llama_index.core.workflow import HumanResponseEvent, InputRequiredEvent
from workflows.errors import WorkflowCancelledByUser
from workflows.runtime.types.results import AddWaiter, WaitingForEvent

from agent_saga import SagaSuspended, current_saga, spi
from agent_saga.errors import GateRefused, UsageError
from agent_saga_llama_index import _spot
from agent_saga_llama_index._info import NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from workflows.handler import WorkflowHandler

    from agent_saga import Saga

_YES: Final = frozenset({"approve", "approved", "ok", "true", "y", "yes"})
_WAITER: Final = "agent-saga "
_asked: Final[weakref.WeakKeyDictionary[Saga, dict[str | None, dict[str, bool | None]]]] = weakref.WeakKeyDictionary()
"""For the questions that the runs of a saga wait for: whether a plain answer came, and which was meant then."""


def is_pause(error: BaseException) -> bool:
    """Tell an exception by which a tool only waits: its body begins again when the event is there."""
    return isinstance(error, WaitingForEvent)


def asking(call: Callable[..., Awaitable[Any]], name: str) -> Callable[..., Awaitable[Any]]:
    """Return a tool's call as one that waits in its run where the gate asks a person."""

    @functools.wraps(call)
    async def waiting(*args: Any, **kwargs: Any) -> Any:
        heard: set[str] = set()
        while True:
            try:
                return await call(*args, **kwargs)
            except SagaSuspended as wait:
                await _hear(wait, name, kwargs, heard)

    return waiting


class _Answers:
    """Equal to the `approval` of an answer that wakes a call while it waits; the framework compares when one comes.

    An answer without one wakes all that wait in the run, and counts where that is one call.
    """

    def __init__(self, approval: str, asked: dict[str, bool | None]) -> None:
        self._approval, self._asked = approval, asked

    def __eq__(self, other: object) -> bool:
        if other is None and self._approval in self._asked:
            self._asked[self._approval] = len(self._asked) == 1
            return True
        return other == self._approval

    __hash__ = None  # type: ignore[assignment]


async def _hear(wait: SagaSuspended, name: str, kwargs: dict[str, Any], heard: set[str]) -> None:
    """Wait for a person's word, by which the framework ends this attempt; once it is there, record it.

    Raises:
        SagaSuspended: this is no run that could wait.
        GateRefused: it waits for no word, but for an operator; the saga is suspended at the end of its scope.
        WaitingForEvent: the run does.
    """
    saga, context, approval = current_saga(), _spot.step_context(), wait.approval
    if saga is None or context is None:
        raise wait
    if not approval:  # A run that ends by what is no `Exception` leaves those who read its events waiting for ever.
        raise GateRefused(str(wait)) from wait
    asked = _asked.setdefault(saga, {}).setdefault(_spot.run_id(), {})
    asked.setdefault(approval, None)
    given = {key: value for key, value in kwargs.items() if not isinstance(value, type(context))}
    question = InputRequiredEvent(prefix=str(wait), approval=approval, tool=name, kwargs=given)  # type: ignore[call-arg]
    waiter: dict[str, Any] = {
        "waiter_id": f"{_WAITER}{approval}",
        "waiter_event": question,
        "requirements": {"approval": _Answers(approval, asked)},
        "timeout": None,
    }
    # Not another waiter: one that is left would wake the call a second time, beside itself.
    once_more: WaitingForEvent[HumanResponseEvent] = WaitingForEvent(AddWaiter(event_type=HumanResponseEvent, **waiter))
    if approval in heard:  # Another word is needed.
        context.write_event_to_stream(question)
        raise once_more
    heard.add(approval)
    answer = await context.wait_for_event(HumanResponseEvent, **waiter)
    meant = answer.get("approval")
    if meant is None and not _is_only(compared=asked.get(approval)):
        asked[approval] = None
        context.write_event_to_stream(question)
        raise once_more
    if meant not in {None, approval}:  # A context that was restored wakes all that wait.
        raise once_more
    asked.pop(approval, None)
    _decide(approval, answer)


def _is_only(*, compared: bool | None) -> bool:
    """Tell whether a plain answer came where one call waited; a restored context did not compare, and has them all."""
    return _spot.waiting(_WAITER) == 1 if compared is None else compared


def _decide(approval: str, answer: HumanResponseEvent) -> None:
    word = str(answer.get("response", "")).strip()
    approved = word.lower() in _YES
    try:
        spi.decide_approval(approval, approved=approved, by=answer.get("by", NAME), note="" if approved else word)
    except UsageError:
        return  # Somebody was faster, or it takes a signature: asked again, the gate says what is true.


def hear_at_once(handler: WorkflowHandler) -> None:
    """Record addressed answers when they are sent: a context that was just restored keeps only the last of several."""
    send = handler.ctx.send_event

    def send_event(message: Any, step: str | None = None) -> None:
        saga, approval = current_saga(), isinstance(message, HumanResponseEvent) and message.get("approval")
        if saga is not None and approval:
            _asked.get(saga, {}).get(handler.run_id, {}).pop(approval, None)
            _decide(approval, message)
        send(message, step)

    vars(handler.ctx)["send_event"] = send_event


def until_over(handler: WorkflowHandler) -> None:
    """Have the saga suspended, and not committed, where its scope ends before a resumed run does."""
    name = f"run {handler.run_id}"
    spi.note_pause(name, f"the resumed {name} is not over")

    def over(task: Any) -> None:
        if not task.cancelled() and not isinstance(task.exception(), WorkflowCancelledByUser):
            spi.note_pause(name, None)

    # The first to hear of it, before whoever awaits the handler.
    handler._result_task.add_done_callback(over)  # noqa: SLF001
