"""SIGKILL before and after every commit, effect and compensation, then recovery in other processes; the world is asked.

Rule ids: C-n. Every point of a run is found by counting, so a new commit or effect in the engine is covered at once.
"""

import random

import pytest
from crash_lab import check_truth, crashes_of, recover_for_good
from crash_program import KINDS

MODES = ("sync", "async", "threads", "async_parallel", "nested")
ALL = [(kind, mode, fails) for kind in KINDS for mode in MODES for fails in (True, False)]
QUICK = [
    ("keyed", "sync", True, 1),
    ("plain", "async", True, 3),
    ("keyed_verified", "threads", False, 3),
    ("keyed", "nested", False, 4),
]


def job_of(kind, mode, fails):
    return {"kind": kind, "mode": mode, "fails": fails}


@pytest.mark.parametrize(("kind", "mode", "fails", "every"), QUICK)
def test_killed_anywhere_and_recovered(lab, kind, mode, fails, every):
    """C-1: what stands is named; nothing is done or compensated twice; a second recovery changes nothing."""
    for room, _ in crashes_of(lab, "forward", every=every, **job_of(kind, mode, fails)):
        recover_for_good(room)
        check_truth(room, clean=KINDS[kind].clean)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "mode", "fails"), ALL)
def test_killed_anywhere_and_recovered_every_kind(lab, kind, mode, fails):
    """C-1, for every kind of tool, every way to run it, and both ends."""
    for room, _ in crashes_of(lab, "forward", **job_of(kind, mode, fails)):
        recover_for_good(room)
        check_truth(room, clean=KINDS[kind].clean)


@pytest.mark.parametrize("point", ["after the effect on car", "before the compensation of hotel"])
def test_recovery_killed_anywhere(lab, point):
    """C-2: a recovery may be killed at every point, too; the next one finishes."""
    start = lab.room()
    assert start.run("forward", crash_at=point, **job_of("keyed", "sync", fails=True)) is None
    for room, _ in crashes_of(lab, "recover", start=start):
        recover_for_good(room)
        check_truth(room, clean=True)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_recovery_killed_anywhere_after_every_crash(lab, kind):
    """C-2, after each crash of the forward path and of the rollback."""
    for start, _ in crashes_of(lab, "forward", **job_of(kind, "sync", fails=True)):
        for room, _ in crashes_of(lab, "recover", start=start):
            recover_for_good(room)
            check_truth(room, clean=KINDS[kind].clean)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_of_killed_recoveries(lab, kind):
    """C-3: recovery of recovery of recovery, each killed somewhere, until one gets through."""
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(25):
        room = lab.room()
        room.run("forward", crash_at=dice.randint(5, 40), **job_of(kind, dice.choice(MODES), fails=True))
        for _ in range(4):
            room.recover(crash_at=dice.randint(1, 12))
        recover_for_good(room)
        check_truth(room, clean=KINDS[kind].clean)
        room.discard()
