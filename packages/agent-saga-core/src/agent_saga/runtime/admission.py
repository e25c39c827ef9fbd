"""Is this call new? Retries of calls in doubt, resumes, repeats by a framework and repeated call ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import AlreadyCommitted, ReplayUnavailable, StepInDoubt
from agent_saga.machine.states import StepState
from agent_saga.model import records as r
from agent_saga.model.values import decode, is_complete
from agent_saga.runtime.clock import clock
from agent_saga.runtime.compensate import Budget
from agent_saga.runtime.ops import Join
from agent_saga.runtime.settle import resolve, settle

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall

RETRY_JOIN_S: Final = 30.0
"""How long a retry waits for the call in doubt that still runs."""
_STANDING: Final = frozenset({StepState.STANDING, StepState.ACCEPTED})


class Overtaken(Exception):
    """Another equal call took the step up meanwhile: what this call is must be decided again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What a call is.

    Attributes:
        replay: it is answered with this step's result; no effect runs.
        again: it runs again as this step, under its key.
        attempts: how many attempts that step had when this was decided.
        repeats: it is new, and an equal step stands.
        seen: how many equal steps there were when this was decided.
    """

    replay: StepView | None = None
    again: StepView | None = None
    attempts: int = 0
    repeats: bool = False
    seen: int = 0


_NEW: Final = Admitted()


def is_plainly_new(live: LiveSaga, call: ToolCall) -> Admitted | None:
    """Return what `admit` would say at once of a call without an equal one before it; None when it has to look.

    One look at an index, which needs no lock: an equal call that begins meanwhile would not wait for this one either.
    """
    seen = call.identity is not None and call.identity in live.by_identity
    return None if seen or live.committed_key else _NEW


def admit(saga: Saga, call: ToolCall) -> Generator[Op, Any, Admitted]:
    """Decide what a call is.

    Raises:
        StepInDoubt: an equal call is in doubt, cannot be settled, and may not be repeated.
        ReplayUnavailable: an equal call stands, and its result was not stored.
        AlreadyCommitted: it would be a new effect of a saga that has committed.
    """
    live = saga.live
    while True:
        with live.lock:
            equal = _equal_steps(live, call)
            step = _unanswered(live, call, equal)
            if step is None:
                return _first_told(live, call, equal)
        admitted = yield from _retry(live, call, step)
        if admitted is not None:
            return admitted


def check_not_overtaken(live: LiveSaga, call: ToolCall, admitted: Admitted) -> None:
    """Check, under the saga's lock, that nobody took up the step that a call is about to run again or to make.

    Raises:
        Overtaken: somebody did: the gate takes its time, and a framework may dispatch one call twice side by side.
    """
    step = admitted.again
    if step is not None:
        if step.no in live.flights or step.landed or step.attempt != admitted.attempts:
            raise Overtaken
    elif call.call_scope is not None and call.identity in live.by_identity:
        begun = _equal_steps(live, call)[admitted.seen :]
        if any(_is_same_id(call, equal) for equal in begun):
            raise Overtaken


def _equal_steps(live: LiveSaga, call: ToolCall) -> list[StepView]:
    known = None if call.identity is None else live.by_identity.get(call.identity)
    return [] if known is None else [live.view.steps[no] for no in known]


def _unanswered(live: LiveSaga, call: ToolCall, equal: list[StepView]) -> StepView | None:
    """Return the last equal step whose caller got no definite answer, and which a compensation has not settled."""
    open_steps = [step for step in equal if not step.answered and step.state is not StepState.COMPENSATED]
    return next((step for step in reversed(open_steps) if not _running_and_awaited(live, call, step)), None)


def _running_and_awaited(live: LiveSaga, call: ToolCall, step: StepView) -> bool:
    """A call that runs and whose caller still waits is not in doubt: an equal one beside it is a new step.

    Unless it is the same call once more: the framework began the unit of work again, or dispatched the call again.
    """
    flight = live.flights.get(step.no)
    if flight is None or flight.given_up:
        return False
    return not (_repeats_unit(call, step) or _is_same_id(call, step))


def _retry(live: LiveSaga, call: ToolCall, step: StepView) -> Generator[Op, Any, Admitted | None]:
    """A call equal to one whose caller got no definite answer: settle that one first. None: look again."""
    flight = live.flights.get(step.no)
    if flight is not None:
        yield Join(flight.done, RETRY_JOIN_S)
    if not live.committed_key:
        yield from _settle_now(live, step)
    with live.lock:
        if _running_and_awaited(live, call, step):  # Another retry of it was faster.
            return None
        if step.answered or step.state is StepState.COMPENSATED:
            live.unclaimed.discard(step.no)
            return None
        gone = live.view.rolled_back(step)
        if step.state in _STANDING and not gone:
            return _claim(live, step, plain=call.plain_replay)
        may_run = step.state is StepState.ABSENT or _may_repeat(live, call.declaration, step)
        if may_run and live.committed_key:
            raise _already_committed(live, call)
        if may_run:
            live.unclaimed.discard(step.no)
            return Admitted(again=step, attempts=step.attempt)
    why = "its scope was rolled back" if gone else step.reason or step.error_type or "no answer"
    raise StepInDoubt(
        f"step {step.id!r}: an equal call of {step.tool!r} is in doubt ({why}) and cannot be settled, so it may not be "
        "repeated; nothing happened now. Declare a probe or an idempotency key for the tool, or settle the step by hand"
    )


def _settle_now(live: LiveSaga, step: StepView) -> Generator[Op, Any, None]:
    budget = Budget(clock().monotonic() + RETRY_JOIN_S)
    if live.view.rolled_back(step):
        yield from resolve(live, step, budget)
    elif step.state is StepState.IN_DOUBT:
        yield from settle(live, step, budget)


def _may_repeat(live: LiveSaga, declaration: Declaration, step: StepView) -> bool:
    """Tell whether a call in doubt may run again all the same: under its key, which the tool takes."""
    return step.state is StepState.IN_DOUBT and declaration.key_param is not None and step.no not in live.flights


def again_after_failure(live: LiveSaga, call: ToolCall, step: StepView) -> Generator[Op, Any, Admitted | None]:
    """Decide how a declared `retry` goes on after an attempt that failed or is in doubt; None: not at all."""
    if step.state is StepState.IN_DOUBT:
        yield from settle(live, step, Budget(clock().monotonic() + RETRY_JOIN_S))
    with live.lock:
        if step.state in _STANDING:
            return _claim(live, step, plain=call.plain_replay)
        if step.state is StepState.ABSENT or _may_repeat(live, call.declaration, step):
            return Admitted(again=step, attempts=step.attempt)
    return None


def would_repeat(live: LiveSaga, call: ToolCall) -> bool | None:
    """Tell of a call that is not made yet whether an equal step stands; None when it would be no new call."""
    with live.lock:
        equal = _equal_steps(live, call)
        if _unanswered(live, call, equal) is not None or _told_before(live, call, equal) is not None:
            return None
        return any(step.state is StepState.STANDING for step in equal)


def _first_told(live: LiveSaga, call: ToolCall, equal: list[StepView]) -> Admitted:
    """No equal call waits for an answer: the call is another telling of one that stands, or it is new."""
    found = _told_before(live, call, equal)
    if found is not None:
        return _claim(live, found, call, plain=call.plain_replay)
    if live.committed_key:
        raise _already_committed(live, call)
    return Admitted(repeats=any(step.state is StepState.STANDING for step in equal), seen=len(equal))


def _told_before(live: LiveSaga, call: ToolCall, equal: list[StepView]) -> StepView | None:
    """Return the standing step of which a call is another telling."""
    standing = [step for step in equal if step.state in _STANDING and not live.view.rolled_back(step)]
    found = _by_call_id(call, standing) or _by_attempt(live, call, standing)
    if found is None:
        found = next((step for step in standing if step.no in live.unclaimed), None)
    return found


def _claim(live: LiveSaga, step: StepView, call: ToolCall | None = None, *, plain: bool) -> Admitted:
    """Take a standing step's result for a call; one whose result is not there stays unclaimed, and never runs again."""
    known = step.result is not None and (step.exact or (plain and is_complete(step.result)))
    if step.no not in live.objects and not known:
        raise ReplayUnavailable(
            f"step {step.id!r}: {step.tool!r} stands and must not run again, but its result could not be stored, so it "
            "cannot be replayed. Return plain data from the tool, or settle this saga by hand"
        )
    step.answered = True
    live.unclaimed.discard(step.no)
    if call is not None and call.attempt:
        _claims(live, call).add(step.no)
    return Admitted(replay=step)


