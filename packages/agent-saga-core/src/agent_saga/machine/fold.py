"""The fold: the only code that interprets the history of a saga."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.machine import gate
from agent_saga.machine.states import StepState, TransitionError, next_saga_state, next_step_state
from agent_saga.machine.view import SagaView, ScopeView, StepView
from agent_saga.model import records as r
from agent_saga.model.effects import Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def begin(record: r.SagaOpened) -> SagaView:
    """Return the view of a saga after its first record."""
    return SagaView(
        id=record.saga,
        name=record.name,
        key=record.key,
        incarnation=record.incarnation,
        owner=record.owner,
        epoch=record.epoch,
        on_crash=record.on_crash,
        on_divergence=record.on_divergence,
        deadline_at=record.deadline_at,
        suspend_ttl_s=record.suspend_ttl_s,
        rollback_timeout_s=record.rollback_timeout_s,
        tags=record.tags,
        amends=record.amends,
        by=record.by,
        opened_at=record.at,
        changed_at=record.at,
        count=1,
    )


def apply(view: SagaView, record: r.Record, values: Mapping[str, str]) -> None:
    """Fold one more record of the saga's own chain into its view.

    Args:
        view: changed in place.
        record: the next record; its `n` is not looked at (the reader checks numbers and hashes).
        values: the record's value texts (`records.open_payload`).

    Raises:
        TransitionError: the record cannot follow.
    """
    kind = type(record)
    if not (kind is r.RollbackStarted and record.scope):  # type: ignore[attr-defined]
        view.state = next_saga_state(view.state, _KINDS[kind])
    view.count += 1
    view.changed_at = record.at
    if view.amends is None or kind not in _AMENDING:
        _HANDLERS[kind](view, record, values)


_AMENDING: Final = frozenset(
    {
        r.Settled,
        r.LateOutcome,
        r.Probed,
        r.CompensationIntent,
        r.CompensationOutcome,
        r.ApprovalDecided,
        r.OperatorAction,
    }
)
"""Facts that an amendment states about the saga that it amends."""


def amend(view: SagaView, record: r.Record, values: Mapping[str, str]) -> None:
    """Fold a record of a saga that amends this one: facts about its steps, whoever owns it.

    Raises:
        TransitionError: the record cannot follow.
    """
    view.amended += 1
    if type(record) in _AMENDING:
        _HANDLERS[type(record)](view, record, values)


def _step(view: SagaView, no: int) -> StepView:
    step = view.steps.get(no)
    if step is None:
        raise TransitionError(f"step {no} has no intent")
    return step


def _move(step: StepView, event: str) -> None:
    step.state = next_step_state(step.state, event)


def _kwargs(values: Mapping[str, str], prefix: str) -> dict[str, str]:
    if not values:
        return {}
    length = len(prefix)
    return {name[length:]: text for name, text in values.items() if name[:length] == prefix}


def _intent(view: SagaView, record: r.Intent, values: Mapping[str, str]) -> None:
    step = view.steps.get(record.step)
    if step is None:
        if record.step != len(view.steps) + 1 or record.attempt != 1:
            raise TransitionError(f"step {record.step}, attempt {record.attempt} cannot follow {len(view.steps)} steps")
        view.steps[record.step] = _intended(view, record, values)
    else:
        if record.attempt != step.attempt + 1 or record.key != step.key or step.landed:
            raise TransitionError(
                f"attempt {record.attempt} of step {record.step} cannot follow attempt {step.attempt}"
            )
        step.doubtful = step.state is StepState.IN_DOUBT
        _move(step, "intent")
        now = _intended(view, record, values)
        for name in _STATED_BY_INTENT:
            setattr(step, name, getattr(now, name))
        step.answered, step.lost_at = False, 0
    if record.resources:
        gate.take_resources(view, record)
    if record.refused is not None:
        refuse(view, record.step, record.refused)


def _intended(view: SagaView, record: r.Intent, values: Mapping[str, str]) -> StepView:
    """Return a step as its first intent leaves it."""
    return StepView(
        saga_id=view.id,
        no=record.step,
        tool=record.tool,
        version=record.version,
        effect=record.effect,
        key=record.key,
        attempt=record.attempt,
        scope=record.scope,
        recipe=record.recipe,
        probe=record.probe,
        settle_s=record.settle_s,
        takes_key=record.takes_key,
        identity_names=record.identity,
        no_identity=record.no_identity,
        adapter=record.adapter,
        call_id=record.call_id,
        call_scope=record.call_scope,
        framework_attempt=record.framework_attempt,
        resolves=record.resolves,
        kwargs=_kwargs(values, "kwargs."),
        intent_n=view.count,
        intent_at=record.at,
    )


_STATED_BY_INTENT: Final = (
    "tool", "version", "effect", "key", "attempt", "scope", "recipe", "probe", "settle_s", "takes_key",
    "identity_names", "no_identity", "adapter", "call_id", "call_scope", "framework_attempt", "resolves", "kwargs",
)  # fmt: skip
"""What a further attempt of a step states anew."""


def refuse(view: SagaView, no: int, reason: str) -> None:
    """Fold that the log refused an intent while committing it: its effect does not start.

    A refusal is no failure; that an attempt before it failed stays one.
    """
    step = view.steps[no]
    if not step.doubtful:
        step.state, step.answered = StepState.ABSENT, True
    step.waived = step.waived or step.attempt == 1
    step.reason = f"refused: {reason}"
    step.outcome_n, step.outcome_at = step.intent_n, step.intent_at


def _outcome(view: SagaView, record: r.Outcome, values: Mapping[str, str]) -> None:
    if record.tool is not None:
        _read_only(view, record, values)
        return
    step = _step(view, record.step)
    if record.attempt != step.attempt:
        raise TransitionError(f"outcome of attempt {record.attempt}; the step is at attempt {step.attempt}")
    state = _state_said(step, record.state)
    _move(step, state)
    _answer(step, record, values)
    step.outcome_n, step.outcome_at = view.count, record.at
    step.assumed, step.partial = record.assumed and state == "failed", record.partial
    step.answered = state != "in_doubt"


def _state_said(step: StepView, said: str) -> str:
    """Return what an answer says about the step: that the last attempt failed leaves an earlier one in doubt."""
    return "in_doubt" if said == "failed" and step.doubtful else said


def _read_only(view: SagaView, record: r.Outcome, values: Mapping[str, str]) -> None:
    if record.step != len(view.steps) + 1:
        raise TransitionError(f"step {record.step} cannot follow {len(view.steps)} steps")
    step = view.steps[record.step] = StepView(
        saga_id=view.id,
        no=record.step,
        tool=record.tool or "",
        effect=Effect.READ_ONLY,
        scope=record.scope,
        state=StepState.STANDING if record.state == "succeeded" else StepState.ABSENT,
        kwargs=_kwargs(values, "kwargs."),
        intent_n=view.count,
        outcome_n=view.count,
        intent_at=record.at,
        outcome_at=record.at,
        answered=True,
        adapter=record.adapter,
    )
    _answer(step, record, values)
    step.landed = False


def _landed(step: StepView, record: r.Outcome | r.LateOutcome | r.Probed, values: Mapping[str, str]) -> None:
    """Take over a known landing: its result, and the compensation bound from it."""
    step.landed, step.next_at = True, None
    step.result, step.exact = values.get("result", step.result), record.exact
    if record.recipe is not None:
        step.recipe = record.recipe
    if record.bound:
        step.compensation = _kwargs(values, "compensation.")


def _answer(step: StepView, record: r.Outcome | r.LateOutcome, values: Mapping[str, str]) -> None:
    """Take over what an answer says about the effect."""
    if record.state == "succeeded":
        _landed(step, record, values)
    if record.error is not None:  # With a success: why its compensation could not be bound.
        step.error_type, step.error = record.error, values.get("error")


def _late_outcome(view: SagaView, record: r.LateOutcome, values: Mapping[str, str]) -> None:
    step = _step(view, record.step)
    news = record.state == "succeeded" and not step.landed
    if news and step.state in {StepState.COMPENSATED, StepState.COMPENSATING, StepState.COMPENSATION_FAILED}:
        # The compensation ran, or tried to, before there was an effect: what landed since needs one of its own.
        step.generation += 1
        step.compensation_attempts = 0
        step.state = StepState.STANDING
    elif news and step.state in {StepState.ACCEPTED, StepState.CONFLICTED}:
        pass
    else:
        state = _state_said(step, record.state)
        _move(step, f"late_{state}")
        # The record of a late failure does not say whether it was judged by the public table: claim no more than that.
        step.assumed = step.assumed or (state == "failed" and step.state is StepState.ABSENT)
    if news or not step.landed:
        _answer(step, record, values)
    if news:
        step.unwanted = view.ended
        step.assumed = False


def _probed(view: SagaView, record: r.Probed, values: Mapping[str, str]) -> None:
    step = _step(view, record.step)
    _move(step, record.answer)
    step.reason, step.next_at = record.reason, record.next_at
    step.unknowable += record.answer == "unknowable"
    if record.answer == "landed":
        _landed(step, record, values)


def _rollback_started(view: SagaView, record: r.RollbackStarted, _values: Mapping[str, str]) -> None:
    if record.scope and record.scope not in view.scopes:
        raise TransitionError(f"scope {record.scope} was not opened")
    view.rolling.add(record.scope)
    if record.scope == 0:
        view.cause = record.cause


def _compensation_intent(view: SagaView, record: r.CompensationIntent, values: Mapping[str, str]) -> None:
    step = _step(view, record.step)
    if record.attempt != step.compensation_attempts + 1:
        raise TransitionError(f"compensation attempt {record.attempt} follows {step.compensation_attempts}")
    if record.generation != step.generation:
        raise TransitionError(f"compensation of generation {record.generation}; the step is at {step.generation}")
    _move(step, "compensation_intent")
    step.compensation_attempts, step.compensation_at = record.attempt, record.at
    step.next_at = step.verified = None
    bound = _kwargs(values, "compensation.")
    if bound or step.compensation is None:
        step.compensation = bound


def _compensation_outcome(view: SagaView, record: r.CompensationOutcome, _values: Mapping[str, str]) -> None:
    step = _step(view, record.step)
    if record.attempt != step.compensation_attempts:
        raise TransitionError(
            f"outcome of attempt {record.attempt}; the compensation is at {step.compensation_attempts}"
        )
    _move(step, f"compensation_{record.state}")
    step.verified, step.reason, step.next_at = record.verified, record.reason, record.next_at
    step.unknowable += record.state == "in_doubt" and record.next_at is not None


def _suspended(view: SagaView, record: r.Suspended, _values: Mapping[str, str]) -> None:
    view.owner, view.expires_at, view.cause = None, record.expires_at, record.reason


def _claimed(view: SagaView, record: r.Claimed, _values: Mapping[str, str]) -> None:
    if record.epoch != view.epoch + 1:
        raise TransitionError(f"epoch {record.epoch} cannot follow epoch {view.epoch}")
    view.owner, view.epoch = record.owner, record.epoch
    view.expires_at = view.released_until = None
    for step in view.steps.values():
        step.lost_at = step.lost_at or record.at


def _released(view: SagaView, record: r.Released, _values: Mapping[str, str]) -> None:
    view.owner, view.released_until = None, record.next_at


def _abandoned(view: SagaView, record: r.Abandoned, _values: Mapping[str, str]) -> None:
    view.owner, view.cause = None, record.reason


def _settled(view: SagaView, record: r.Settled, values: Mapping[str, str]) -> None:
    step = _step(view, record.step)
    _move(step, record.verdict)
    step.settled_by, step.reason, step.next_at = record.by, f"settled by {record.by}: {record.verdict}", None
    if record.verdict == "happened":
        step.landed = True
        step.result = values.get("result", step.result)
        if record.bound:
            step.compensation = _kwargs(values, "compensation.")


def _waived(view: SagaView, record: r.Waived, _values: Mapping[str, str]) -> None:
    _step(view, record.step).waived = True


def _scope_opened(view: SagaView, record: r.ScopeOpened, _values: Mapping[str, str]) -> None:
    if record.scope != len(view.scopes) + 1 or (record.parent and record.parent not in view.scopes):
        raise TransitionError(f"scope {record.scope} under {record.parent} cannot follow")
    view.scopes[record.scope] = ScopeView(no=record.scope, parent=record.parent, name=record.name, tags=record.tags)


def _scope_ended(view: SagaView, record: r.ScopeEnded, _values: Mapping[str, str]) -> None:
    scope = view.scopes.get(record.scope)
    if scope is None or scope.outcome == "rolled_back":
        raise TransitionError(f"scope {record.scope} is not open")
    scope.outcome = record.outcome


def _replayed(view: SagaView, record: r.Replayed, _values: Mapping[str, str]) -> None:
    step = _step(view, record.step)
    step.replayed += 1
    step.answered = True


def _redacted(_view: SagaView, _record: r.Redacted, _values: Mapping[str, str]) -> None:
    """Nothing changes: what was removed from the payloads is the reader's concern."""


