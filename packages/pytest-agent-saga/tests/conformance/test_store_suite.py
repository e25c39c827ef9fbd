"""The log suite: failed by each mutant. The real logs pass it in the tests of agent-saga-core. Rule ids: CS-n."""

import pytest
from store_mutants import MUTANTS, Persisting

from pytest_agent_saga.conformance import LogStoreSuite, examine


def suite_of(log, *, persists):
    class Mutated(LogStoreSuite):
        capabilities = frozenset({"persists"}) if persists else frozenset()
        missing = {"processes": "in memory"} | ({} if persists else {"persists": "in memory"})

        def open(self, folder):
            return log(folder) if persists else log()

    return Mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants_are_killed(mutant):
    """CS-1: each wrong log fails the suite."""
    results = examine(suite_of(mutant, persists=issubclass(mutant, Persisting)), first=True)
    assert "failed" in {result.outcome for result in results}, f"{mutant.__name__} survives"


def test_what_the_mutants_are_made_of_passes():
    """CS-2: it is the mutation that kills them."""
    results = examine(suite_of(Persisting, persists=True))
    assert {result.outcome for result in results} == {"passed", "gap"}
    assert {result.rule for result in results if result.outcome == "gap"} == {"P-103", "P-104"}
