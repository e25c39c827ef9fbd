"""Every order in which small sagas, siblings, owners and recoverers can run, on the real engine."""

from pathlib import Path

import pytest

from agent_saga.testing.sim import prove
from agent_saga.testing.sim.schedules import FAMILIES, Player, prefixes, random_schedule

PAGE = Path(__file__).parents[4] / "docs" / "guarantees.md"
SMALL = ["siblings-retrying", "cancelled", "interrupted", "approved-beside", "quarantined"]


def printed():
    """The families and counts of the page's figures."""
    _, _, figures = PAGE.read_text("utf-8").partition("## Figures")
    return {" ".join(line.split()[:2]) for line in figures.partition("## ")[0].splitlines() if line.startswith("  ")}


@pytest.mark.parametrize("name", ["one-key", "killed-beside", *SMALL])
def test_small_family_holds(name):
    """Every schedule of a small family keeps the promises."""
    covered = Player(FAMILIES[name]).every()
    assert not covered.found, covered.found
    assert covered.runs > 10


@pytest.mark.parametrize("name", FAMILIES)
def test_drawn_schedule_holds(name):
    """Some schedules of each family, drawn by a seed, keep the promises."""
    for seed in range(8):
        player, decisions = random_schedule(FAMILIES[name], f"{name} {seed}")  # A broken promise is raised.
        assert decisions
        assert player.covered.runs == 1


def test_same_decisions_same_run():
    """A run is determined by its decisions."""
    player, decisions = random_schedule(FAMILIES["paused-owner-3"], "again")
    family = FAMILIES["paused-owner-3"]
    assert Player(family).replay(tuple(decisions)) == Player(family).replay(tuple(decisions))
    assert player.covered.runs == 1


def test_prefixes_share_the_tree():
    """The beginnings that workers share give each schedule once."""
    family = FAMILIES["one-key"]
    whole = Player(family).every().runs
    assert sum(Player(family).every(prefix).runs for prefix in prefixes(family, 2)) == whole


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(1500)
def test_all_schedules_hold(capsys):
    """All interleavings of 2 sagas x 8 operations and 3 x 4, and every schedule of the other families."""
    proof = prove.all_schedules()
    with capsys.disabled():
        print("\n" + proof.format_text())
    assert proof.holds, proof.format_text()
    assert proof.schedules["two-sagas-one-process"].runs == 12_870
    assert proof.schedules["two-sagas-two-processes"].runs == 12_870
    assert proof.schedules["three-sagas"].runs == 34_650
    assert {f"{name} {covered.runs:,}" for name, covered in proof.schedules.items()} <= printed()
