"""Fixtures of the AutoGen adapter's tests: a shop in memory, and agents with scripted models."""

import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

from autogen_scripted import Maker
from autogen_shop import Shop

from agent_saga import AgentKit


@pytest.fixture
def shop():
    shop = Shop()
    with shop.open():
        yield shop


@pytest.fixture
def kit(tmp_path, shop):
    kit = AgentKit(tmp_path / "agent-saga.db")
    shop.declare(kit)
    yield kit
    for thread in threading.enumerate():
        if thread.name == "agent-saga-late":  # It records what the tests have seen in the world.
            thread.join(10)
    kit.close()


@pytest.fixture
def maker(kit):
    return Maker(kit)
