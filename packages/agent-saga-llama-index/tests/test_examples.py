"""The examples, run as a user runs them: in processes, in a folder, with the real command line."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # Each process imports the framework, for seconds.


class Desk:
    """A folder with the examples in it."""

    def __init__(self, folder):
        self.folder = folder
        for file in EXAMPLES.glob("*.py"):
            shutil.copy(file, folder)

    def run(self, *words, code=0):
        environment = {name: value for name, value in os.environ.items() if name != "AGENT_SAGA_LOG"}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def recover(self):
        return self.run("-m", "agent_saga", "recover", "--import", "returns_tools.py")

    def world(self):
        """The database as text, and every note byte by byte."""
        connection = sqlite3.connect(self.folder / "desk.db")
        dump = "\n".join(connection.iterdump())
        connection.close()
        return dump, {path.name: path.read_bytes() for path in (self.folder / "notes").iterdir()}


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    desk.run("-c", "import returns_tools; returns_tools.set_up()")
    (tmp_path / "notes" / "2025-0042.txt").write_text("an older note\n")
    return desk


def test_the_last_step_fails(desk):
    """After a failed run the database and the notes are what they were, byte by byte."""
    before = desk.world()
    out = desk.run("-W", "error", "returns_desk.py")
    assert "rolled back, clean" in out
    assert out.count("  compensated ") == 2
    assert desk.world() == before


def test_killed_after_an_effect_and_recovered(desk):
    """A run that is killed after an effect is recovered from the command line; recovering again does nothing."""
    before = desk.world()
    desk.run("returns_desk.py", "--kill", code=-signal.SIGKILL)
    dump, notes = desk.world()
    assert (dump != before[0], sorted(notes)) == (True, ["2025-0042.txt", "2026-0001.txt"])
    assert "1 saga recovered; nothing is left" in desk.recover()
    assert desk.world() == before
    assert "0 sagas recovered" in desk.recover()
    assert desk.world() == before


def test_nothing_fails(desk):
    """A run in which nothing fails keeps its three effects, and commits."""
    out = desk.run("returns_desk.py", "--ok")
    assert "committed" in out
    assert out.count("  kept ") == 3
    dump, notes = desk.world()
    assert ("'closed'" in dump, notes["2026-0001.txt"]) == (True, b"12.50 EUR to Ada\n")


@pytest.mark.parametrize(("word", "balance"), [("yes", 9_900), ("no", 0)])
def test_one_process_asks_and_another_goes_on(desk, word, balance):
    """A refund waits for a person between two processes; answering once more changes nothing."""
    out = desk.run("large_return.py", "ask")
    assert "waits for: refund" in out
    assert "saga: suspended" in out
    assert "0 sagas recovered" in desk.recover()  # A saga that waits is left alone.
    for _ in range(2):
        out = desk.run("large_return.py", word)
        assert "agent: Done." in out
        assert f"saga: committed\nbalance: {balance}" in out


def test_asked_on_the_command_line(desk):
    """The question can be answered on the log too; the gate has the last word."""
    desk.run("large_return.py", "ask")
    listed = desk.run("-m", "agent_saga", "approvals", "list")
    approval = next(word for word in listed.split() if word.endswith(":a1"))
    desk.run("-m", "agent_saga", "approvals", "reject", approval, "--by", "ann")
    assert "balance: 0" in desk.run("large_return.py", "yes")
