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
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # The framework takes seconds to import.


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
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def recover(self):
        return self.run("-m", "agent_saga", "recover", "--import", "event_tools.py")

    def world(self):
        """The database as text, and every file byte by byte."""
        connection = sqlite3.connect(self.folder / "event.db")
        dump = "\n".join(connection.iterdump())
        connection.close()
        return dump, {path.name: path.read_bytes() for path in (self.folder / "badges").iterdir()}


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    desk.run("-c", "import event_tools; event_tools.set_up()")
    (tmp_path / "badges" / "Bob.txt").write_text("an older badge\n")
    return desk


def test_the_last_step_fails(desk):
    """After a run in which a call failed, the database and the files are what they were, byte by byte."""
    before = desk.world()
    out = desk.run("event_planner.py")
    assert "agent:  All is prepared." in out
    assert "rolled back, clean" in out
    assert out.count("  compensated ") == 3
    assert desk.world() == before


def test_killed_after_an_effect_and_recovered(desk):
    """A run that is killed after an effect is recovered from the command line; recovering again does nothing."""
    before = desk.world()
    desk.run("event_planner.py", "--kill", code=-signal.SIGKILL)
    dump, badges = desk.world()
    assert (dump != before[0], sorted(badges)) == (True, ["Ada.txt", "Bob.txt"])
    assert "1 saga recovered; nothing is left" in desk.recover()
    assert desk.world() == before
    assert "0 sagas recovered" in desk.recover()
    assert desk.world() == before


def test_nothing_fails(desk):
    """A run in which nothing fails keeps its four effects, and commits."""
    out = desk.run("event_planner.py", "--ok")
    assert "committed" in out
    assert out.count("  kept ") == 4
    dump, files = desk.world()
    assert ("'blue'" in dump, files["Ada.txt"]) == (True, b"Hello, I am Ada.\n")
    assert files["mail.log"] == b"come to the reading\n"


@pytest.mark.parametrize(("word", "meals"), [("approve", 60), ("reject", 4)])
def test_one_process_asks_and_another_goes_on(desk, word, meals):
    """An order waits for a person between two processes; answering once more changes nothing."""
    out = desk.run("large_order.py", "ask")
    assert "agent: This call was not made yet." in out
    assert "saga: suspended" in out
    assert "0 sagas recovered" in desk.recover()  # A saga that waits is left alone.
    for _ in range(2):
        out = desk.run("large_order.py", word)
        assert "agent: Done." in out
        assert f"saga: committed\nmeals: {meals}" in out


def test_asked_on_the_command_line(desk):
    """The question can be answered on the log too; the gate has the last word."""
    desk.run("large_order.py", "ask")
    listed = desk.run("-m", "agent_saga", "approvals", "list")
    approval = next(word for word in listed.split() if word.endswith(":a1"))
    desk.run("-m", "agent_saga", "approvals", "reject", approval, "--by", "ann")
    assert "meals: 4" in desk.run("large_order.py", "approve")
