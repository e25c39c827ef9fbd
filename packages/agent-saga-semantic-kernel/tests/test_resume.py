"""Runs that go on in other processes, after a pause and after a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # The framework takes seconds to import.


def program(folder, mode, code=0):
    done = subprocess.run(
        [sys.executable, HERE / "kernel_resume_program.py", folder, mode],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("killed", [False, True])
def test_paused_in_one_process_and_resumed_in_another(tmp_path, killed):
    """A paused run goes on in other processes, and one that is killed after its effect is resumed: each line once."""
    assert program(tmp_path, "ask").startswith("suspended This call was not made yet.")
    if killed:
        program(tmp_path, "die", code=-signal.SIGKILL)
    assert program(tmp_path, "go-on") == "committed {'line': 'b'} done"
    assert (tmp_path / "world").read_text().split() == ["a", "b"]


def test_begun_again_after_a_pause(tmp_path):
    """A run that is begun again from its first message is answered with what stands, and asks the same question."""
    program(tmp_path, "ask")
    assert program(tmp_path, "again").startswith("suspended This call was not made yet.")
    assert program(tmp_path, "go-on") == "committed {'line': 'b'} done"
    assert (tmp_path / "world").read_text().split() == ["a", "b"]
