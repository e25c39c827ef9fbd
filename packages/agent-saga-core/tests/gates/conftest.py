"""Fixtures of the gate tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers in gate_cases.py are no package.

from gate_cases import MovedClock

from agent_saga.runtime.clock import use_clock


@pytest.fixture
def moved_clock():
    clock = MovedClock()
    before = use_clock(clock)
    yield clock
    use_clock(before)
