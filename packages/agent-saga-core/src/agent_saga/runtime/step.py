"""The life of a step: gate, intent, effect, outcome. Written once, for sync and async, Python and adapters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.errors import (
    GateRefused,
    InvariantViolation,
    SagaClosed,
    SagaError,
    UsageError,
)
from agent_saga.model import records as r
from agent_saga.model.effects import Effect
from agent_saga.model.ids import step_id
from agent_saga.model.requirements import Within
from agent_saga.model.values import Encoded, decode, encode
from agent_saga.runtime import admission, approval, late
from agent_saga.runtime.admission import Overtaken
from agent_saga.runtime.clock import clock
from agent_saga.runtime.current import current_of, current_step_var
from agent_saga.runtime.declaration import CallView, bind_compensation, encode_kwargs, hide
from agent_saga.runtime.gate import pass_again, pass_gate, unasked
from agent_saga.runtime.live import Flight
from agent_saga.runtime.ops import Sleep, is_async
from agent_saga.runtime.outcome import error_text, is_error, is_pause, is_stream, raised, returned
from agent_saga.runtime.proposal import identity_of_call, proposed
from agent_saga.runtime.registry import Binding, BoundCall
from agent_saga.runtime.rehearsal import rehearsal
from agent_saga.runtime.resources import ResourceTaken, why_not_wait
from agent_saga.store.port import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.admission import Admitted
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.gate import Passed
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Call, Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.writer import Ticket
    from agent_saga.store.port import Verdict

RETRY_BACKOFF_S = 0.2
RETRY_BACKOFF_S_MAX = 10.0


class ToolCall(msgspec.Struct, kw_only=True, eq=False):
    """One call on its way.

    Attributes:
        kwargs: the arguments by parameter name, defaults included.
        run: makes the operation that runs the tool, given the key (or None where the tool takes none).
        adapter: the framework, or None for a direct call from Python.
        call_id, call_scope: the framework's id of the call, and where it is unique.
        attempt: how often the framework has begun this unit of work before.
        is_error: tells an error-shaped result.
        is_pause: tells an exception that only pauses the run.
        plain_replay: a record-like result may be replayed as the plain data that the log keeps of it.
        step: the number of the step that its last attempt made or continued.
        asked_for: the requests for approval that are about this call, and about no other that runs now.
        waits_until: how long it waits for resources, once it does.
    """

    declaration: Declaration
    kwargs: dict[str, Any]
    run: Callable[[str | None], Call]
    adapter: str | None = None
    call_id: str | None = None
    call_scope: str | None = None
    attempt: int = 0
    is_error: Callable[[Any], bool] | None = None
    is_pause: Callable[[BaseException], bool] | None = None
    plain_replay: bool = False
    encoded: dict[str, Encoded] | None = None
    identity: bytes | None = None
    step: int = 0
    asked_for: set[str] = set()
    waits_until: float | None = None


def perform(saga: Saga, call: ToolCall) -> Generator[Op, Any, Any]:
    """Run one call as a step of the saga, and return what the tool returned.

    Raises:
        GateRefused, SagaClosed, StepInDoubt, ...: before the effect; nothing happened.
        UnboundCompensation: after the effect; the step is an orphan.
        BaseException: what the tool raised.
    """
    if saga.plan is not None:
        return saga.plan.call(call)
    return _look(saga, call) if call.declaration.read_only else _act(saga, call)


def _look(saga: Saga, call: ToolCall) -> Generator[Op, Any, Any]:
    if not saga.live.is_owned_here:
        # In a forked child or worker: nothing to record there, and nothing to compensate.
        return (yield call.run(None))
    saga.live.check_accepts(saga.scope, call.declaration.name)
    if call.declaration.redact:
        saga.live.withhold(call.declaration.redacted, call.kwargs)
    saga.resumed_pause(call)
    return (yield from _read(saga, call))


def _encode(saga: Saga, call: ToolCall) -> None:
    """Encode the arguments, and look for secrets in them."""
    declaration = call.declaration
    if declaration.redact:
        saga.live.withhold(declaration.redacted, call.kwargs)
    call.encoded = encode_kwargs(declaration, call.kwargs)
    call.identity = identity_of_call(declaration, call.encoded)
    if (watch := saga.environment.secrets) is not None:
        watch.check_call(saga, declaration.name, call.encoded)


def _act(saga: Saga, call: ToolCall) -> Generator[Op, Any, Any]:
    live, declaration = saga.live, call.declaration
    live.check_accepts(saga.scope, declaration.name)
    saga.resumed_pause(call)
    _check_compensation(declaration)
    _check_reachable(saga, declaration)
    _encode(saga, call)
    try:
        while True:
            admitted = admission.is_plainly_new(live, call) or (yield from admission.admit(saga, call))
            if admitted.replay is not None:
                return admission.replay(saga, call, admitted.replay)
            passed = unasked(saga, call)
            if passed is None:
                passed = yield from pass_gate(saga, call, proposed(call, repeats=admitted.repeats))
            try:
                attempts = _attempts if declaration.retry else _attempt
                result = yield from attempts(saga, call, admitted, passed)
            except Overtaken:
                continue
            except ResourceTaken:
                if why_not_wait(saga, call, passed.resources) is not None:
                    raise
            else:
                if rehearsal() is not None:
                    yield from _told(saga, call)
                return result
    finally:
        if call.asked_for:
            approval.give_back(live, call)


def _told(saga: Saga, call: ToolCall) -> Generator[Op, Any, None]:
    """The result goes back to the caller now."""
    beside = rehearsal()
    if beside is not None:
        yield from beside.recorded(saga, saga.live.view.steps[call.step])


def _attempts(saga: Saga, call: ToolCall, admitted: Admitted, passed: Passed) -> Generator[Op, Any, Any]:
    """Run the call, and as often again as its declaration says: under its key, and only where that is safe."""
    live = saga.live
    for tried in range(call.declaration.retry + 1):
        try:
            return (yield from _attempt(saga, call, admitted, passed))
        except (SagaError, Overtaken):
            raise
        except Exception:
            step = live.view.steps[call.step]
            again = None
            if tried < call.declaration.retry and live.doomed is None:
                again = yield from admission.again_after_failure(live, call, step)
            if again is None:
                raise
            if again.replay is not None:
                return admission.replay(saga, call, step)
            admitted = again
        yield Sleep(min(RETRY_BACKOFF_S * 2**tried, RETRY_BACKOFF_S_MAX) * clock().jitter())
        passed = pass_again(saga, call.declaration.name, passed)
    raise InvariantViolation(f"tool {call.declaration.name!r}: no attempt was made")


def _check_reachable(saga: Saga, declaration: Declaration) -> None:
    binding = declaration.compensate
    if saga.sync_in_loop and isinstance(binding, Binding) and is_async(binding.compensator.fn):
        raise UsageError(
            f"the compensator of {declaration.name!r} is async, and saga {saga.id!r} was opened with `with` inside a "
            "running loop, where it could not be awaited; the tool did not run. Use `async with`"
        )


def _check_compensation(declaration: Declaration) -> None:
    if declaration.compensate is None and declaration.effect in {Effect.REVERSIBLE, Effect.COMPENSABLE}:
        raise UsageError(
            f"tool {declaration.name!r} is declared {declaration.effect.value} and has no compensator; it did not run. "
            f"Add one (@{declaration.name}.compensator(...) or compensate=...), or declare it irreversible"
        )


# -- one attempt --------------------------------------------------------------------------------------------------


def _attempt(saga: Saga, call: ToolCall, admitted: Admitted, passed: Passed) -> Generator[Op, Any, Any]:
    live = saga.live
    flight, ticket = _intend(saga, call, admitted, passed)
    step = live.view.steps[flight.step]
    try:
        if ticket is None:
            raise InvariantViolation(f"saga {live.id!r}: an intent was not given to the log")
        _check_intended(live, step, (yield live.wait_for(ticket)))
        _check_wanted(live, flight, step.tool)
    except BaseException as error:
        _not_started(saga, flight, error, ticket, passed)
        raise
    operation = call.run(step.key if call.declaration.key_param else None)
    token = current_step_var.set(current_of(saga, call, step))
    beside = rehearsal()
    try:
        if beside is None:
            result = yield operation
        else:
            result = yield from beside.call(saga, call.declaration, step, operation)
    except BaseException as error:
        raised(saga, call, flight, error, operation)
        raise
    finally:
        _reset(token)
    return (yield from returned(saga, call, flight, result))


def _check_intended(live: LiveSaga, step: StepView, verdict: Verdict) -> None:
    """Raise what the log's verdict on an intent means: the effect starts only when it is committed."""
    if isinstance(verdict, Refused):
        kind = GateRefused if verdict.holder is None else ResourceTaken
        raise kind(f"{step.tool!r} was refused in saga {live.id!r}, before any effect: {verdict.reason}")
    live.check_verdict(verdict)


