"""What came of a call: success, failure, doubt, a pause or a stream; recorded so that nothing turns into another."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import (
    LogFailed,
    OwnerReplaced,
    UnboundCompensation,
    UsageError,
)
from agent_saga.model import records as r
from agent_saga.model.paths import PathMissing
from agent_saga.model.values import encode
from agent_saga.runtime import late
from agent_saga.runtime.classify import is_in_doubt
from agent_saga.runtime.declaration import recipe_of
from agent_saga.runtime.live import Flight

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Future

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Call, Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall
    from agent_saga.runtime.writer import Ticket


def returned(saga: Saga, call: ToolCall, flight: Flight, result: Any) -> Generator[Op, Any, Any]:
    if hasattr(type(result), "__await__"):
        _refuse_awaitable(saga, call, flight, result)
    if type(result) in _STREAMS:
        return saga.wrap_stream(call, flight, result)
    if call.is_error is not None and is_error(call, result):
        yield from record_error_result(saga, call, flight, result)
        return result
    problem = yield from record_success(saga, flight, result)
    if problem is not None:
        raise UnboundCompensation(problem)
    return result


def is_stream(result: Any) -> bool:
    """Tell whether a result is a generator, by its type alone: a result's own `__class__` may run code, and fail."""
    return type(result) in _STREAMS


_STREAMS: Final = frozenset({types.GeneratorType, types.AsyncGeneratorType})


def is_error(call: ToolCall, result: Any) -> bool:
    """Tell an error-shaped result; an adapter that fails to look at one has not shown an error."""
    try:
        return call.is_error is not None and bool(call.is_error(result))
    except Exception:  # noqa: BLE001 - the effect happened, and is recorded as that.
        return False


def is_pause(call: ToolCall, error: BaseException) -> bool:
    try:
        return call.is_pause is not None and bool(call.is_pause(error))
    except Exception:  # noqa: BLE001 - the tool's own exception is the one to raise and to judge.
        return False


def _refuse_awaitable(saga: Saga, call: ToolCall, flight: Flight, result: Any) -> None:
    """A tool returned something to be awaited: its effect has not happened, or happens outside the step."""
    name = call.declaration.name
    hint = "declare the async function itself as the tool, or await inside it"
    if inspect.iscoroutine(result):
        result.close()
        error = UsageError(f"tool {name!r} returned a coroutine, which was not started and has been closed: {hint}")
        # What the tool did before it returned is another matter: judged like any exception, so never as certain.
        state, assumed = judge(call.declaration, error)
        record_failure(saga, flight, error, state=state, assumed=assumed)
        raise error
    error = UsageError(
        f"tool {name!r} returned an awaitable ({type(result).__name__}), so its effect is in doubt: {hint}"
    )
    record_failure(saga, flight, error, state="in_doubt", assumed=False)
    raise error


def success_fields(live: LiveSaga, no: int, result: Any) -> tuple[dict[str, str], dict[str, Any], str | None]:
    """Return the values and fields of a success, and what is wrong with its compensation, if anything."""
    encoded = encode(result)
    values = {"result": encoded.text}
    step = live.view.steps[no]
    problem: str | None = None
    bound = None
    try:
        bound = live.binders[no](result)
    except PathMissing as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - the effect happened; a failing binder makes an orphan, said at once.
        problem = f"{type(error).__name__}: {error}"
    if bound is not None:
        for name, text in live.texts_of(no, bound.kwargs, bound.hidden).items():
            values[f"compensation.{name}"] = text
    if not encoded.exact:
        live.objects[no] = result
    fields: dict[str, Any] = {"state": "succeeded", "bound": bound is not None, "exact": encoded.exact}
    if problem is not None:  # Whoever settles the orphan asks why there is no compensation.
        fields["error"], values["error"] = UnboundCompensation.__name__, encode(problem).text
        problem = _unbound(step, problem)
    if bound is not None and step.recipe is None:
        fields["recipe"] = recipe_of(bound.compensator, None)
    return values, fields, problem


def _unbound(step: StepView, reason: str) -> str:
    return (
        f"step {step.id!r}: {step.tool!r} ran and its effect stands, but its compensation could not be bound: "
        f"{reason}. "
        "The saga is going to roll back, and this step stays as an orphan; do not call the tool again"
    )


