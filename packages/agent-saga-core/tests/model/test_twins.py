"""A suite that cannot fail proves nothing: seeded bugs, and the invariants that must notice them."""

import pytest

from agent_saga.testing.sim.crashes import Found
from agent_saga.testing.sim.invariants import INVARIANTS
from agent_saga.testing.sim.prove import replay, shrunk
from agent_saga.testing.sim.twins import TWINS, hunt


@pytest.mark.parametrize("twin", TWINS, ids=[f"{twin.invariant} {twin.bug}" for twin in TWINS])
def test_twin_is_caught(twin):
    """A seeded bug is caught by the invariant that names it, and without the bug nothing is found there."""
    assert twin.invariant in {found.invariant for found in hunt(twin)}
    if not twin.where.startswith("schedule:"):
        assert not hunt(twin, planted=False)


def test_every_invariant_has_a_twin():
    """No invariant goes without a seeded bug."""
    assert {twin.invariant for twin in TWINS} == set(INVARIANTS)


def test_counterexample_is_shrunk_and_replayed():
    """What is found is made smaller, says what happened in a few lines, and can be played again from its token."""
    twin = next(twin for twin in TWINS if twin.invariant == "INV-14")
    larger = Found("INV-14", "", "keyed:ok:ok,idem:ok:once,keyed:ok:ok,probe:fail:ok/commit/catch", (0, 0))
    with twin.plant():
        found = shrunk(larger)
        assert found.invariant == "INV-14"
        assert len(found.scenario) <= len(larger.scenario)
        assert found.trace[-1].endswith(found.message)
        assert replay(found.token) == found.trace
