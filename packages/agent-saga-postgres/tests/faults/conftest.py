"""What the fault tests share: a world, a server that may be killed, and child processes."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

import fault_world

from pytest_agent_saga.postgres import PostgresServer


@pytest.fixture(autouse=True)
def world(tmp_path, monkeypatch):
    monkeypatch.setenv(fault_world.PLACE, str(tmp_path / "world"))
    return fault_world


@pytest.fixture(scope="session")
def mortal():
    """A server that these tests kill."""
    with PostgresServer.started() as server:
        yield server


@pytest.fixture
def mortal_url(mortal):
    url = mortal.database()
    yield url
    mortal.drop(url)


class Child:
    """A process of `fault_child`."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).parent / "fault_child.py"), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def heard(self):
        return self.process.stdout.readline().split()

    def tell(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def start():
    children = []

    def start(*words):
        children.append(Child(*words))
        return children[-1]

    yield start
    for child in children:
        child.end()
