"""The machine that plays with a log notices logs that are wrong in one way each. Rule ids: SM-n."""

import pytest
import store_mutants as wrong
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from pytest_agent_saga.conformance.store_machine import LogMachine

ENOUGH = settings(
    max_examples=300,
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
@pytest.mark.parametrize(
    "mutant",
    [
        *(wrong.IgnoresTheEpoch, wrong.IgnoresTheCount, wrong.AppendsTwice, wrong.LosesTheTail, wrong.Reorders),
        *(wrong.ForgetsFacts, wrong.KeepsFacts, wrong.ForgetsFactsOfAmendments, wrong.RequiresNothing),
        *(wrong.RefusesWithFacts, wrong.AllOrNothing, wrong.GivesKeysTwice, wrong.TakesAnyIncarnation),
        *(wrong.NumbersLeavesByItem, wrong.LeavesAmendedRows, wrong.AmendsUnseen),
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_a_wrong_log_is_noticed(mutant):
    """SM-1: some sequence of items, crashes and restarts shows what is wrong."""

    class Machine(LogMachine):
        def open_log(self, folder):
            log = mutant()
            if not hasattr(self, "shared"):
                self.shared = log
            log._state, log._lock = self.shared._state, self.shared._lock
            return log

    with pytest.raises(Exception) as caught:
        run_state_machine_as_test(Machine, settings=ENOUGH)
    assert not isinstance(caught.value, pytest.skip.Exception)
