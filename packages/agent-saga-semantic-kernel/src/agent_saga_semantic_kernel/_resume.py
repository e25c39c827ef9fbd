"""`resume`: a stored chat history goes on, in whatever process."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from semantic_kernel import Kernel

from agent_saga import spi
from agent_saga.errors import UsageError
from agent_saga_semantic_kernel import _histories
from agent_saga_semantic_kernel._info import NAME
from agent_saga_semantic_kernel._units import WAITS, resumed_scope

if TYPE_CHECKING:
    from semantic_kernel.contents.chat_history import ChatHistory
    from semantic_kernel.contents.function_call_content import FunctionCallContent
    from semantic_kernel.functions.kernel_arguments import KernelArguments


async def resume(
    thing: Any,
    history: ChatHistory,
    *,
    approved: bool | Mapping[str, bool] | None = None,
    arguments: KernelArguments | None = None,
) -> list[FunctionCallContent]:
    """Make the calls of a chat history that wait for a person, and put their results where it says that they wait.

    To be called in the saga that was suspended (`kit.transaction(..., key=...)`), before the model is asked again. The
    history's other results are known from then on to be those of this saga.

    Args:
        thing: the protected kernel, or an agent with it.
        history: as it was when the loop was terminated; it is changed.
        approved: the person's word on all the calls, or by call id; without one, what `agent-saga approvals` was told
            counts.
        arguments: the kernel arguments of the run, where functions read them.

    Returns:
        The calls that still wait.

    Raises:
        UsageError: `thing` has no kernel.
    """
    kernel = thing if isinstance(thing, Kernel) else getattr(thing, "kernel", None)
    if not isinstance(kernel, Kernel):
        raise UsageError(f"resume() takes a kernel or an agent, not {type(thing).__name__}")
    _histories.begins(history)
    left = []
    for call, approval in _histories.waiting(history):
        word = approved.get(str(call.id)) if isinstance(approved, Mapping) else approved
        if word is not None and approval:
            with contextlib.suppress(UsageError):  # Somebody was faster: made again, the call hears what is true.
                spi.decide_approval(approval, approved=word, by=NAME)
        answer = await _made(kernel, call, approval, history, arguments)
        _histories.put(history, approval, answer)
        if WAITS in answer.metadata:
            left.append(call)
    return left


async def _made(kernel: Kernel, call: FunctionCallContent, approval: str, history: ChatHistory, arguments: Any) -> Any:
    """Make a call through the framework, filters included, and return its result, which the history is without."""
    token = resumed_scope.set(f"approval:{approval}" if approval else None)
    try:
        await kernel.invoke_function_call(call, history, arguments=arguments)
    finally:
        resumed_scope.reset(token)
    return history.messages.pop().items[0]
