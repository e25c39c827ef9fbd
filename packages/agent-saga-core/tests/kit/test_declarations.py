"""What a declaration keeps of what it is given."""

import pytest

from agent_saga import AgentKit, Landed
from agent_saga.model.effects import Effect


def probe(key, kwargs):
    return Landed()


def do(what: str) -> str:
    return what


@pytest.mark.parametrize("given", [probe, "some:probe", None])
def test_a_probe_leaves_the_effect_class_alone(given):
    """However the probe is given, the tool has the effect class that was declared."""
    kit = AgentKit("memory:")
    assert kit.declare(f"do-{given}", effect="reversible", probe=given, fn=do).effect is Effect.REVERSIBLE
