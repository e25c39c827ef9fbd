"""Death and Ctrl-C at random moments, several processes on one file. Every test prints its seed. Rule ids: X-n."""

import random

import pytest
from crash_lab import check_truth, recover_for_good
from crash_storm import Storm


@pytest.fixture
def dice():
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    return random.Random(seed)


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [40, pytest.param(500, marks=[pytest.mark.exhaustive, pytest.mark.timeout(7200)])])
def test_processes_killed_at_random_instants(lab, rounds):
    """X-1: SIGKILL for workers (async, sync, threads) and recoverers on one file: the log and the world agree.

    `scripts/kill` does thousands.
    """
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    storm = Storm(lab, seed)
    for number in range(rounds):
        print("round", number)
        storm.round(number)
    print(storm.told())
    assert storm.counts["killed"] > 2 * rounds
    assert storm.counts["sagas that another process finished"] > rounds


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
