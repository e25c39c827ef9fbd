"""What LangGraph says about the place of a call: its ids, how often it was begun, and its ways of stopping a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import get_runtime
from langgraph.types import interrupt

from agent_saga import spi
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from agent_saga.errors import SagaSuspended


def is_pause(error: BaseException) -> bool:
    """Tell what pauses or leaves a run and is no failure of the tool: `interrupt()`, a drain."""
    return isinstance(error, GraphBubbleUp)


def thread_scope(thread_id: str) -> str:
    """Return how the scopes of a thread begin."""
    return f"{thread_id}|"


def whereabouts() -> tuple[str | None, int]:
    """Return the scope in which a tool call's id is unique, and how often its task has been begun before.

    A task keeps its id over retries, resumes and crashes; a new turn, a fork and a replay from an older checkpoint
    have new ones. One task of a `ToolNode` holds several calls, which their own ids tell apart.
    """
    info = _execution_info()
    if info is None:
        return None, 0
    return f"{thread_scope(info.thread_id or '')}{info.checkpoint_ns}|{info.task_id}", max(info.node_attempt - 1, 0)


def _execution_info() -> Any:
    try:
        return getattr(get_runtime(), "execution_info", None)
    except (RuntimeError, KeyError):  # Outside of a graph.
        return None


def pause(wait: SagaSuspended, name: str, arguments: dict[str, Any], call_id: str | None) -> None:
    """Pause the graph until somebody has decided, and record what they said. Returns when the call may be tried again.

    Raises:
        SagaSuspended: there is no graph to pause.
        GraphInterrupt: the pause.
    """
    if _execution_info() is None:
        raise wait
    answer = interrupt(
        {
            "type": "tool_approval",
            "tool_call_id": call_id,
            "name": name,
            "args": arguments,
            "description": str(wait),
            "saga_id": wait.saga_id,
            "approval": wait.approval,
        }
    )
    approved, by, note = _decision(answer)
    if approved is None or not wait.approval:
        return  # No word on the request: it is looked at again.
    try:
        spi.decide_approval(wait.approval, approved=approved, by=by, note=note)
    except UsageError:
        return  # Somebody was faster, or it takes a signature: the request is asked again, and says what is true.


def _decision(answer: Any) -> tuple[bool | None, str, str]:
    """Read an answer in the forms of LangChain's HumanInTheLoopMiddleware, or a plain bool."""
    if isinstance(answer, dict) and isinstance(answer.get("decisions"), list) and len(answer["decisions"]) == 1:
        answer = answer["decisions"][0]
    kind, by, note = answer, "langgraph", ""
    if isinstance(answer, dict):
        kind, by, note = answer.get("type"), str(answer.get("by") or by), str(answer.get("message") or note)
    approved = {True: True, "approve": True, False: False, "reject": False}.get(kind) if _is_word(kind) else None
    return approved, by, note


def _is_word(kind: Any) -> bool:
    return isinstance(kind, bool | str)
