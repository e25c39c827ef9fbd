"""Fixtures of the CrewAI adapter's tests: a shop in memory, and crews with scripted models."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

from crewai_shop import Shop

from agent_saga import AgentKit
from agent_saga.spi import read_records


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
    kit.close()


@pytest.fixture
def records(kit):
    """The records of one kind that are in the log now."""
    return lambda kind: [one for one in read_records(kit.log) if one["kind"] == kind]