def _check_wanted(live: LiveSaga, flight: Flight, tool: str) -> None:
    """A rollback that began while the intent was written may have given the call up: then it does not start."""
    # Without the lock: whoever ends the saga sets these first, and then waits for the flight; so a look that comes too
    # early for them is the same as a call that began before.
    if flight.given_up or live.closed:
        raise SagaClosed(f"saga {live.id!r} was rolled back before {tool!r} could start; it did not run")


def _reset(token: Any) -> None:
    try:
        current_step_var.reset(token)
    except ValueError:  # The context changed while the tool ran; that copy ends with it.
        return


def _intend(saga: Saga, call: ToolCall, admitted: Admitted, passed: Passed) -> tuple[Flight, Ticket | None]:
    """Record the intent. INVARIANT: no effect starts before its ticket is committed."""
    live, declaration, again = saga.live, call.declaration, admitted.again
    with live.lock:
        live.check_accepts(saga.scope, declaration.name)
        if again is not None or call.call_scope is not None:
            admission.check_not_overtaken(live, call, admitted)
        if passed.approvals:
            approval.check_unused(saga, declaration.name, passed.approvals)
        no = call.step = again.no if again is not None else len(live.view.steps) + 1
        key = step_id(live.view.id, no)
        live.binders[no] = _binder(call, key)
        ticket = live.emit_locked(
            declaration.intent,
            {f"kwargs.{name}": value.text for name, value in (call.encoded or {}).items()},
            durable=True,
            hold=bool(passed.requires),
            step=no,
            key=key,
            attempt=1 if again is None else again.attempt + 1,
            scope=saga.scope,
            no_identity=call.identity is None,
            adapter=call.adapter,
            call_id=call.call_id,
            call_scope=call.call_scope,
            framework_attempt=call.attempt,
            resources=list(passed.resources),
        )
        flight = live.flights[no] = Flight(no)  # Only now: whoever drains the flights looks at their steps.
        if passed.requires:
            ticket = _bring_along(live, no, passed)
        if again is None and call.identity is not None:
            live.by_identity.setdefault(call.identity, []).append(no)
        if again is not None:
            live.revived.append(no)
    return flight, ticket


