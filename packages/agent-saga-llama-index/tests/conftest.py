"""Fixtures of the LlamaIndex adapter's tests: a shop in memory, and agents with scripted models."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

from llama_scripted import Maker
from llama_shop import Shop

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
    kit.close()


@pytest.fixture
def maker(kit):
    return Maker(kit)
