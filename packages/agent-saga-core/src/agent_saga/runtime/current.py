"""What runs here: the saga and the step of this context."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_saga.runtime.saga import Saga


@dataclass(slots=True, kw_only=True)
class CurrentStep:
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
current_step_var: ContextVar[CurrentStep | None] = ContextVar("agent_saga_current_step", default=None)


def current_saga() -> Saga | None:
    """Return the saga (or nested scope) of this context, or None outside of one."""
    return current_saga_var.get()


def current_step() -> CurrentStep | None:
    """Return the step whose tool runs in this context, or None outside of one."""
    return current_step_var.get()
