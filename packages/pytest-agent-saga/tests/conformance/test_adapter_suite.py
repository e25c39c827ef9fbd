"""The adapter suite: passed by a correct adapter of a small real framework, failed by each mutant. Rule ids: CA-n."""

import pytest
from tiny_adapter import TinyDriver
from tiny_mutants import MUTANTS, driver_of

from pytest_agent_saga.conformance import AdapterSuite, examine


class TestTinyAdapter(AdapterSuite):
    """A correct adapter passes all."""

    def driver(self, folder):
        return TinyDriver()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
@pytest.mark.filterwarnings("ignore")  # A mutant may lose contexts, coroutines and scopes.
def test_mutants_are_killed(mutant):
    """CA-1: each wrong adapter fails the rule that is there for it."""
    driver = driver_of(mutant)

    class Mutated(AdapterSuite):
        def driver(self, folder):
            return driver()

    results = examine(Mutated, only=frozenset([MUTANTS[mutant]]), first=True)
    assert "failed" in {result.outcome for result in results}, f"{mutant.__name__} survives {MUTANTS[mutant]}"


def test_each_rule_has_a_mutant_or_says_why_not():
    """CA-2: a rule that no mutant fails may be empty."""
    without = {"AD-12", "AD-16", "AD-20"}  # Rules of the engine that adapters inherit: repair, timeout, lost answers.
    assert {rule.id for rule in AdapterSuite.rules().values()} - set(MUTANTS.values()) == without
