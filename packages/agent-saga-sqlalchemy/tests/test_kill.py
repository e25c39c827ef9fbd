"""Killed at any point, a saga is finished by `agent-saga recover`, and the database is as it was."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from shop_world import dump

HERE = Path(__file__).parent


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
def test_recovery_after_a_kill_at_each_point(engine, tmp_path):
    """Before images, between them and the commit, after it, in a compensation: recovery asks the database."""
    with engine.connect() as connection:
        before = dump(connection)
    reached = _run(engine, tmp_path / "whole.db").stdout.splitlines()
    assert before == _dump(engine)
    assert "after commit of compensation_intent 1" in reached
    assert len(reached) >= 16
    for number, name in enumerate(reached, start=1):
        log = tmp_path / f"{number}.db"
        killed = _run(engine, log, AGENT_SAGA_CRASH_AT=str(number))
        assert killed.returncode == -9, (name, killed.stderr)
        began = log.exists()  # Nothing was written before the first step.
        recovered = _recover(engine, log)
        assert recovered.returncode == (0 if began else 3), (name, recovered.stdout, recovered.stderr)
        assert before == _dump(engine), name


def test_a_recovery_without_the_engine_says_so(engine, tmp_path):
    """Recovery that has not loaded the engine touches nothing and names what is missing."""
    log = tmp_path / "log.db"
    _run(engine, log, AGENT_SAGA_CRASH_AT="after a database commit")
    left = _dump(engine)
    bare = subprocess.run(
        [sys.executable, "-m", "agent_saga", "recover", "--log", str(log)], capture_output=True, text=True, check=False
    )
    assert bare.returncode == 1
    assert "--import" in bare.stdout + bare.stderr
    assert left == _dump(engine)
    assert _recover(engine, log).returncode == 0
    assert left != _dump(engine)


@pytest.mark.slow
@pytest.mark.parametrize("async_engine", ["aiosqlite", "asyncpg"], indirect=True)
@pytest.mark.parametrize("point", ["before a database commit", "after a database commit", "2", "4"])
def test_recovery_of_an_async_engine(async_engine, tmp_path, point):
    """The same for async drivers, around the commits of the database and of the log."""
    before, log = _async_dump(async_engine), tmp_path / "log.db"
    killed = _run(async_engine, log, "kill_async_program.py", AGENT_SAGA_CRASH_AT=point)
    assert killed.returncode == -9, killed.stderr
    recovered = _recover(async_engine, log)
    assert recovered.returncode == 0, (recovered.stdout, recovered.stderr)
    assert before == _async_dump(async_engine)


def _async_dump(engine):
    async def read():
        async with engine.connect() as connection:
            found = await connection.run_sync(dump)
        await engine.dispose()
        return found

    return asyncio.run(read())


def _dump(engine):
    with engine.connect() as connection:
        return dump(connection)


def _environment(engine, log, **more):
    url = engine.url.render_as_string(hide_password=False)
    return {**os.environ, "SHOP_URL": url, "SHOP_LOG": str(log), "PYTHONPATH": str(HERE), **more}


def _run(engine, log, program="kill_program.py", **more):
    command = [sys.executable, str(HERE / program)]
    return subprocess.run(
        command, env=_environment(engine, log, **more), capture_output=True, text=True, check=False, timeout=60
    )


def _recover(engine, log):
    command = [sys.executable, "-m", "agent_saga", "recover", "--log", str(log)]
    command += ["--import", str(HERE / "kill_setup.py")]
    return subprocess.run(
        command, env=_environment(engine, log), capture_output=True, text=True, check=False, timeout=60
    )