def _bring_along(live: LiveSaga, no: int, passed: Passed) -> Ticket | None:
    """Record what an intent reserves and uses up, in its own transaction, which checks that it may."""
    for requirement in passed.requires:
        if isinstance(requirement, Within):
            live.emit(r.Reserved, hold=True, step=no, budget=requirement.budget, amount=str(requirement.amount))
    for used in passed.approvals:
        live.emit(r.ApprovalConsumed, hold=True, approval=used, step=no)
    return live.put_held(durable=True, requires=passed.requires)


def _binder(call: ToolCall, key: str) -> Callable[[Any], Any]:
    def bind(result: Any) -> BoundCall | None:
        bound = bind_compensation(
            call.declaration.compensate, CallView(_as_called(call), result, key, call.declaration.name)
        )
        return None if bound is None else hide(call.declaration, call.kwargs, bound)

    return bind


def _as_called(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as they were when the call began: the tool may have changed them since."""
    encoded = call.encoded or {}
    kwargs = dict(call.kwargs)
    for name, value in kwargs.items():
        if type(value) in _CHANGEABLE:
            known = encoded.get(name)
            if known is not None and known.exact:
                kwargs[name] = decode(known.text)
    return kwargs


_CHANGEABLE: Final = frozenset({dict, list, set, bytearray, tuple})


def _not_started(saga: Saga, flight: Flight, error: BaseException, ticket: Ticket | None, passed: Passed) -> None:
    """The wait for the intent was interrupted, it was refused, or the log failed: the effect was not started."""
    live = saga.live
    verdict = None if ticket is None else ticket.verdict
    if isinstance(verdict, Refused):  # Also when the wait for that word was interrupted.
        live.refused(flight.step, verdict.reason, passed.approvals)
        live.land(flight)
        return
    if live.closed and not live.replaced:
        late.arrive(saga, flight, {}, {"state": "failed", "error": type(error).__name__})
        return
    with live.lock:
        if not isinstance(error, GateRefused) and live.writer.failed is None and not live.replaced:
            live.emit(
                r.Outcome,
                step=flight.step,
                state="failed",
                error=type(error).__name__,
                attempt=live.view.steps[flight.step].attempt,
            )
            live.emit(r.Waived, step=flight.step)
        live.land(flight)


# -- read-only ----------------------------------------------------------------------------------------------------


def _read(saga: Saga, call: ToolCall) -> Generator[Op, Any, Any]:
    """Run a call without effects: one record, for which nobody waits."""
    beside, operation = rehearsal(), call.run(None)
    try:
        if beside is None:
            result = yield operation
        else:
            result = yield from beside.call(saga, call.declaration, None, operation)
    except BaseException as error:
        if is_pause(call, error):
            saga.pause(call, f"{call.declaration.name} paused the run", error)
        else:
            _record_read(saga, call, {"error": error_text(error)}, state="failed", error=type(error).__name__)
        raise
    if inspect.iscoroutine(result):
        result.close()
        raise UsageError(f"tool {call.declaration.name!r} returned a coroutine: declare the async function itself")
    if not is_stream(result):
        failed = is_error(call, result)
        _record_read(saga, call, {"result": encode(result).text}, state="failed" if failed else "succeeded")
    return result


def _record_read(saga: Saga, call: ToolCall, values: dict[str, str], **fields: Any) -> None:
    live = saga.live
    encoded = encode_kwargs(call.declaration, call.kwargs)
    for name, value in encoded.items():
        values[f"kwargs.{name}"] = value.text
    with live.lock:
        if live.closed or live.replaced or live.writer.failed is not None:
            return
        live.emit_locked(
            r.Outcome,
            values,
            hold=True,
            step=len(live.view.steps) + 1,
            tool=call.declaration.name,
            scope=saga.scope,
            adapter=call.adapter,
            call_id=call.call_id,
            **fields,
        )
