"""The crash tests themselves are tested: each seeded bug must be caught. Rule ids: M-n."""

import pytest
from crash_lab import Lab, check_truth, crashes_of, recover_for_good
from crash_mutants import MUTANTS
from crash_nursery import Nursery
from crash_program import KINDS

SHOWS_IN = {"compensates_again_what_may_have_succeeded": "plain", "doubt_is_taken_for_absence": "idempotent"}


@pytest.fixture
def mutant_lab(tmp_path):
    with Nursery(quiet=False) as nursery:
        yield Lab(nursery, tmp_path)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_matrix_catches(mutant_lab, mutant):
    """M-1: an engine with this bug does not get through the matrix of C-1."""
    kind = SHOWS_IN.get(mutant, "keyed")
    with pytest.raises(AssertionError):
        for room, _ in crashes_of(mutant_lab, "forward", kind=kind, mode="sync", fails=True, mutant=mutant):
            recover_for_good(room, mutant=mutant)
            check_truth(room, clean=KINDS[kind].clean)


def test_a_recoverer_that_kills_by_word_is_caught(mutant_lab):
    """M-2: a recoverer that takes the living for dead does not leave the log as it was."""
    room = mutant_lab.room()
    room.start("forward", kind="keyed", mode="sync", fails=False, stop_at=["after the effect on hotel"]).stopped()
    before = room.world(), room.log()
    room.recover(mutant="takes_the_living_for_dead")
    assert before != (room.world(), room.log())