def _already_committed(live: LiveSaga, call: ToolCall) -> AlreadyCommitted:
    return AlreadyCommitted(
        f"saga {live.id!r} (key {live.view.key!r}) has committed; {call.declaration.name!r} would be a new effect and "
        "did not run. Use another key for new work"
    )


def _by_call_id(call: ToolCall, standing: list[StepView]) -> StepView | None:
    """Call ids replay only inside the scope in which the adapter states that they are unique."""
    return next((step for step in standing if _is_same_id(call, step)), None)


def _is_same_id(call: ToolCall, step: StepView) -> bool:
    known = call.call_id is not None and call.call_scope is not None
    return known and (step.call_id, step.call_scope) == (call.call_id, call.call_scope)


def _by_attempt(live: LiveSaga, call: ToolCall, standing: list[StepView]) -> StepView | None:
    """A framework repeats a unit of work: its standing steps are matched by identity and occurrence."""
    if call.attempt == 0:
        return None
    claimed = _claims(live, call)
    return next((step for step in standing if _repeats_unit(call, step) and step.no not in claimed), None)


def _repeats_unit(call: ToolCall, step: StepView) -> bool:
    return step.call_scope == call.call_scope and step.framework_attempt < call.attempt


def _claims(live: LiveSaga, call: ToolCall) -> set[int]:
    return live.attempt_claims.setdefault((call.call_scope, call.attempt), set())


def replay(saga: Saga, call: ToolCall, step: StepView) -> Any:
    """Answer a call with the recorded result of a standing step."""
    live = saga.live
    result = live.objects[step.no] if step.no in live.objects else decode(step.result or "null")
    with live.lock:
        if not live.committed_key:
            live.emit(r.Replayed, step=step.no, call_id=call.call_id, hold=True)
    return result
