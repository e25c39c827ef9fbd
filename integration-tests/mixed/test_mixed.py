"""One saga over LangGraph, CrewAI, OpenAI Agents, AutoGen, LlamaIndex and Semantic Kernel, over real effects."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from mixed_tools import TOOLS

HERE = Path(__file__).parent

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.timeout(300)]
WAYS = pytest.mark.parametrize("way", ["async", "sync"])


@WAYS
def test_all_six_commit(zygote, world, way):
    """Every tool acts once, and the saga commits."""
    code, said = zygote(way, world)
    assert code == 0, said
    assert [f" {number} {tool}(" in said for number, tool in enumerate(TOOLS, start=1)] == [True] * 6
    assert world.dump() != world.before
    assert world.ledger()["made"] == 2
    world.saga("verify")


@WAYS
@pytest.mark.parametrize("failing", TOOLS)
def test_a_failing_step_leaves_the_world_as_it_was(zygote, world, way, failing):
    """Whichever framework's tool fails, and however that framework hides it from the run: all before it is undone."""
    code, said = zygote(way, world, MIXED_FAIL=failing)
    assert code == 1, said
    assert said.startswith(("SagaRolledBack: ", f"RuntimeError: {failing} is down")), said
    assert "clean" in said
    assert world.dump() == world.before
    world.saga("certify")


@WAYS
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("killed", TOOLS)
def test_a_killed_run_is_recovered_from_the_command_line(zygote, world, way, killed, moment):
    """SIGKILL before and after each effect; another process recovers, and the world is what it was before."""
    code, said = zygote(way, world, MIXED_KILL=f"{moment}:{killed}")
    assert code == -9, said
    assert world.saga("recover", "--import", "mixed_tools")
    assert world.dump() == world.before
    made = world.ledger()["made"]
    world.saga("recover", "--import", "mixed_tools")
    assert world.dump() == world.before
    assert world.ledger()["made"] == made
    world.saga("certify", "--import", "mixed_tools")


def test_the_example_of_the_readme(tmp_path):
    """The README's lines run in that program; its tool fails unseen, and the page and the room are gone."""
    program = (HERE / "mixed_readme.py").read_text("utf-8")
    lines = program.partition("    # from here on in the README\n")[2].partition("    # up to here in the README")[0]
    readme = (HERE.parents[1] / "README.md").read_text("utf-8")
    assert textwrap.dedent(lines) in readme
    command = [sys.executable, "-W", "ignore", HERE / "mixed_readme.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    *_, world = done.stdout.splitlines()
    assert "notify" in done.stdout
    assert world == "{} set()"
