"""What the tests of `prove_rollback` share."""

from agent_saga import NotLanded
from agent_saga.testing import prove_rollback


def prove(shop, scenario, **options):
    return prove_rollback(scenario, snapshot=shop.snapshot, reset=shop.reset, **options)


def deny(key, kwargs):
    """A probe that lies."""
    return NotLanded()
