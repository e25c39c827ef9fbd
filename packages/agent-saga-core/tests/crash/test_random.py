"""Death and Ctrl-C at random moments, several processes on one file. Every test prints its seed. Rule ids: X-n."""

import random

import pytest
from crash_lab import check_truth, recover_for_good

ROUNDS = pytest.mark.parametrize(
    "rounds", [6, pytest.param(60, marks=[pytest.mark.exhaustive, pytest.mark.timeout(900)])]
)


@pytest.fixture
def dice():
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    return random.Random(seed)


@ROUNDS
def test_four_processes_killed_at_random(lab, dice, rounds):
    """X-1: four processes with six sagas each on one file, killed by a timer; recoverers are killed, too."""
    for _ in range(rounds):
        room = lab.room()
        deaths = [dice.uniform(0.002, 0.08) for _ in range(4)]
        crowds = [
            room.start("crowd", kind="keyed", trip=f"{number}-", sagas=6, dies_after_s=death)
            for number, death in enumerate(deaths)
        ]
        recoverers = [room.start("recover", dies_after_s=dice.uniform(0.01, 0.08)) for _ in range(2)]
        for running in crowds + recoverers:
            running.wait()
        recover_for_good(room)
        check_truth(room, clean=True)
        room.discard()


@pytest.mark.parametrize("mode", ["sync", "async", "threads"])
@pytest.mark.parametrize("rounds", [15, pytest.param(300, marks=[pytest.mark.exhaustive, pytest.mark.timeout(900)])])
def test_ctrl_c_at_a_random_moment(lab, dice, mode, rounds):
    """X-2: the log is whole, and recovery finishes what the interrupt left."""
    for _ in range(rounds):
        room = lab.room()
        told = room.run("forward", kind="keyed", mode=mode, fails=True, ctrl_c_after_s=dice.uniform(0.0005, 0.03))
        assert told["ended"] in {"Planned", "KeyboardInterrupt"}, told
        recover_for_good(room)
        check_truth(room, clean=True)
        room.discard()
