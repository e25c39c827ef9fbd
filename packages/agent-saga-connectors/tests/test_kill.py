"""Killed at any point, a saga is finished by `agent-saga recover`, and the folder is as it was."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import world

HERE = Path(__file__).parent
QUICK = [
    "after write before",
    "after write process",
    "after the command",
    "before write after",
    "after write after #2",
    "after write restoring",
    "after restore: _put",
    "before restore: _dress #3",
    "after restore: write",
    "after commit of compensation_intent 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("point", QUICK)
def test_killed(place, point):
    """connectors.image-first: with the image durable before the effect, recovery puts all back from it."""
    before = world(place)
    _killed_and_recovered(place, before, point)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["after write restoring", "after restore: _put #2", "before restore: write", "after write displaced"]
)
def test_recovery_killed(place, point):
    """A recovery that is killed halfway is finished by the next one."""
    before = world(place)
    assert _program(place, AGENT_SAGA_CRASH_AT="after the command #2").returncode == -9
    killed = _recover(place, AGENT_SAGA_CRASH_AT=point)
    assert killed.returncode == -9, (killed.stdout, killed.stderr)
    recovered = _recover(place)
    assert recovered.returncode == 0, (recovered.stdout, recovered.stderr)
    assert before == world(place)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_killed_at_each_point(place, tmp_path):
    """connectors.image-first: every point that a run reaches, one after the other."""
    before = world(place)
    reached = _program(place).stdout.splitlines()
    assert before == world(place)
    assert len(reached) > 60
    for number, name in enumerate(reached, start=1):
        for one in ("store", "log.db", "log.db-wal", "log.db-shm"):
            shutil.rmtree(tmp_path / one) if (tmp_path / one).is_dir() else (tmp_path / one).unlink(missing_ok=True)
        _killed_and_recovered(place, before, str(number), name)


@pytest.mark.slow
@pytest.mark.timeout(40)
def test_orphan(place):
    """While the command of a killed owner still runs, nothing is put back; once it ended, all is."""
    before = world(place)
    gate = place / "gate"
    os.mkfifo(gate)
    first = world(place)
    assert before != first
    environment = _environment(place, KILL_COMMAND="rm new.txt; cat gate; rm a.txt")
    with subprocess.Popen([sys.executable, str(HERE / "kill_program.py")], env=environment) as process:
        with gate.open("w") as held:  # Opens when the command has come to its second part.
            process.kill()
            process.wait()
            waiting = _recover(place)
            assert (waiting.returncode, (place / "new.txt").exists()) == (1, False), waiting.stdout
            assert "still runs" in waiting.stdout
            held.write("go on\n")
    saga = _saga(waiting)
    while (done := _recover(place, "--saga", saga)).returncode == 1:
        assert "still runs" in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout
    assert first == world(place)


def _saga(answer):
    return re.search(r"saga (\w{26})", answer.stdout)[1]


def _killed_and_recovered(place, before, point, name=""):
    killed = _program(place, AGENT_SAGA_CRASH_AT=point)
    assert killed.returncode == -9, (point, name, killed.stdout, killed.stderr)
    began = (place.parent / "log.db").exists()
    recovered = _recover(place)
    assert recovered.returncode == (0 if began else 3), (point, name, recovered.stdout, recovered.stderr)
    assert before == world(place), (point, name)


def _environment(place, **more):
    return {**os.environ, "KILL_BASE": str(place.parent), **more}


def _program(place, **more):
    command = [sys.executable, str(HERE / "kill_program.py")]
    return subprocess.run(
        command, env=_environment(place, **more), capture_output=True, text=True, check=False, timeout=60
    )


def _recover(place, *arguments, **more):
    command = [sys.executable, "-m", "agent_saga", "recover", "--log", str(place.parent / "log.db"), *arguments]
    command += ["--import", str(HERE / "kill_setup.py")]
    return subprocess.run(
        command, env=_environment(place, **more), capture_output=True, text=True, check=False, timeout=60
    )
