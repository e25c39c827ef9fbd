"""Where the plan hands a step to a human, in which order a scope is undone, and what a report says of each step."""

import pytest
from machine_chains import Chain, compensating, in_doubt, standing

from agent_saga.machine.gate import undo_refused
from agent_saga.machine.plan import ATTEMPTS_HUMAN, needs_human, rollback_order
from agent_saga.machine.report import report_of, step_reason
from agent_saga.machine.row import row_of


@pytest.mark.parametrize(("times", "human"), [(ATTEMPTS_HUMAN - 1, False), (ATTEMPTS_HUMAN, True)])
def test_how_often_is_too_often(times, human):
    """A step is listed for a human after so many answers that tell nothing, or failed compensations, and not before."""
    asked = in_doubt(probe="find")
    asked.then(*(asked.fact("probed", step=1, answer="unknowable", next_at=9) for _ in range(times)))
    assert needs_human(asked.view.steps[1]) is human
    tried = standing()
    for attempt in range(1, times + 1):
        tried.then(tried.compensation(1, attempt), tried.compensated(1, attempt, "failed", next_at=9))
    assert needs_human(tried.view.steps[1]) is human


def test_a_step_that_nobody_tries_again_is_for_a_human():
    """Without a time at which a sweep looks again, whatever the number of attempts."""
    tried = compensating()
    tried.then(tried.compensated(1, 1, "failed"))
    assert needs_human(tried.view.steps[1])
    asked = in_doubt(probe="find")
    asked.then(asked.fact("probed", step=1, answer="unknowable"))
    assert needs_human(asked.view.steps[1])


def nested():
    """Step 1 in the saga, 2 in scope 1, 3 in scope 2 within it, 4 in the saga; 5 only reads."""
    chain = Chain()
    chain.then(chain.intent(1), chain.fact("scope_opened", scope=1, parent=0, name="a"))
    chain.then(chain.intent(2, scope=1), chain.fact("scope_opened", scope=2, parent=1, name="b"))
    chain.then(chain.intent(3, scope=2), chain.intent(4))
    return chain.then(chain.fact("outcome", {"result": "1"}, step=5, state="succeeded", tool="look"))


def test_a_scope_is_undone_with_those_within_it_and_backwards():
    """In reverse order of intents; what only reads is left out, and what lies around the scope too."""
    view = nested().view
    assert [[step.no for step in rollback_order(view, scope)] for scope in (0, 1, 2)] == [[4, 3, 2, 1], [3, 2], [3]]
    assert [step.no for step in rollback_order(view)] == [4, 3, 2, 1]


REASONS = {
    "no outcome was recorded": in_doubt,
    "Timeout": lambda: in_doubt().then(Chain().fact("outcome", step=1, state="in_doubt", error="Timeout")),
    "KeyError was taken to mean that nothing happened": lambda: in_doubt().then(
        Chain().fact("outcome", step=1, state="failed", error="KeyError", assumed=True)
    ),
    "the compensation was started and its outcome is not known": compensating,
    "its compensation could not be bound: no id": lambda: in_doubt().then(
        Chain().fact("outcome", {"error": '"no id"'}, step=1, state="succeeded", error="PathMissing")
    ),
    "settled by ann: accept": lambda: standing().then(Chain().fact("settled", step=1, verdict="accept", by="ann")),
    "": standing,
}


@pytest.mark.parametrize("reason", REASONS)
def test_why_a_step_stands_where_it_does(reason):
    """One line for people, for each state that needs one."""
    chain = REASONS[reason]()
    assert step_reason(chain.view.steps[1]) == reason


def test_an_assumed_absence_is_listed_and_not_verified():
    """A rollback over a step that was judged by the public table is clean, and is not called verified."""
    chain = in_doubt()
    chain.then(chain.fact("outcome", step=1, state="failed", error="KeyError", assumed=True))
    chain.then(chain.fact("rollback_started", cause="boom"), chain.fact("saga_ended", outcome="rolled_back"))
    report = report_of(chain.view)
    assert (report.clean, report.verified, [step.step_id[-1] for step in report.assumed_absent]) == (True, False, ["1"])
    assert (row_of(chain.view).sealed, report.cause) == (True, "boom")


def test_decisions_are_counted():
    """Each decision of the gate, and nothing else."""
    chain = in_doubt()
    chain.then(*(chain.fact("decision", tool="charge", decision="refuse", policy="p") for _ in range(2)))
    assert chain.view.decisions == 2


def test_what_a_refused_intent_took_is_given_back():
    """Its resources, its part of the budget and its approval: those of this attempt, and of no other."""
    chain = Chain()
    chain.then(chain.request(1, quorum=1), chain.intent(1, resources=["box", "shared"]))
    chain.then(chain.fact("approval_decided", approval=f"{chain.id}:a1", decision="approved", by="ann"))
    chain.then(chain.intent(2, resources=["shared"]), chain.reserve("3", 2), chain.consume(2, 1))
    undo_refused(chain.view, 2, (f"{chain.id}:a1",))
    gate = chain.view.gate
    assert gate.resources == {"box": {(1, 1)}, "shared": {(1, 1)}}
    assert (gate.reservations[2], gate.approvals[f"{chain.id}:a1"].state) == ([], "approved")
    undo_refused(chain.view, 1, ())
    assert gate.resources == {}
