"""CrewAI's execution hooks and events: every call of every tool in a saga is guarded, or does not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from crewai.events import (
    ToolUsageErrorEvent,
    ToolUsageFinishedEvent,
    ToolUsageStartedEvent,
    crewai_event_bus,
)
from crewai.events.types.flow_events import FlowPausedEvent
from crewai.hooks import HookAborted, InterceptionPoint
from crewai.hooks.dispatch import get_global_hook_list

from agent_saga import current_saga, spi
from agent_saga_crewai import _spot
from agent_saga_crewai._info import NAME
from agent_saga_crewai._tool import guard_in_place, is_pass_through

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crewai.hooks import ToolCallHookContext
    from crewai.hooks.contexts import ExecutionEndContext


def install() -> None:
    """Put hooks and handlers in place, also where somebody has cleared them all."""
    for event, handler in _HANDLERS.items():
        crewai_event_bus.register_handler(event, handler)
    for point, hook in _HOOKS.items():
        hooks = get_global_hook_list(point)
        if hook not in hooks:
            hooks.append(hook)


def before_call(call: ToolCallHookContext) -> None:
    """Guard the tool of a call that is made in a saga.

    CrewAI goes on when a hook raises anything but HookAborted, so everything else becomes one.
    """
    saga = current_saga()
    if saga is None:
        return
    try:
        tool = getattr(call.tool, "_original_tool", None) or call.tool
        if tool is None or is_pass_through(tool):  # CrewAI runs no body where it knows no tool.
            _spot.current.set(None)
            return
        guard_in_place(tool, None)
        if tool is not call.tool and "func" not in type(tool).model_fields:
            call.tool.func = tool._run  # noqa: SLF001 - it may hold the body from before the tool was guarded.
        _spot.current.set(_spot.Spot(tool=tool, place=_spot.place_of(call, saga)))
    except Exception as error:
        reason = f"{call.tool_name!r} could not be guarded in saga {saga.id!r}, so it did not run: {error}"
        _spot.current.set(_spot.Spot(refused=reason))
        raise HookAborted(reason, source=NAME) from error


def after_call(_call: ToolCallHookContext) -> str | None:
    """End the call; a model is told why a call was refused in the hook before it."""
    spot = _spot.current.get()
    _spot.current.set(None)
    return None if spot is None else spot.refused


def after_run(run: ExecutionEndContext) -> None:
    """A flow that has ended waits for nobody; a crew has the results of its tasks, also those of a checkpoint."""
    if current_saga() is None:
        return
    if run.flow is not None:
        spi.note_pause(_pause_name(run.flow.flow_id), None)
    if run.crew is not None:
        spi.claim(_call_ids(run.output), adapter=NAME, scope="")


def _call_ids(output: Any) -> Iterator[str]:
    for task in getattr(output, "tasks_output", ()):
        yield from (str(one["tool_call_id"]) for one in task.messages or () if one.get("tool_call_id"))


def _pause_name(flow_id: str) -> str:
    return f"crewai flow {flow_id}"


_HOOKS: Final[dict[InterceptionPoint, Any]] = {
    InterceptionPoint.PRE_TOOL_CALL: before_call,
    InterceptionPoint.POST_TOOL_CALL: after_call,
    InterceptionPoint.EXECUTION_END: after_run,
}


def _note_pause(_source: Any, event: FlowPausedEvent) -> None:
    """A flow that waits for feedback returns normally; CrewAI waits for this handler before it does."""
    spi.note_pause(_pause_name(event.flow_id), f"flow {event.flow_id!r} waits for feedback: {event.message}")


def _note_saga(_source: Any, event: Any) -> None:
    saga = current_saga()
    if saga is not None:
        event.fingerprint_metadata = {**(event.fingerprint_metadata or {}), "saga_id": saga.id}


_HANDLERS: Final[dict[Any, Any]] = {
    FlowPausedEvent: _note_pause,
    ToolUsageStartedEvent: _note_saga,
    ToolUsageFinishedEvent: _note_saga,
    ToolUsageErrorEvent: _note_saga,
}
