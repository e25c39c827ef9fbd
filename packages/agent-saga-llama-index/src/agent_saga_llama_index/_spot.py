"""Where a call is made: in which run, in which piece of its work, and with which id of the framework's."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from llama_index.core.workflow import Context
from llama_index_instrumentation.dispatcher import active_instrument_tags
from workflows.errors import WorkflowRuntimeError
from workflows.runtime.types.results import StepWorkerStateContextVar

from agent_saga import current_saga, spi
from agent_saga_llama_index._info import NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agent_saga import Saga

_BEGUN: Final = "agent_saga_run"
"""Where a context's store keeps the id of the run that was begun in it; a run that goes on elsewhere has a new id."""
_begun: ContextVar[tuple[str | None, str | None]] = ContextVar("agent_saga_llama_index_begun", default=(None, None))
_runs: Final[weakref.WeakKeyDictionary[Saga, dict[str | None, str | None]]] = weakref.WeakKeyDictionary()
"""For the runs that a saga knows: as which they were begun."""


_answered: Final[weakref.WeakKeyDictionary[Saga, set[tuple[Any, ...]]]] = weakref.WeakKeyDictionary()
"""The pieces of work of a saga's runs that have given the result of their call."""
_turns: Final[weakref.WeakKeyDictionary[Saga, dict[tuple[Any, ...], asyncio.Lock]]] = weakref.WeakKeyDictionary()
"""For the calls of a saga's runs: whose turn it is to make them."""


class Spot(NamedTuple):
    """Where a call is made.

    Attributes:
        call_id: the framework's id of it.
        scope: where that is unique: in a run's piece of work, which begins again when it waits, is retried or resumed.
        attempt: how often that piece was begun before, where no id tells the calls in it apart.
    """

    call_id: str | None
    scope: str | None
    attempt: int


def spot_of(tool: str) -> Spot:
    """Return where a call is made. Nothing public tells a tool its id; the tests see to it that this does."""
    worker = StepWorkerStateContextVar.get(None)
    if worker is None:
        return Spot(None, None, 0)
    item = getattr(worker.state, "work_item_id", None)
    scope = f"{_begun_as()}/{worker.state.step_name}/{item}"
    if getattr(worker.event, "tool_name", None) == tool:
        return Spot(getattr(worker.event, "tool_id", None), scope, 0)
    return Spot(None, scope, 0 if item is None else worker.retry.retry_number)


def run_id() -> str | None:
    """Return the framework's id of the run in this context."""
    return active_instrument_tags.get().get("llamaindex.run_id")


def _begun_as() -> str | None:
    known, begun = _begun.get()
    run = run_id()
    return begun if begun is not None and known == run else run


def waiting(prefix: str) -> int:
    """Return how many calls of this kind of step waited, under an id with this prefix, when this one was woken."""
    worker = StepWorkerStateContextVar.get(None)
    waiters = [] if worker is None else worker.state.collected_waiters
    return sum(waiter.waiter_id.startswith(prefix) for waiter in waiters)


@contextlib.asynccontextmanager
async def one_at_a_time(call_id: str) -> AsyncIterator[None]:
    """Hold a call back while the same piece of work makes it: it would ask for another word, having lost its own.

    The framework begins work that waits when a context is restored, and again when the event is there.
    """
    saga, item = current_saga(), _work_item()
    if saga is None or item is None:
        yield
        return
    async with _turns.setdefault(saga, {}).setdefault((run_id(), item, call_id), asyncio.Lock()):
        yield


def is_answered(call_id: str, *, note: bool = False) -> bool:
    """Tell whether this piece of work has given its call's result; if not, note that it does now.

    The framework begins work that waits once when a context is restored, and once when the event is there, side by side
    if that is soon: where the call need not wait any more, its result would go to the model twice.
    """
    saga, worker, item = current_saga(), StepWorkerStateContextVar.get(None), _work_item()
    if saga is None or worker is None or item is None:
        return False
    answered, key = _answered.setdefault(saga, set()), (run_id(), item, call_id, worker.retry.retry_number)
    if note and key not in answered:
        answered.add(key)
        return False
    return key in answered


def _work_item() -> str | None:
    worker = StepWorkerStateContextVar.get(None)
    return None if worker is None else getattr(worker.state, "work_item_id", None)


def step_context() -> Context | None:
    """Return the framework's context of the step that runs here."""
    try:
        return Context.get_step_context()
    except WorkflowRuntimeError:
        return None


async def run_begins(context: Context) -> None:
    """Let the context tell, also where it is resumed, which run was begun."""
    await context.store.set(_BEGUN, run_id())


async def turn_begins() -> None:
    """Note which run it is whose tools are asked for in this task; claims what it was begun or resumed with."""
    saga, context = current_saga(), step_context()
    if saga is None or context is None:
        return
    run, known = run_id(), _runs.setdefault(saga, {})
    if run not in known:
        known[run] = await context.store.get(_BEGUN, default=None)
        _begun.set((run, known[run]))
        await _claim_results(context)
    _begun.set((run, known[run]))


async def _claim_results(context: Context) -> None:
    """Claim the steps whose results the run has: of its own turns before, and of the conversation."""
    turns = await context.store.get("current_tool_calls", default=None) or []
    claim(turns)
    memory = await context.store.get("memory", default=None)
    messages = [] if memory is None else await memory.aget_all()
    told = [one.additional_kwargs.get("tool_call_id") for one in messages if one.role.value == "tool"]
    spi.claim([one for one in told if one], adapter=NAME, scope="")


def claim(results: Any) -> None:
    """Claim the steps of this run's calls whose results it has."""
    spi.claim([one.tool_id for one in results], adapter=NAME, scope=f"{_begun_as()}/")