def _decided(view: SagaView, _record: r.Decided, _values: Mapping[str, str]) -> None:
    view.decisions += 1


def _saga_ended(view: SagaView, record: r.SagaEnded, _values: Mapping[str, str]) -> None:
    if record.outcome != view.state.value:
        raise TransitionError(f"the saga cannot end {record.outcome}: it would be {view.state.value}")
    view.owner = None
    view.ended_at = record.at
    if record.outcome == "committed":
        view.cause = ""  # Why it was suspended once says nothing about how it ended.


_HANDLERS: Final[dict[type, Callable[..., None]]] = {
    r.Decided: _decided,
    r.ApprovalRequested: gate.requested,
    r.ApprovalDecided: gate.decided,
    r.ApprovalConsumed: gate.consumed,
    r.Reserved: gate.reserved,
    r.OperatorAction: gate.acted,
    r.Intent: _intent,
    r.Outcome: _outcome,
    r.LateOutcome: _late_outcome,
    r.Probed: _probed,
    r.RollbackStarted: _rollback_started,
    r.CompensationIntent: _compensation_intent,
    r.CompensationOutcome: _compensation_outcome,
    r.Suspended: _suspended,
    r.Claimed: _claimed,
    r.Released: _released,
    r.Abandoned: _abandoned,
    r.Settled: _settled,
    r.Waived: _waived,
    r.ScopeOpened: _scope_opened,
    r.ScopeEnded: _scope_ended,
    r.Replayed: _replayed,
    r.Redacted: _redacted,
    r.Pruned: gate.pruned,
    r.SagaEnded: _saga_ended,
}
_KINDS: Final[dict[type, str]] = {
    record: str(record.__struct_config__.tag)  # type: ignore[attr-defined]
    for record in (r.SagaOpened, *_HANDLERS)
}
"""How the transition table spells the kinds."""
