"""Records that cannot follow are refused by the fold, each for its own reason; and what the plan says of odd steps."""

import pytest
from machine_chains import Chain, compensating, in_doubt, rolling_back, standing

from agent_saga.machine.fold import amend
from agent_saga.machine.gate import facts_of
from agent_saga.machine.plan import Action, needs_human, next_action
from agent_saga.machine.report import bucket_of, report_of
from agent_saga.machine.states import (
    SAGA_TRANSITIONS,
    STEP_TRANSITIONS,
    SagaState,
    StepState,
    TransitionError,
    next_saga_state,
    next_step_state,
)
from agent_saga.model.records import Recipe


def asked():
    chain = Chain()
    return chain.then(chain.intent(), chain.request(quorum=1))


def halted():
    chain = Chain()
    return chain.then(chain.fact("operator_action", action="halt", scope="*", by="ann"))


REFUSED = {
    "a step that leaves a number out": (Chain, lambda c: c.intent(2)),
    "a first attempt that is not the first": (Chain, lambda c: c.intent(1, attempt=2)),
    "an attempt that leaves one out": (in_doubt, lambda c: c.intent(1, attempt=3)),
    "an attempt that is there already": (in_doubt, lambda c: c.intent(1, attempt=1)),
    "an attempt after a landing": (standing, lambda c: c.intent(1, attempt=2)),
    "an attempt under another key": (
        in_doubt,
        lambda c: c.fact(
            "intent", step=1, attempt=2, tool="charge", version=1, effect="compensable", key="another", recipe=None
        ),
    ),
    "an outcome without an intent": (Chain, lambda c: c.outcome(1)),
    "an outcome of another attempt": (in_doubt, lambda c: c.outcome(1, attempt=2)),
    "an outcome after the outcome": (standing, lambda c: c.fact("outcome", step=1, state="odd", error="E")),
    "a read that leaves a number out": (Chain, lambda c: c.fact("outcome", step=2, state="succeeded", tool="look")),
    "an answer of a probe to a standing step": (standing, lambda c: c.fact("probed", step=1, answer="not_landed")),
    "a rollback of no scope": (Chain, lambda c: c.fact("rollback_started", scope=3)),
    "a compensation attempt that leaves one out": (rolling_back, lambda c: c.compensation(attempt=2)),
    "a compensation of another generation": (
        rolling_back,
        lambda c: c.fact(
            "compensation_intent", step=1, compensator="refund", version=1, key="k", attempt=1, generation=2
        ),
    ),
    "an outcome of another compensation attempt": (compensating, lambda c: c.compensated(attempt=2)),
    "an outcome of no compensation": (rolling_back, lambda c: c.compensated(attempt=0)),
    "an epoch that leaves one out": (Chain, lambda c: c.fact("claimed", owner="b", epoch=3)),
    "the epoch that it has": (Chain, lambda c: c.fact("claimed", owner="b", epoch=1)),
    "a scope that leaves a number out": (Chain, lambda c: c.fact("scope_opened", scope=2, parent=0, name="s")),
    "a scope under no scope": (Chain, lambda c: c.fact("scope_opened", scope=1, parent=4, name="s")),
    "an end of no scope": (Chain, lambda c: c.fact("scope_ended", scope=1, outcome="committed")),
    "an end with another outcome": (Chain, lambda c: c.fact("saga_ended", outcome="rolled_back")),
    "a commit of a rollback": (rolling_back, lambda c: c.fact("saga_ended", outcome="committed")),
    "an intent in a rollback": (rolling_back, lambda c: c.intent(2)),
    "a second rollback": (rolling_back, lambda c: c.fact("rollback_started", cause="y")),
    "a waiver of no step": (Chain, lambda c: c.fact("waived", step=1)),
    "a replay of no step": (Chain, lambda c: c.fact("replayed", step=1)),
    "a word about a compensated step": (
        lambda: compensating().then(compensating().compensated()),
        lambda c: c.fact("settled", step=1, verdict="happened", by="ann"),
    ),
    "a request that is there already": (asked, lambda c: c.request()),
    "a word on no request": (Chain, lambda c: c.fact("approval_decided", approval="x", decision="approved", by="a")),
    "a use of what was not approved": (asked, lambda c: c.consume()),
    "an amount that is none": (in_doubt, lambda c: c.reserve("much")),
    "an amount of no step": (Chain, lambda c: c.reserve("1")),
    "a lift of nothing": (Chain, lambda c: c.fact("operator_action", action="lift", scope="*", by="ann")),
    "an action after an action": (halted, lambda c: c.fact("operator_action", action="drain", scope="*", by="a")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_follow_is_refused(name):
    """The fold takes no record that the ones before it do not allow, and says why."""
    make, bad = REFUSED[name]
    chain = make()
    with pytest.raises(TransitionError) as caught:
        chain.then(bad(chain))
    assert len(str(caught.value)) > 10


KINDS = sorted({kind for _, kind in SAGA_TRANSITIONS})
EVENTS = sorted({event for _, event in STEP_TRANSITIONS})


def test_nothing_follows_but_what_the_tables_say():
    """Every other pair of state and kind, or state and event, is an error that names both."""
    for state in SagaState:
        for kind in [*KINDS, "odd"]:
            if (state, kind) not in SAGA_TRANSITIONS:
                with pytest.raises(TransitionError, match=f"{kind}.*{state.value}"):
                    next_saga_state(state, kind)
    for step in StepState:
        for event in [*EVENTS, "odd"]:
            if (step, event) not in STEP_TRANSITIONS:
                with pytest.raises(TransitionError, match=f"{event}|{step.value}"):
                    next_step_state(step, event)


def test_an_ended_saga_takes_no_steps_and_no_new_end():
    """After the end only facts about its steps follow; what has ended committed does not roll back."""
    ended = {SagaState.COMMITTED, SagaState.ROLLED_BACK}
    for state in ended:
        for kind in ("intent", "scope_opened", "rollback_started", "suspended", "abandoned", "replayed", "reserved"):
            assert (state, kind) not in SAGA_TRANSITIONS
        assert SAGA_TRANSITIONS[state, "saga_ended"] is state
    assert {to for (state, _), to in SAGA_TRANSITIONS.items() if state in ended} == ended


def test_known_landings_are_lost_by_no_answer():
    """A step that stands stays so, whatever a call, a late answer or an owner says; only compensation ends it."""
    moves = {event: to for (state, event), to in STEP_TRANSITIONS.items() if state is StepState.STANDING}
    assert {event for event, to in moves.items() if to is not StepState.STANDING} == {
        "compensation_intent",
        "did-not-happen",
        "compensated-by-hand",
        "accept",
    }


PLANS = [
    ({}, {}, Action.HUMAN, True),
    ({"probe": "p"}, {}, Action.PROBE, False),
    ({"probe": "p"}, {"probed": True}, Action.HUMAN, False),
    ({"recipe": Recipe(name="r", version=1, bind={}, safe_if_absent=True)}, {}, Action.COMPENSATE, False),
]


@pytest.mark.parametrize(("fields", "asked_for", "action", "human"), PLANS)
def test_what_the_plan_does_with_a_step_in_doubt(fields, asked_for, action, human):
    """Ask first, then compensate what is safe without an effect, else leave it to a human."""
    step = in_doubt(**{"recipe": None, **fields}).view.steps[1]
    assert (next_action(step, **asked_for), needs_human(step)) == (action, human)


def test_what_the_plan_does_with_other_steps():
    """Nothing about reads and what is settled; compensate what stands; a conflict is for a human."""
    chain = Chain()
    chain.then(chain.fact("outcome", {"result": "1"}, step=1, state="succeeded", tool="look"))
    assert next_action(chain.view.steps[1]) is Action.NONE
    stands = standing()
    assert next_action(stands.view.steps[1]) is Action.COMPENSATE
    stands.view.steps[1].compensation = None
    assert (next_action(stands.view.steps[1]), needs_human(stands.view.steps[1])) == (Action.ORPHAN, True)
    for state, action, bucket in (
        ("conflict", Action.HUMAN, "conflicted"),
        ("failed", Action.COMPENSATE, "failed"),
        ("compensated", Action.NONE, "compensated"),
        ("already_done", Action.NONE, "compensated"),
    ):
        chain = compensating()
        chain.then(chain.compensated(state=state))
        step = chain.view.steps[1]
        assert (next_action(step), bucket_of(chain.view, step)) == (action, bucket)


def test_an_accepted_effect_is_kept():
    """A human said that it stays: nothing is left to do, and the report keeps it."""
    chain = in_doubt()
    chain.then(chain.fact("rollback_started", cause="x"), chain.fact("saga_ended", outcome="rolled_back"))
    other = Chain(2)
    record, _, values = other.fact("settled", step=1, verdict="accept", by="ann")
    amend(chain.view, record, values)
    step = chain.view.steps[1]
    assert (next_action(step), bucket_of(chain.view, step)) == (Action.NONE, "kept")
    assert [kept.step_id for kept in report_of(chain.view).kept] == [step.id]


def test_a_saga_that_met_no_gate_gives_no_facts():
    """Nothing was spent, taken, asked or halted."""
    assert facts_of(standing().view, sealed=False) == frozenset()


def test_a_landing_that_a_human_knew_is_no_news():
    """After `happened` the late answer of the same call changes nothing: no new generation, nothing unwanted."""
    chain = in_doubt()
    chain.then(chain.fact("rollback_started", cause="x"), chain.fact("saga_ended", outcome="rolled_back"))
    human, late = Chain(2), Chain(3)
    told = human.fact("settled", {"result": '{"id":"ch_1"}'}, step=1, verdict="happened", by="ann")
    came = late.fact("late_outcome", {"result": '{"id":"ch_1"}'}, step=1, state="succeeded")
    amend(chain.view, told[0], told[2])
    step = chain.view.steps[1]
    known = (step.landed, step.state, step.result, step.unwanted, step.generation)
    assert known == (True, StepState.STANDING, '{"id":"ch_1"}', False, 1)
    amend(chain.view, came[0], came[2])
    assert known == (step.landed, step.state, step.result, step.unwanted, step.generation)
