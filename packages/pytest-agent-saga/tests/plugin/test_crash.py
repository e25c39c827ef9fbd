"""The crash runner: real processes, real kills. Rule ids: CR-n."""

import pytest

PROGRAM = """
import asyncio
import json
import os
from pathlib import Path

from agent_saga import AgentKit, compensator

WORLD = Path(__file__).with_name("world.json")
kit = AgentKit()


def read():
    return json.loads(WORLD.read_text()) if WORLD.exists() else []


@compensator("crash.remove", idempotent=True, safe_if_absent=True)
def remove(item):
    WORLD.write_text(json.dumps([one for one in read() if one != item]))


@compensator("crash.lie", idempotent=True, safe_if_absent=True)
def lie(item):
    pass


@kit.tool(effect="compensable", compensate=remove.bind(item="kwargs.item"))
def put(item):
    WORLD.write_text(json.dumps([*read(), item]))


@kit.tool(effect="compensable", compensate=lie.bind(item="kwargs.item"), name="stick")
async def stick(item):
    WORLD.write_text(json.dumps([*read(), item]))


def good():
    with kit.transaction("one"):
        put(item=1)


async def bad():
    async with kit.transaction("one"):
        await stick(item=1)


def fails():
    with kit.transaction("one"):
        put(item=1)
        raise ValueError("no")


def dies():
    os._exit(3)
"""
POINTS = {
    "before effect of put",
    "after effect of put",
    "before commit of outcome 1",
    "after commit of outcome 1",
    "before commit of saga_ended",
    "after commit of saga_ended",
}


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, "utf-8")
    return path


@pytest.fixture
def world(program):
    """Returns how to look at the program's world, and how to bring it back."""
    import json

    file = program.with_name("world.json")
    return lambda: json.loads(file.read_text()) if file.exists() else [], lambda: file.unlink(missing_ok=True)


def test_points_are_named(saga_crash, program, world):
    """CR-1: an undisturbed run tells its points; `fail_after` adds those of the rollback; errors are told."""
    whole = saga_crash.run(f"{program}:good")
    assert set(whole.points) >= POINTS
    assert "intent 1" in whole.points[whole.points.index("before effect of put") - 1]
    assert (whole.killed, whole.effects, world[0]()) == (False, 1, [1])
    saga_crash.forget()
    failing = saga_crash.run(f"{program}:good", fail_after=1)
    assert "before compensation of put" in failing.points
    assert failing.stderr == "WorkflowFailed: broken by the test after put\n"
    assert saga_crash.run(f"{program}:fails").stderr == "ValueError: no\n"


def test_a_process_is_killed_where_it_should_be(saga_crash, program, world):
    """CR-2: it dies by SIGKILL at the point; another process recovers; a point that is not reached fails the test."""
    died = saga_crash.run(f"{program}:good", kill_at="after effect of put")
    assert (died.killed, died.points, world[0]()) == (True, (), [1])
    assert [report.outcome for report in saga_crash.reports()] == ["suspended"]
    saga_crash.recover(str(program))
    assert world[0]() == []
    assert [report.clean for report in saga_crash.reports()] == [True]
    with pytest.raises(pytest.fail.Exception, match="never came to 'before lunch'; it reached: before commit of"):
        saga_crash.run(f"{program}:good", kill_at="before lunch")


def test_a_process_that_ends_by_itself_is_told(saga_crash, program):
    """CR-3: a program that neither ends nor is killed proves nothing."""
    with pytest.raises(pytest.fail.Exception, match="ended by itself, with 3"):
        saga_crash.run(f"{program}:dies")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_everywhere_and_in_recovery(saga_crash, program, world):
    """CR-4: a right program survives being killed anywhere, also in recovery."""
    done = saga_crash.everywhere(
        f"{program}:good", imports=[str(program)], snapshot=world[0], reset=world[1], in_recovery=True
    )
    assert done.committed >= 1
    assert any("in recovery" in kill for kill in done.kills)
    assert any("while failing" in kill for kill in done.kills)
    assert "after effect of put" in done.kills


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_lie_is_found(saga_crash, program, world):
    """CR-5: a compensation that lies is found by the first kill after its effect; async programs too."""
    with pytest.raises(pytest.fail.Exception, match=r"the world is \[1\], and should be \[\]"):
        saga_crash.everywhere(f"{program}:bad", imports=[str(program)], snapshot=world[0], reset=world[1])
