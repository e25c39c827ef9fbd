"""Fixtures of the tests of the gate in the engine: kits on both logs, a clock that jumps, and child processes."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

import gate_world
from gate_checks import Child, JumpingClock, check

from agent_saga.errors import LogMissing
from agent_saga.runtime.clock import use_clock
from agent_saga.store.verify import verify


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(gate_world.PLACE, str(tmp_path / "world"))


@pytest.fixture
def clock():
    clock = JumpingClock()
    before = use_clock(clock)
    yield clock
    use_clock(before)


@pytest.fixture
def log(tmp_path):
    return str(tmp_path / "log.db")


LOGS = ["memory", "sqlite", *os.environ.get("AGENT_SAGA_TEST_LOGS", "").split()]
"""`AGENT_SAGA_TEST_LOGS=postgres` runs these tests on that log, too."""


@pytest.fixture(params=LOGS)
def make(request, tmp_path):
    """Make kits on one log; at the end the log must be undamaged."""
    places = {"memory": "memory:", "sqlite": str(tmp_path / "log.db")}
    with _made(places.get(request.param) or request.getfixturevalue("saga_postgres_url")) as make:
        yield make


@pytest.fixture
def make_sqlite(log):
    with _made(log) as make:
        yield make


@contextlib.contextmanager
def _made(url):
    kits = []

    def make(*policies, **options):
        kits.append(gate_world.make_kit(url, *policies, **options))
        return kits[-1]

    yield make
    for kit in kits:
        if url == "memory:":
            verify(kit.writer().store)
        kit.close()
    if url != "memory:" and ("://" in url or Path(url).exists()):
        with contextlib.suppress(LogMissing):  # Nothing was recorded.
            check(url)


@pytest.fixture
def start(log):
    """Start child processes on the log."""
    children = []

    def start(*words, **options):
        children.append(Child(words[0], log, *words[1:], **options))
        return children[-1]

    yield start
    for child in children:
        if child.process.poll() is None:
            child.kill()
        for pipe in (child.process.stdin, child.process.stdout):
            pipe.close()
