"""What runs here: the saga and the step of this context."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from agent_saga.machine.view import StepView
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall


class CurrentStep(msgspec.Struct, kw_only=True, gc=False):
    """The step whose tool runs in this context.

    Attributes:
        saga_id: the saga.
        step_id: the step.
        tool: the declared name of the tool.
        key: the idempotency key: hand it to the remote, so that it can tell a retry from a new call.
    """

    saga_id: str
    step_id: str
    tool: str
    key: str
    _joinable: bool = False


current_saga_var: ContextVar[Saga | None] = ContextVar("agent_saga_current_saga", default=None)
in_handler_var: ContextVar[bool] = ContextVar("agent_saga_in_handler", default=False)
current_step_var: ContextVar[CurrentStep | None] = ContextVar("agent_saga_current_step", default=None)


class OutsideSagas:
    """A context in which handlers run: compensators, probes, verifiers. Wrapped tools that they call are bare there.

    Else a compensation that is a wrapped tool would become a step, and the rollback would compensate the compensation.
    """

    __slots__ = ("_handler", "_saga")

    def __enter__(self) -> None:
        self._saga = current_saga_var.set(None)
        self._handler = in_handler_var.set(True)

    def __exit__(self, *_exc: object) -> None:
        with contextlib.suppress(ValueError):  # The handler was closed in another context; that copy ends with it.
            in_handler_var.reset(self._handler)
            current_saga_var.reset(self._saga)


def current_saga() -> Saga | None:
    """Return the saga (or nested scope) of this context, or None outside of one."""
    return current_saga_var.get()


def current_step() -> CurrentStep | None:
    """Return the step whose tool runs in this context, or None outside of one."""
    return current_step_var.get()


def current_of(saga: Saga, call: ToolCall, step: StepView) -> CurrentStep:
    """Return what `current_step()` shows in the tool's body."""
    joinable = call.adapter is not None
    return CurrentStep(saga_id=saga.id, step_id=step.id, tool=step.tool, key=step.key, _joinable=joinable)
