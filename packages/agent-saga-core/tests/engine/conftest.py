"""Fixtures of the engine tests: a kit on each log, and a world that counts what the tools did."""

import os
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

from engine_world import WORLD

from agent_saga import AgentKit
from agent_saga.runtime.clock import SystemClock, use_clock

LOGS = ["memory", "sqlite", *os.environ.get("AGENT_SAGA_TEST_LOGS", "").split()]
"""`AGENT_SAGA_TEST_LOGS=postgres` runs the engine's tests on that log, too."""


@pytest.fixture(params=LOGS)
def kit(request, tmp_path):
    places = {"memory": "memory:", "sqlite": tmp_path / "log.db"}
    place = places.get(request.param) or f"{request.getfixturevalue('saga_postgres_url')}?lease_ttl_s=30"
    made = AgentKit(place)
    yield made
    late_answers_settled()
    made.close()


@pytest.fixture
def mem():
    made = AgentKit("memory:")
    yield made
    late_answers_settled()
    made.close()


@pytest.fixture
def world():
    WORLD.clear()
    yield WORLD
    late_answers_settled()
    WORLD.clear()


def late_answers_settled():
    """Wait for answers that outlived their loop: their compensations belong to this test's world, not to the next."""
    for thread in threading.enumerate():
        if thread.name == "agent-saga-late":
            thread.join(30)
            assert not thread.is_alive(), "a late answer is not settled"


class Skipping(SystemClock):
    """A clock that stands still but when somebody sleeps."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def time_ns(self):
        return int(self.now * 1e9)

    def monotonic(self):
        return self.now


@pytest.fixture
def skipping(monkeypatch):
    clock = Skipping()
    before = use_clock(clock)
    monkeypatch.setattr("time.sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
    yield clock
    use_clock(before)
