"""Runs that go on elsewhere: in other processes, from sessions, and after a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agents import SQLiteSession
from agents_scripted import run_sync
from agents_shop import acharge, charge

from agent_saga import SagaSuspended
from agent_saga.errors import SagaDiverged

HERE = Path(__file__).parent


def program(folder, mode, code=0):
    environment = os.environ | {"OPENAI_AGENTS_DISABLE_TRACING": "1"}
    done = subprocess.run(
        [sys.executable, HERE / "agents_resume_program.py", folder, mode],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_paused_in_one_process_and_resumed_in_another(tmp_path, killed):
    """A paused run goes on in other processes, and one that is killed after its effect is resumed: each line once."""
    assert program(tmp_path, "ask") == "suspended {'line': 'a'} None"
    if killed:
        program(tmp_path, "die", code=-signal.SIGKILL)
    assert program(tmp_path, "go-on") == "committed {'line': 'b'} done"
    assert (tmp_path / "world").read_text().split() == ["a", "b"]


def test_a_session_brings_the_results_along(kit, shop, maker, tmp_path):
    """A run that goes on from its session, in the resumed saga, has the results of its calls, and commits with them."""
    session = SQLiteSession("s1", tmp_path / "session.db")
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        run_sync(maker.agent([charge], ("charge", {"thing": "a"})), session=session)
        raise SagaSuspended("later")
    with kit.transaction("buy", key="order-1") as saga:
        run_sync(maker.agent([charge]), "and now?", session=session)
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])
    session.close()


def test_a_run_that_begins_again(kit, shop, maker):
    """A run that begins again in the resumed saga is answered with what stands, and goes on from there."""
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        run_sync(maker.agent([charge], ("charge", {"thing": "a"})))
        raise SagaSuspended("later")
    calls = [("charge", {"thing": "a"}), ("acharge", {"thing": "b"})]
    with kit.transaction("buy", key="order-1") as saga:
        run_sync(maker.agent([charge, acharge], *calls))
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a"), ("acharge", "b")])


def test_a_run_that_does_something_else_diverges(kit, shop, maker):
    """A resumed run that neither makes a call again nor has its result has diverged, and is rolled back."""
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        run_sync(maker.agent([charge], ("charge", {"thing": "a"})))
        raise SagaSuspended("later")
    with pytest.raises(SagaDiverged), kit.transaction("buy", key="order-1"):
        run_sync(maker.agent([charge, acharge], ("acharge", {"thing": "b"})))
    assert shop.standing == []
