"""Recovery as an operator runs it, in processes of its own that are killed, too. Rule ids: L-n."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from crash_lab import check_truth

from agent_saga.testing import CRASH_AT

HANDLERS = str(Path(__file__).with_name("crash_handlers.py"))
TRIP = {"mode": "sync", "fails": False}


@pytest.fixture
def agent_saga(lab):
    """Return a function that runs a command on a room's log."""

    def run(room, *words, crash_at=None):
        environment = {**os.environ, "CRASH_WORLD": str(room.world_path), "AGENT_SAGA_LOG": str(room.log_path)}
        if crash_at is not None:
            environment[CRASH_AT] = crash_at
        command = [sys.executable, "-m", "agent_saga", *words]
        return subprocess.run(command, env=environment, cwd=room.folder, capture_output=True, text=True, check=False)

    return run


def test_a_command_that_is_killed_is_run_again(lab, agent_saga):
    """L-1: `recover`, killed inside a compensation, finishes the next time; the time after that nothing happens."""
    room = lab.room()
    assert room.run("forward", kind="keyed", crash_at="after the effect on car", **TRIP) is None
    recover = ["recover", "--import", HANDLERS]
    assert agent_saga(room, *recover, crash_at="after the compensation of hotel").returncode == -signal.SIGKILL
    assert agent_saga(room, *recover).returncode == 0
    check_truth(room, clean=True)
    assert room.standing() == set()
    before = room.world(), room.log()
    assert agent_saga(room, *recover).returncode == 0
    assert before == (room.world(), room.log())


def test_the_next_line_leads_to_the_end(lab, agent_saga):
    """L-2: what needs a human comes with a command; with the evidence filled in, it and `recover` settle everything."""
    room = lab.room()
    assert room.run("forward", kind="plain", crash_at="after the effect on car", **TRIP) is None
    first = agent_saga(room, "recover", "--import", HANDLERS)
    assert first.returncode == 1, first
    assert room.standing() == {"car"}
    (line,) = [line.partition("next: ")[2] for line in first.stdout.splitlines() if "next: agent-saga settle" in line]
    words = [word.replace("what you saw", "car in the list").replace("VALUE", "car") for word in shlex.split(line)[1:]]
    assert agent_saga(room, *words).returncode == 0
    last = agent_saga(room, "recover", "--import", HANDLERS)
    assert last.returncode == 0, last
    check_truth(room, clean=True)
    assert room.standing() == set()


def test_without_its_handlers_a_recovery_says_so(lab, agent_saga):
    """L-3: forgotten `--import`: nothing is guessed, the message names the option, and the next run does the work."""
    room = lab.room()
    assert room.run("forward", kind="keyed", crash_at="after the effect on car", **TRIP) is None
    forgot = agent_saga(room, "recover")
    assert forgot.returncode == 1
    assert "--import" in forgot.stdout
    assert room.standing() == {"flight", "hotel", "car"}
    assert agent_saga(room, "recover", "--import", HANDLERS).returncode == 0
    check_truth(room, clean=True)
    assert room.standing() == set()
