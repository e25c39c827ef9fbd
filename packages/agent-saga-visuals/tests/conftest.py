"""A log with every kind of saga, and a browser."""

import shutil

import pytest

from agent_saga.store.sqlite import SqliteLog
from pytest_agent_saga.conformance.sagas import everything


@pytest.fixture
def path(tmp_path):
    """A closed log that holds every kind of saga, the same bytes of records each time."""
    file = tmp_path / "log.db"
    store = everything(SqliteLog(file, create=True))
    store.close()
    return file


@pytest.fixture
def store(path):
    log = SqliteLog(path, create=False)
    yield log
    log.close()


@pytest.fixture(scope="session")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "these tests look at the pictures in a real browser: apt-get install chromium (as .ci/run does)"
    return found
