"""The demo's world, which must count honestly: it is what the acts are judged by."""

from pathlib import Path

import pytest

from agent_saga.demo.world import DomainTaken, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.create(tmp_path / "world.db")


def test_a_key_that_was_seen_is_an_attempt_without_an_effect(world: World) -> None:
    """DEMO-W1: a second charge under one key changes nothing, answers as the first did, and is counted."""
    assert world.charge("ann", 100, "k") == world.charge("ann", 100, "k")
    assert [(attempt.tool, attempt.effect) for attempt in world.attempts()] == [("charge", True), ("charge", False)]
    assert world.standing("ann") == ["ch_1 paid 1.00"]


def test_without_a_key_each_attempt_has_an_effect(world: World) -> None:
    """DEMO-W2: a world that is given no key cannot tell a retry from a new call."""
    assert world.charge("ann", 100, None) != world.charge("ann", 100, None)
    assert len(world.standing("ann")) == 2


def test_a_refusal_is_an_attempt_without_an_effect(world: World) -> None:
    """DEMO-W3: what was refused is counted, and changes nothing."""
    with pytest.raises(DomainTaken, match="zoe"):
        world.register_domain("ann", "shop.example")
    assert [attempt.effect for attempt in world.attempts()] == [False]
    assert world.standing("ann") == []


def test_an_inverse_that_runs_twice_has_one_effect(world: World) -> None:
    """DEMO-W4: refunds, stops and releases of what is gone are counted, and change nothing."""
    charge, server = world.charge("ann", 100, "k"), world.launch_server("ann", "small", None)
    name = world.register_domain("ann", "ann.example")
    assert world.standing("ann") == ["ch_1 paid 1.00", "srv_1 running", "ann.example registered"]
    for _ in range(2):
        world.refund(charge, None)
        world.stop_server(server)
        world.release_domain(name)
    assert [attempt.effect for attempt in world.attempts()] == [True] * 6 + [False] * 3
    assert world.standing("ann") == []


def test_questions_are_no_attempts(world: World) -> None:
    """DEMO-W5: what only reads is not counted."""
    charge = world.charge("ann", 100, "k")
    assert (world.charge_of("k"), world.charge_of("other")) == (charge, None)
    assert (world.is_refunded(charge), world.is_stopped("srv_1"), world.is_free("shop.example")) == (False,) * 3
    assert len(world.attempts()) == 1


def test_the_answer_comes_after_the_effect(tmp_path: Path) -> None:
    """DEMO-W6: when the answer is still on its way, another client sees the effect: the hard place of Act III."""
    seen: list[list[str]] = []
    other = World.create(tmp_path / "world.db")
    world = World(other.path, before_answer=lambda: seen.append(other.standing("ann")))
    world.charge("ann", 100, "k")
    assert seen == [["ch_1 paid 1.00"]]
