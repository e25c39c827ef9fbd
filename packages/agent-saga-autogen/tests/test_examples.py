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
pytestmark = pytest.mark.slow


class Office:
    """A folder with the examples in it."""

    def __init__(self, folder):
        self.folder = folder
        for file in EXAMPLES.glob("*.py"):
            shutil.copy(file, folder)

    def run(self, *words, code=0):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name != "AGENT_SAGA_LOG"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def recover(self):
        return self.run("-m", "agent_saga", "recover", "--import", "event_tools.py")

    def world(self):
        """The database as text, and every page byte by byte."""
        connection = sqlite3.connect(self.folder / "event.db")
        dump = "\n".join(connection.iterdump())
        connection.close()
        return dump, {path.name: path.read_bytes() for path in (self.folder / "programme").iterdir()}


@pytest.fixture
def office(tmp_path):
    office = Office(tmp_path)
    office.run("-c", "import event_tools; event_tools.set_up()")
    (tmp_path / "programme" / "sunday.txt").write_text("an older page\n")
    return office


def test_the_last_step_fails(office):
    """The team says that all is arranged; the database and the pages are what they were, byte by byte."""
    before = office.world()
    out = office.run("-W", "error", "conference.py")
    assert "team:   All is arranged." in out
    assert "rolled back, clean: failed, and its error was swallowed: accept_talk" in out
    assert out.count("  compensated ") == 2
    assert office.world() == before


def test_killed_after_an_effect_and_recovered(office):
    """A run that is killed after an effect is recovered from the command line; recovering again does nothing."""
    before = office.world()
    office.run("conference.py", "--kill", code=-signal.SIGKILL)
    dump, pages = office.world()
    assert (dump != before[0], sorted(pages)) == (True, ["monday.txt", "sunday.txt"])
    assert "1 saga recovered; nothing is left" in office.recover()
    assert office.world() == before
    assert "0 sagas recovered" in office.recover()
    assert office.world() == before


def test_nothing_fails(office):
    """A run in which nothing fails keeps its three effects, and commits."""
    out = office.run("conference.py", "--ok")
    assert "committed" in out
    assert out.count("  kept ") == 3
    dump, pages = office.world()
    assert ("'accepted'" in dump, pages["monday.txt"]) == (True, b"10:00 Sagas, Blue room\n")


@pytest.mark.parametrize(("word", "rooms"), [("approve", "rooms: Hall\n"), ("reject", "rooms:\n")])
def test_one_process_asks_and_another_goes_on(office, word, rooms):
    """A booking waits for a person between two processes; answering once more changes nothing."""
    out = office.run("large_room.py", "ask")
    assert "book Hall for 900?" in out
    assert "saga: suspended\nrooms:\n" in out
    assert "0 sagas recovered" in office.recover()  # A saga that waits is left alone.
    for _ in range(2):
        out = office.run("large_room.py", word)
        assert "agent: Done." in out
        assert f"saga: committed\n{rooms}" in out


def test_asked_on_the_command_line(office):
    """The question can be answered on the log too; the first word counts."""
    office.run("large_room.py", "ask")
    listed = office.run("-m", "agent_saga", "approvals", "list")
    approval = next(word for word in listed.split() if word.endswith(":a1"))
    office.run("-m", "agent_saga", "approvals", "reject", approval, "--by", "ann")
    assert "rooms:\n" in office.run("large_room.py", "approve")
