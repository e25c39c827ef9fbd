"""Calls on their way: which call of a model an invocation is, and how often filters have begun it before."""

from __future__ import annotations

import itertools
import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from semantic_kernel.functions.function_result import FunctionResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semantic_kernel.filters.auto_function_invocation.auto_function_invocation_context import (
        AutoFunctionInvocationContext,
    )
    from semantic_kernel.functions.kernel_function import KernelFunction

    from agent_saga import SagaSuspended

WAITS: Final = "agent_saga_approval"
"""The metadata of a result in a chat history that is none yet: the approval that its call waits for."""
_numbers: Final = itertools.count(1)


class _Process:
    """What tells this process from all others, also from those that it is forked from."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.id = os.urandom(12).hex()


_process: Final = _Process()


def _new_scope() -> str:
    return f"{_process.id}:{next(_numbers)}"


@dataclass(slots=True, eq=False, kw_only=True)
class Unit:
    """One call, which filters may begin any number of times.

    Attributes:
        call_id: the model's id of it; None when no model made it.
        scope: where that id is unique. Models repeat ids, so that is the call itself.
        function: whose next invocation it is; None once that has begun.
        begun: how often it has been begun.
        waits: what it waits for.
    """

    call_id: str | None = None
    scope: str = field(default_factory=_new_scope)
    function: KernelFunction | None = None
    begun: int = 0
    waits: SagaSuspended | None = None


current: Final[ContextVar[Unit | None]] = ContextVar("agent_saga_semantic_kernel_unit", default=None)
resumed_scope: Final[ContextVar[str | None]] = ContextVar("agent_saga_semantic_kernel_resumed", default=None)
"""Where the id of a call that is made again is unique: the same in each process that goes on with the history."""


def take(function: KernelFunction) -> Unit:
    """Return the call that an invocation belongs to; what filters and bodies invoke besides is a call of its own."""
    unit = current.get()
    if unit is None or unit.function is not function:
        return Unit()
    unit.function = None
    return unit


def noting(invoke: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Return how a call of a model is made: its invocation knows the call's id, and a pause ends the loop."""
    from agent_saga import SagaSuspended
    from agent_saga_semantic_kernel import _histories

    scope = resumed_scope.get()
    unit = Unit() if scope is None else Unit(scope=scope)

    async def call(context: AutoFunctionInvocationContext) -> None:
        _histories.begins(context.chat_history)
        made = context.function_call_content
        unit.call_id, unit.function, unit.waits = made.id if made is not None else None, context.function, None
        outer = current.get()
        token, resumed = current.set(unit), resumed_scope.set(None)
        try:
            await invoke(context)
        except SagaSuspended as wait:
            unit.waits = wait
        finally:
            resumed_scope.reset(resumed)
            current.reset(token)
        if unit.waits is not None:
            _pause(context, unit.waits)
            if outer is not None:  # The call of the agent, or prompt, whose function this one is.
                outer.waits = unit.waits

    return call


def _pause(context: AutoFunctionInvocationContext, wait: SagaSuspended) -> None:
    context.function_result = FunctionResult(
        function=context.function.metadata, value=f"This call was not made yet. {wait}", metadata={WAITS: wait.approval}
    )
    context.terminate = True
