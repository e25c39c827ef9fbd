"""The user's face of the simulator."""

import asyncio
import re
from pathlib import Path

import pytest

import agent_saga
from agent_saga.errors import InvariantViolation, UsageError
from agent_saga.testing.sim import prove, verify
from agent_saga.testing.sim.invariants import INVARIANTS
from agent_saga.testing.sim.twins import TWINS

GUARANTEES = Path(__file__).parents[4] / "docs" / "guarantees.md"


@pytest.mark.timeout(300)
def test_verify_says_what_it_did():
    """It runs in its own process, prints executions, invariants, verdict and bound, and catches every seeded bug."""
    said = []
    verified = agent_saga.verify_rollback_invariants_sync(2, say=said.append)
    assert verified.holds
    assert verified.caught == verified.twins >= len(INVARIANTS)
    assert verified.crash_points > 50
    for word in (f"{verified.executions:,} executions", f"{len(INVARIANTS)} invariants", "verdict", "bound"):
        assert word in said[0]


@pytest.mark.timeout(300)
def test_verify_is_awaitable():
    """The async twin gives the same numbers and leaves the caller's clock alone."""
    verified = asyncio.run(agent_saga.verify_rollback_invariants(1, say=None))
    assert verified.holds


def test_size_is_bounded():
    """A size that cannot be enumerated is refused."""
    with pytest.raises(UsageError):
        agent_saga.verify_rollback_invariants_sync(7)


def test_broken_invariant_is_raised():
    """A verdict that does not hold, and a simulator that fails, are errors and not results."""
    broken = (
        b'{"executions":1,"crash_points":1,"invariants":1,"twins":1,"caught":0,"holds":false,"seconds":1,"bound":"",'
        b'"text":"INV-01 ..."}'
    )
    with pytest.raises(InvariantViolation, match="INV-01"):
        verify._told(broken, b"", None)
    with pytest.raises(InvariantViolation, match="boom"):
        verify._told(b"", b"boom", None)


def test_guarantees_page_says_each_invariant():
    """docs/guarantees.md lists every invariant with its promise and its words, and no other."""
    rows = re.findall(r"^\| (INV-\d+) \| (\d) \| (.+?) \|", GUARANTEES.read_text("utf-8"), re.MULTILINE)
    assert rows == [(name, str(promise), text) for name, (promise, text) in INVARIANTS.items()]


def test_guarantees_page_names_each_seeded_bug():
    """docs/guarantees.md lists, for each invariant, the bugs that are planted for it, and no other."""
    rows = re.findall(r"^\| (INV-\d+) \| \d \| .+? \| (.+?) \|$", GUARANTEES.read_text("utf-8"), re.MULTILINE)
    for name, bugs in rows:
        assert sorted(bugs.split("; ")) == sorted(twin.bug for twin in TWINS if twin.invariant == name), name


def test_pages_claim_what_the_code_reaches():
    """The counts that the pages promise are those that the tiers are held to."""
    page = GUARANTEES.read_text("utf-8")
    for count in (prove.CI_POINTS_MIN, prove.MILLION):
        assert f"at least {count:,} distinct crash points" in page
    shown = (GUARANTEES.parent / "cli.md").read_text("utf-8")
    assert f"{len(INVARIANTS)} invariants" in shown
    assert f"seeded bugs: {len(TWINS)} of {len(TWINS)} caught" in shown
