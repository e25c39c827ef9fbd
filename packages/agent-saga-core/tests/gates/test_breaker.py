"""Circuit breaker: failures in a row stop new calls for a while."""

import pytest
from gate_cases import Facts, allowed, asked, call, decide, refused, step

from agent_saga.errors import DeclarationError
from agent_saga.gates import CircuitBreaker


def breaker(**options):
    return CircuitBreaker(**{"tool": "pay", "failures": 3, "open_for_s": 30, **options})


def failed(no, **options):
    return step(no, state="absent", error="TimeoutError", result=None, **options)


def test_failures_in_a_row_open_the_circuit(moved_clock):
    """GATE: after so many failures calls are refused, and pass again when the tool was left alone for a while."""
    rule, saga = breaker(), Facts()
    for no in (1, 2):
        saga.known.append(failed(no))
        allowed(decide(rule, call(), saga))
    saga.known.append(failed(3))
    assert "failed 3 times" in refused(decide(rule, call(), saga))
    moved_clock.now_s += 29
    assert "1 s" in refused(decide(rule, call(), saga))
    moved_clock.now_s += 1
    allowed(decide(rule, call(), saga))
    saga.known.append(failed(4))
    refused(decide(rule, call(), saga))


def test_a_success_closes_it(moved_clock):
    """GATE: what counts is failures since the last success."""
    rule, saga = breaker(), Facts(known=[failed(1), failed(2), step(3), failed(4), failed(5)])
    allowed(decide(rule, call(), saga))


def test_asking_again_counts_nothing_twice(moved_clock):
    """GATE: a decision changes nothing, so a preview or a resume cannot open the circuit."""
    rule, saga = breaker(), Facts(known=[failed(1), failed(2)])
    for _ in range(10):
        allowed(decide(rule, call(), saga))


@pytest.mark.parametrize(
    "known",
    [
        step(1, state="absent", error=None, result=None),
        step(1, state="in_doubt", error=None, result=None),
        step(1, state="absent", error="CancelledError", result=None),
        step(1, state="in_doubt", error="KeyboardInterrupt", result=None),
        step(1, state="absent", error="ValueError", result=None, tool="other"),
        step(1, state="compensated", error="TimeoutError", result="ok"),
    ],
    ids=["refused by the log", "running", "cancelled", "interrupted", "another tool", "succeeded at last"],
)
def test_what_is_no_failure_of_the_tool_does_not_count(moved_clock, known):
    """GATE: refusals, running and cancelled calls and other tools open nothing."""
    allowed(decide(breaker(failures=1), call(), Facts(known=[known])))


@pytest.mark.parametrize("state", ["absent", "in_doubt", "compensated", "compensation_failed", "conflicted"])
def test_a_failure_counts_wherever_its_step_stands_by_now(moved_clock, state):
    """GATE: a call that raised has failed, also when its saga was rolled back since."""
    refused(decide(breaker(failures=1), call(), Facts(known=[step(1, state=state, error="HTTPError", result=None)])))


def test_failures_of_several_sagas_count_together(moved_clock):
    """GATE: a saga's last failure is seen although that saga never asks again."""
    rule = breaker()
    sagas = [Facts(id=f"saga-{number}") for number in range(3)]
    for saga in sagas:
        allowed(decide(rule, call(), saga))
        saga.known.append(failed(1, saga=saga.id))
        saga.report = "rolled back"
    refused(decide(rule, call(), Facts(id="next")))


def test_sagas_that_ended_are_let_go(moved_clock):
    """GATE: memory is bounded: ended sagas are forgotten, and at most 64 are followed."""
    rule = breaker()
    for number in range(200):
        decide(rule, call(), Facts(id=f"saga-{number}", report="done" if number % 2 else None))
    assert len(rule.memory._watched) <= 64


def test_each_tool_has_its_own_circuit(moved_clock):
    """GATE: a failing tool does not stop the others that a rule is about."""
    rule, saga = breaker(tool=("pay", "refund"), failures=1), Facts(known=[failed(1)])
    refused(decide(rule, call("pay"), saga))
    allowed(decide(rule, call("refund"), saga))
    allowed(decide(rule, call("other"), saga))
    assert "failed 1 times" in asked(decide(breaker(failures=1, then="ask"), call(), saga)).reason


@pytest.mark.parametrize("options", [{"failures": 0}, {"failures": 1.5}, {"open_for_s": 0}, {"then": "x"}])
def test_a_breaker_that_cannot_work_is_refused_where_it_is_written(options):
    """GATE: a breaker is checked when it is made."""
    with pytest.raises(DeclarationError):
        breaker(**options)
