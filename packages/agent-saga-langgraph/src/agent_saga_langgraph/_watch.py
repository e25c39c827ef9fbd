"""Watches the graphs that run inside a saga: which of them stop for an interrupt, and which calls they know to be done.

No hook of an agent or node sees either: `HumanInTheLoopMiddleware` and nodes that ask people pause outside of any
tool, and a graph that is resumed from a checkpoint goes on behind its finished calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.tracers.context import register_configure_hook
from langgraph.errors import GraphInterrupt
from langgraph.types import Command

from agent_saga import current_saga, spi
from agent_saga_langgraph._flow import thread_scope
from agent_saga_langgraph._info import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextvars import ContextVar
    from uuid import UUID


class _Watch(BaseCallbackHandler):
    """Follows the runs of whole graphs on a thread; each of their nodes is a child of such a run."""

    run_inline = True  # In the run's own context, where the saga is.
    ignore_llm = ignore_chat_model = ignore_agent = ignore_retriever = ignore_custom_event = True

    def __init__(self) -> None:
        self._threads: dict[UUID, str] = {}

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note a graph's run on a thread: whatever it was paused for, it goes on."""
        known = metadata or {}
        if known.get("thread_id") is not None and "langgraph_node" not in known:
            self._threads[run_id] = str(known["thread_id"])
            spi.note_pause(self._threads[run_id], None)

    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Note a node that interrupts its graph."""
        self._threads.pop(run_id, None)
        thread = self._threads.get(parent_run_id) if parent_run_id is not None else None
        if thread is not None and isinstance(error, GraphInterrupt):
            spi.note_pause(thread, f"the graph on thread {thread!r} waits for an answer")

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Claim the calls whose results the graph has, from this run or from its checkpoint."""
        thread = self._threads.pop(run_id, None)
        if thread is not None:
            ids = (message.tool_call_id for message in _results(outputs))
            spi.claim(ids, adapter=NAME, scope=thread_scope(thread))


def _results(value: Any) -> Iterator[ToolMessage]:
    if isinstance(value, ToolMessage):
        yield value
    elif isinstance(value, Command):
        yield from _results(value.update)
    elif isinstance(value, dict):
        yield from _results(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _results(item)
    elif hasattr(value, "__dict__"):  # A state that is a model or dataclass.
        yield from _results([item for item in vars(value).values() if isinstance(item, list)])


class _InsideSaga:
    """Gives langchain-core the watch inside of sagas, and nothing outside, where it costs nothing."""

    def __init__(self) -> None:
        self._watch = _Watch()

    def get(self) -> _Watch | None:
        return None if current_saga() is None else self._watch


def watch() -> None:
    """Watch the graphs of this process; called once, when the adapter is imported."""
    register_configure_hook(cast("ContextVar[Any]", _InsideSaga()), inheritable=True)


watch()
