"""Runs that go on elsewhere: in other processes, from saved states, and after a kill."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from autogen_scripted import answers, in_saga
from autogen_shop import acharge, charge

from agent_saga import SagaSuspended
from agent_saga.errors import SagaDiverged

HERE = Path(__file__).parent
CHARGE = ("charge", {"thing": "a"})
ACHARGE = ("acharge", {"thing": "b"})


def program(folder, mode, code=0):
    done = subprocess.run(
        [sys.executable, HERE / "autogen_resume_program.py", folder, mode],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_paused_in_one_process_and_resumed_in_another(tmp_path, killed):
    """A run that waits goes on in other processes, also after one was killed behind its effect: each line once."""
    assert program(tmp_path, "ask") == "suspended {'line': 'a'} StopMessage"
    if killed:
        program(tmp_path, "die", code=-signal.SIGKILL)
    assert program(tmp_path, "go-on") == "committed {'line': 'b'} TextMessage"
    assert (tmp_path / "world").read_text().split() == ["a", "b"]


def interrupted(kit, agent, key="order-1"):
    """Run an agent in a saga that is suspended afterwards; returns its states before and after the run."""

    async def main(saga):
        before = json.dumps(await agent.save_state())
        await agent.run(task="go")
        states.extend([before, json.dumps(await agent.save_state())])
        raise SagaSuspended("later")

    states = []
    with pytest.raises(SagaSuspended):
        in_saga(kit, main, key=key)
    return [json.loads(state) for state in states]


def resumed(kit, agent, state, task="go", key="order-1"):
    async def main(saga):
        if state is not None:
            await agent.load_state(state)
        return await agent.run(task=task)

    return in_saga(kit, main, key=key)


def test_a_saved_state_brings_the_results_along(kit, shop, maker):
    """A run that goes on from its saved state, in the resumed saga, has the results of its calls, and commits."""
    _, after = interrupted(kit, maker.agent([charge], CHARGE))
    _, saga = resumed(kit, maker.agent([charge]), after, "and now?")
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_only_what_the_state_knows_is_brought_along(kit, shop, maker):
    """A state that is older than the last calls makes those again, also with ids that it knows from earlier ones."""
    agent = maker.agent([charge, acharge], CHARGE, "first", CHARGE)
    asyncio.run(agent.run(task="before any saga"))  # c1
    agent._model_client.turns[2] = [("acharge", {"thing": "b"}, "c1")]
    before, _ = interrupted(kit, agent)
    again = maker.agent([charge, acharge], "never")
    again._model_client.turns = [[("acharge", {"thing": "b"}, "c1")]]
    result, saga = resumed(kit, again, before)
    assert (answers(result), saga.report.outcome) == (["{'id': 'b'}"], "committed")
    assert shop.events == [("charge", "a"), ("acharge", "b")]


@pytest.mark.parametrize("loaded", [True, False])
def test_a_run_that_begins_again(kit, shop, maker, loaded):
    """A run that begins again, from the state before it or anew, is answered with what stands, and goes on."""
    before, _ = interrupted(kit, maker.agent([charge], CHARGE))
    _, saga = resumed(kit, maker.agent([charge, acharge], CHARGE, ACHARGE), before if loaded else None)
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a"), ("acharge", "b")])


def test_a_run_that_does_something_else_diverges(kit, shop, maker):
    """A resumed run that neither makes a call again nor has its result has diverged, and is rolled back."""
    interrupted(kit, maker.agent([charge], CHARGE))
    with pytest.raises(SagaDiverged):
        resumed(kit, maker.agent([charge, acharge], ACHARGE), None)
    assert shop.standing == []
