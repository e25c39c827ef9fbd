"""The example, run as a user runs it: in processes, in a folder, with the real command line."""

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


class Desk:
    """A folder with the example in it."""

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
            timeout=100,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def recover(self):
        return self.run("-m", "agent_saga", "recover", "--import", "order_tools.py")

    def world(self):
        """The database as text, and every invoice byte by byte."""
        connection = sqlite3.connect(self.folder / "orders.db")
        dump = "\n".join(connection.iterdump())
        connection.close()
        return dump, {path.name: path.read_bytes() for path in (self.folder / "invoices").iterdir()}


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    desk.run("-c", "import order_tools; order_tools.set_up()")
    (tmp_path / "invoices" / "2025-0042.txt").write_text("an older invoice\n")
    return desk


def test_the_fourth_step_fails(desk):
    """After a failed run the database and the invoices are what they were, byte by byte."""
    before = desk.world()
    out = desk.run("order_crew.py")
    assert "rolled back, clean" in out
    assert out.count("  compensated ") == 3
    assert desk.world() == before


def test_killed_in_the_third_step_and_recovered(desk):
    """A run that is killed after an effect is recovered from the command line; recovering again does nothing."""
    before = desk.world()
    desk.run("order_crew.py", "--kill", code=-signal.SIGKILL)
    dump, invoices = desk.world()
    assert (dump != before[0], sorted(invoices)) == (True, ["2025-0042.txt", "2026-0001.txt"])
    assert "1 saga recovered; nothing is left" in desk.recover()
    assert desk.world() == before
    assert "0 sagas recovered" in desk.recover()
    assert desk.world() == before


def test_nothing_fails(desk):
    """A run in which nothing fails keeps its four effects, and commits."""
    out = desk.run("order_crew.py", "--ok")
    assert "committed" in out
    assert out.count("  kept ") == 4
    dump, invoices = desk.world()
    assert ("'2026-0001'" in dump, invoices["2026-0001.txt"]) == (True, b"2 lamps for Ada: 58.00 EUR\n")
