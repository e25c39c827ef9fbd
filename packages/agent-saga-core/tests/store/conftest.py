"""Fixtures of the store tests: both logs, and the helpers in `store_cases`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

from agent_saga.store.memory import MemoryLog
from agent_saga.store.sqlite import SqliteLog


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.db"


@pytest.fixture(params=["memory", "sqlite"])
def store(request, path):
    log = MemoryLog() if request.param == "memory" else SqliteLog(path, create=True)
    yield log
    log.close()
