"""Killed at any point, a saga is finished by `agent-saga recover`, and the database is as it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("point", ["before a write", "after a write"])
def test_recovery_after_a_kill(world, tmp_path, point):
    """Before the effect and after it: recovery asks the database."""
    before, log = world.dump(), tmp_path / "log.db"
    killed = _run(world, log, AGENT_SAGA_CRASH_AT=point)
    assert killed.returncode == -9, killed.stderr
    recovered = _recover(world, log)
    assert recovered.returncode == 0, recovered.stdout + recovered.stderr
    assert before == world.dump()


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
def test_recovery_after_a_kill_at_each_point(world, tmp_path):
    """Killed at every commit of the log and around every write."""
    before = world.dump()
    reached = _run(world, tmp_path / "whole.db").stdout.splitlines()
    assert before == world.dump()
    assert len(reached) >= 12
    for number, name in enumerate(reached, start=1):
        log = tmp_path / f"{number}.db"
        killed = _run(world, log, AGENT_SAGA_CRASH_AT=str(number))
        assert killed.returncode == -9, (name, killed.stderr)
        began = log.exists()  # Nothing was written before the first step.
        recovered = _recover(world, log)
        assert (0 if began else 3) == recovered.returncode, (name, recovered.stdout, recovered.stderr)
        assert before == world.dump(), name


def _environment(world, log, **more):
    return {**os.environ, "SHOP_URL": world.address, "SHOP_LOG": str(log), "PYTHONPATH": str(HERE), **more}


def _run(world, log, **more):
    return _child([str(HERE / "kill_program.py")], _environment(world, log, **more))


def _recover(world, log):
    arguments = ["-m", "agent_saga", "recover", "--log", str(log), "--import", str(HERE / "kill_setup.py")]
    return _child(arguments, _environment(world, log))


def _child(arguments, environment):
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
