"""What LangGraph says about the place of a call: its ids, how often it was begun, and its ways of stopping a run."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import get_runtime
from langgraph.types import interrupt

from agent_saga import spi
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.errors import SagaSuspended

_asking: Final = threading.Lock()
_calls_in_task: ContextVar[int] = ContextVar("agent_saga_langgraph_calls_in_task", default=0)


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
    if info is None or not isinstance(info.node_attempt, int):  # A runtime that a test has made up says nothing.
        return None, 0
    return f"{thread_scope(info.thread_id or '')}{info.checkpoint_ns}|{info.task_id}", max(info.node_attempt - 1, 0)


def _execution_info() -> Any:
    try:
        return getattr(get_runtime(), "execution_info", None)
    except (RuntimeError, KeyError):  # Outside of a graph.
        return None


@contextmanager
def task_of(calls: int) -> Iterator[None]:
    """State how many tool calls the current task holds."""
    token = _calls_in_task.set(calls)
    try:
        yield
    finally:
        _calls_in_task.reset(token)


def pause(wait: SagaSuspended, name: str, arguments: dict[str, Any], call_id: str | None) -> None:
    """Pause the graph until somebody has decided, and record what they said. Returns when the call may be tried again.

    LangGraph hands the answers of a task to whichever of its calls asks next. So where a task may hold several calls
    only an answer that names its request counts, and it counts for that one.

    Raises:
        SagaSuspended: there is no graph to pause.
        GraphInterrupt: the pause.
    """
    if _execution_info() is None:
        raise wait
    about = {"tool_call_id": call_id, "name": name, "args": arguments, "description": str(wait)}
    with _asking:  # The count of a task's questions and its answers must not be read between one another.
        answer = interrupt({"type": "tool_approval", **about, "saga_id": wait.saga_id, "approval": wait.approval})
    approved, said = _decision(answer)
    approval = said.get("approval") or (wait.approval if _calls_in_task.get() == 1 else None)
    if approved is None or not approval:
        return  # No word on a request: it is looked at again.
    try:
        by, note = str(said.get("by") or "langgraph"), str(said.get("message") or "")
        spi.decide_approval(approval, approved=approved, by=by, note=note)
    except UsageError:
        return  # Somebody was faster, or it takes a signature: the request is asked again, and says what is true.


def _decision(answer: Any) -> tuple[bool | None, dict[str, Any]]:
    """Read an answer in the forms of LangChain's HumanInTheLoopMiddleware, or a plain bool."""
    if isinstance(answer, dict) and isinstance(answer.get("decisions"), list) and len(answer["decisions"]) == 1:
        answer = answer["decisions"][0]
    said = answer if isinstance(answer, dict) else {"type": answer}
    kind = said.get("type")
    if isinstance(kind, bool):
        return kind, said
    return {"approve": True, "reject": False}.get(kind if isinstance(kind, str) else ""), said
