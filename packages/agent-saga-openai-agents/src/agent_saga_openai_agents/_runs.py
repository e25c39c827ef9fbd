"""What the framework says about a run: where its call ids are unique, and which results it already has."""

from __future__ import annotations

import uuid
import weakref
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents import RunContextWrapper
from agents.tracing import get_current_span, get_current_trace

from agent_saga import current_saga, spi
from agent_saga_openai_agents._info import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class _Run:
    context: weakref.ref[RunContextWrapper[Any]]
    scope: str
    has_claimed: bool = False


_run: ContextVar[_Run | None] = ContextVar("agent_saga_openai_agents_run", default=None)


def turn_begins(context: RunContextWrapper[Any]) -> None:
    """Note the run whose turn begins in this task, and claim the steps whose results a resumed one has."""
    saga = current_saga()
    if saga is None:
        return
    run = _run.get()
    if run is None or run.context() is not context:
        _run.set(_Run(weakref.ref(context), f"run:{uuid.uuid4().hex}"))
        # A RunState knows which calls are completed, also where the conversation itself is kept by the server.
        records = getattr(context, "_tool_invocations", {})
        _claim(call_id for call_id, record in records.items() if getattr(record, "completed", False))
    trace = get_current_trace()
    if trace is not None and hasattr(trace, "metadata"):
        trace.metadata = {**(trace.metadata or {}), "saga_id": saga.id}


def input_is_known(context: RunContextWrapper[Any]) -> None:
    """Claim the steps whose results a run was begun with, by a session or by hand."""
    run = _run.get()
    if run is None or run.has_claimed or current_saga() is None:
        return
    run.has_claimed = True
    items = [item for item in context.turn_input if isinstance(item, dict)]
    _claim(str(item.get("call_id")) for item in items if item.get("type") == "function_call_output")


def _claim(call_ids: Iterator[str]) -> None:
    spi.claim(call_ids, adapter=NAME, scope="")


def is_approved(context: Any, tool: str, call_id: str | None) -> bool | None:
    """Tell what a person said about a call through the framework; None: nothing."""
    if call_id is None or not isinstance(context, RunContextWrapper):
        return None
    names = dict.fromkeys((getattr(context, "qualified_tool_name", tool), tool))
    words = [context.is_tool_approved(name, call_id) for name in names]
    return next((word for word in words if word is not None), None)


def scope_of(context: Any, tool: str, call_id: str | None) -> str | None:
    """Return where a call's id is unique: in its run, of which a saved state can be resumed any number of times.

    No state says which run it is of; but only a call that was approved can be made again by one.
    """
    if is_approved(context, tool, call_id):
        return "approved"
    run = _run.get()
    return None if run is None else run.scope


def mark_refused(reason: str) -> None:
    """Put a refusal on the call's trace, as the framework does with other errors."""
    span = get_current_span()
    if span is not None:
        span.set_error({"message": "Refused by agent-saga", "data": {"reason": reason}})
