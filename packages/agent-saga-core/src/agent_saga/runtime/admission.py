"""Is this call new? Retries of calls in doubt, resumes, repeats by a framework and repeated call ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import AlreadyCommitted, ReplayUnavailable, StepInDoubt
from agent_saga.machine.states import StepState
from agent_saga.model import records as r
from agent_saga.model.values import decode
from agent_saga.runtime.clock import clock
from agent_saga.runtime.compensate import Budget
from agent_saga.runtime.ops import Join
from agent_saga.runtime.settle import settle

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall

RETRY_JOIN_S: Final = 30.0
"""How long a retry waits for the call in doubt that still runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What a call is.

    Attributes:
        replay: it is answered with this step's result; no effect runs.
        again: it runs again as this step, under its key.
        repeats: it is new, and an equal step stands.
    """

    replay: StepView | None = None
    again: StepView | None = None
    repeats: bool = False


def admit(saga: Saga, call: ToolCall) -> Generator[Op, Any, Admitted]:
    """Decide what a call is.

    Raises:
        StepInDoubt: an equal call is in doubt, cannot be settled, and may not be repeated.
        AlreadyCommitted: it would be a new effect of a saga that has committed.
    """
    live = saga.live
    equal = _equal_steps(live, call)
    unanswered = [step for step in equal if not step.answered and not _running_and_awaited(live, step)]
    if unanswered:
        return (yield from _retry(saga, call, unanswered[-1]))
    again = _same_call(live, call, equal)
    if again is not None:
        return Admitted(replay=again)
    if live.committed_key:
        raise AlreadyCommitted(
            f"saga {live.id!r} (key {live.view.key!r}) has committed; {call.declaration.name!r} would be a new effect "
            "and did not run. Use another key for new work"
        )
    return Admitted(repeats=any(step.state is StepState.STANDING for step in equal))


def _equal_steps(live: LiveSaga, call: ToolCall) -> list[StepView]:
    if call.identity is None:
        return []
    with live.lock:
        return [live.view.steps[no] for no in live.by_identity.get(call.identity, ())]


def _running_and_awaited(live: LiveSaga, step: StepView) -> bool:
    """A call that runs and whose caller still waits is not in doubt: an equal one beside it is a new step."""
    flight = live.flights.get(step.no)
    return flight is not None and not flight.given_up


def _retry(saga: Saga, call: ToolCall, step: StepView) -> Generator[Op, Any, Admitted]:
    """A call equal to one whose caller got no definite answer: settle that one first."""
    live = saga.live
    flight = live.flights.get(step.no)
    if flight is not None:
        yield Join(flight.done, RETRY_JOIN_S)
    if step.state is StepState.IN_DOUBT:
        yield from settle(live, step, Budget(clock().monotonic() + RETRY_JOIN_S))
    live.unclaimed.discard(step.no)
    match step.state:
        case StepState.STANDING | StepState.ACCEPTED:
            return Admitted(replay=step)
        case StepState.ABSENT:
            return Admitted(again=step)
        case StepState.COMPENSATED:
            return Admitted()
        case StepState.IN_DOUBT if call.declaration.key_param is not None and step.no not in live.flights:
            return Admitted(again=step)
        case _:
            raise StepInDoubt(
                f"step {step.id!r}: an equal call of {step.tool!r} is in doubt "
                f"({step.reason or step.error_type or 'no answer'}) and cannot be settled, so it may not be repeated; "
                "nothing happened now. Declare a probe or an idempotency key for the tool, or settle the step by hand"
            )


def _same_call(live: LiveSaga, call: ToolCall, equal: list[StepView]) -> StepView | None:
    """Return the standing step that this call is another telling of, or None."""
    with live.lock:
        standing = [step for step in equal if step.state in {StepState.STANDING, StepState.ACCEPTED}]
        found = _by_call_id(call, standing) or _by_attempt(live, call, standing)
        if found is None:
            found = next((step for step in standing if step.no in live.unclaimed), None)
        if found is not None:
            live.unclaimed.discard(found.no)
        return found


def _by_call_id(call: ToolCall, standing: list[StepView]) -> StepView | None:
    """Call ids replay only inside the scope in which the adapter states that they are unique."""
    if call.call_id is None or call.call_scope is None:
        return None
    return next((s for s in standing if (s.call_id, s.call_scope) == (call.call_id, call.call_scope)), None)


def _by_attempt(live: LiveSaga, call: ToolCall, standing: list[StepView]) -> StepView | None:
    """A framework repeats a unit of work: its standing steps are matched by identity and occurrence."""
    if call.attempt == 0 or call.call_scope is None:
        return None
    claims = live.attempt_claims.setdefault((call.call_scope, call.attempt), set())
    for step in standing:
        if step.call_scope == call.call_scope and step.framework_attempt < call.attempt and step.no not in claims:
            claims.add(step.no)
            return step
    return None


def replay(saga: Saga, call: ToolCall, step: StepView) -> Any:
    """Answer a call with the recorded result of a standing step.

    Raises:
        ReplayUnavailable: the result was not stored.
    """
    live = saga.live
    if step.no in live.objects:
        result = live.objects[step.no]
    elif step.result is None or not step.exact:
        raise ReplayUnavailable(
            f"step {step.id!r}: {step.tool!r} stands and must not run again, but its result could not be stored, so it "
            "cannot be replayed. Return plain data from the tool, or settle this saga by hand"
        )
    else:
        result = decode(step.result)
    with live.lock:
        if not live.committed_key:
            live.emit(r.Replayed, step=step.no, call_id=call.call_id, hold=True)
        else:
            step.answered = True
    return result