def record_success(
    saga: Saga, flight: Flight, result: Any, *, partial: bool = False, replayable: bool = True
) -> Generator[Op, Any, str | None]:
    """Record that the effect happened; returns what is wrong with its compensation, or None.

    Recording never turns a success into a failure: when the log fails here, the scope says so at its end.
    """
    live = saga.live
    values, fields, problem = success_fields(live, flight.step, result)
    if problem is not None:
        live.doomed = live.doomed or f"step {flight.step} has no compensation, it could not be bound"
    if not replayable:
        fields["exact"] = False
    ticket = _record_outcome(saga, flight, values, fields, partial=partial)
    try:
        yield from live.committed(ticket)
    except LogFailed:  # Kept in the writer and in the saga: no further effect starts, and the scope raises it.
        return problem
    except OwnerReplaced:  # The new owner may count the step as absent: it must hear that it landed.
        late.arrive(saga, flight, values, fields)
    except (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        live.view.steps[flight.step].answered = False  # The caller never saw the result, so a retry is given it.
        raise
    else:
        if ticket is not None:
            live.binders.pop(flight.step, None)  # Its work is in the log; a long saga need not keep every call.
    return problem


def _record_outcome(
    saga: Saga, flight: Flight, values: dict[str, str], fields: dict[str, Any], **extra: Any
) -> Ticket | None:
    live = saga.live
    with live.lock:
        if not flight.given_up and not live.closed and not live.replaced:
            attempt = live.view.steps[flight.step].attempt
            ticket = live.emit_locked(r.Outcome, values, step=flight.step, attempt=attempt, **fields, **extra)
            live.land_locked(flight)
            return ticket
    late.arrive(saga, flight, values, fields)
    return None


def record_error_result(saga: Saga, call: ToolCall, flight: Flight, result: Any) -> Generator[Op, Any, None]:
    """Record a result that the framework shapes as an error: judged like an exception."""
    state = "in_doubt" if call.declaration.must_be_probed else "failed"
    fields = {"state": state, "assumed": state == "failed", "error": "error_result"}
    ticket = _record_outcome(saga, flight, {"error": encode(result).text}, fields)
    with contextlib.suppress(LogFailed, OwnerReplaced):
        yield from saga.live.committed(ticket)


def judge(declaration: Declaration, error: BaseException) -> tuple[str, bool]:
    """Return what an exception says about the effect (`failed` or `in_doubt`), and whether that is assumed."""
    members = list(_members(error))
    if isinstance(error, declaration.no_effect_on) or all(isinstance(m, declaration.no_effect_on) for m in members):
        return "failed", False
    listed = any(isinstance(member, declaration.in_doubt_on) for member in members)
    if listed or declaration.must_be_probed or is_in_doubt(error):
        return "in_doubt", False
    return "failed", True


def _members(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group, or the one exception."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _members(member)
    else:
        yield error


def raised(saga: Saga, call: ToolCall, flight: Flight, error: BaseException, operation: Call) -> None:
    """Record what an exception says. Nothing is awaited: the task may have been cancelled."""
    if is_pause(call, error):
        _paused(saga, call, flight, error)
        return
    state, assumed = judge(call.declaration, error)
    running = operation.running
    if running is not None and not (running.done() and running.exception() is error):
        # It runs on, or its own answer came just after the patience for it ended.
        _gave_up(saga, flight, error)
        watch(saga, call, flight, running)
        return
    record_failure(saga, flight, error, state=state, assumed=assumed)


def record_failure(saga: Saga, flight: Flight, error: BaseException, *, state: str, assumed: bool) -> None:
    text = error_text(error)
    fields = {"state": state, "assumed": assumed, "error": type(error).__name__}
    ticket = _record_outcome(saga, flight, {"error": text}, fields)
    _commit_quietly(saga.live, ticket)


def error_text(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the tool's own exception class misbehaves.
        message = "(no message: its __str__ failed)"
    return encode(message, limit_bytes=16_384).text


def _commit_quietly(live: LiveSaga, ticket: Ticket | None) -> None:
    """Commit on the way out with the tool's own exception, which must stay the one that is raised."""
    if ticket is None:
        return
    try:
        live.commit_now(ticket)
    except (LogFailed, OwnerReplaced):
        return


def _paused(saga: Saga, call: ToolCall, flight: Flight, error: BaseException) -> None:
    """The framework pauses inside the tool: not a failure; the saga is suspended when its scope ends."""
    doubtful = call.declaration.must_be_probed or call.declaration.key_param is not None
    fields = {"state": "in_doubt" if doubtful else "failed", "assumed": not doubtful, "error": type(error).__name__}
    with saga.live.lock:
        ticket = _record_outcome(saga, flight, {}, fields)
        if not doubtful and ticket is not None:
            ticket = saga.live.emit(r.Waived, step=flight.step)
    _commit_quietly(saga.live, ticket)
    saga.pause(call, f"{call.declaration.name} paused the run", error)


def _gave_up(saga: Saga, flight: Flight, error: BaseException) -> None:
    """The caller stops waiting for a call that still runs in a thread; its answer will be a late outcome."""
    live = saga.live
    with live.lock:
        attempt = live.view.steps[flight.step].attempt
        ticket = live.emit(
            r.Outcome,
            {"error": error_text(error)},
            step=flight.step,
            state="in_doubt",
            attempt=attempt,
            error=type(error).__name__,
        )
        flight.given_up = True
    _commit_quietly(live, ticket)


def watch(saga: Saga, call: ToolCall, flight: Flight, running: Future[Any]) -> None:
    """Record the late outcome of a call whose thread outlives its caller's patience."""

    def arrived(_future: Any) -> None:
        error = running.exception()
        if error is None:
            values, fields, _ = success_fields(saga.live, flight.step, running.result())
        else:
            state, _ = judge(call.declaration, error)
            values, fields = {"error": error_text(error)}, {"state": state, "error": type(error).__name__}
        late.arrive(saga, flight, values, fields)

    running.add_done_callback(arrived)
