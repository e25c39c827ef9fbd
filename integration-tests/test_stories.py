"""The stories of examples/: run as their first lines say, with real frameworks, and killed; the world is read."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
pytestmark = pytest.mark.slow


class Story:
    """A folder with one story in it, whose programs and commands are run in processes of their own."""

    def __init__(self, folder, name):
        shutil.copy(EXAMPLES / "models.py", folder)
        shutil.copytree(EXAMPLES / name, folder / name)
        self.folder, self.name = folder / name, name
        self.tools = f"{'order' if name == 'orders' else name}_tools"

    def python(self, *words, code=0):
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

    def run(self, *words, code=0):
        return self.python("-W", "ignore", f"{self.name}.py", *words, code=code)

    def saga(self, *words, code=0):
        return self.python("-m", "agent_saga", *words, code=code)

    def recover(self, code=0):
        return self.saga("recover", "--import", f"{self.tools}.py", code=code)

    def standing(self):
        """What the outside world holds, as the story's own tools read it."""
        said = self.python("-c", f"import {self.tools} as tools; print(tools.standing())")
        return eval(said)  # What our own example prints.


@pytest.fixture
def story(request, tmp_path):
    return Story(tmp_path, request.param)


@pytest.mark.parametrize("story", ["travel"], indirect=True)
def test_a_travel_desk(story):
    """STORY-01: LangChain, a function and AutoGen in one saga: a failure that AutoGen swallowed takes all back."""
    assert "rolled back, clean" in story.run()
    after = story.standing()
    assert (after["seats"], after["tickets"], after["rooms"]) == ([("OSL-1", 3)], [], [])
    assert sorted(cents for _, _, cents in after["payments"]) == [-64_000, 64_000]  # The trace of a compensation.

    story.run("--kill", code=-signal.SIGKILL)
    assert len(story.standing()["payments"]) == 3
    assert "1 saga recovered; nothing is left" in story.recover()
    recovered = story.standing()
    assert (recovered["seats"], recovered["tickets"]) == ([("OSL-1", 3)], [])
    assert sum(cents for _, _, cents in recovered["payments"]) == 0
    assert "0 sagas recovered" in story.recover()

    assert "kept             6 rent_car(place='Moss')" in story.run("--elsewhere")  # The model repaired its failure.
    kept = story.standing()
    assert (kept["seats"], len(kept["tickets"]), len(kept["rooms"])) == ([("OSL-1", 1)], 2, 1)


@pytest.mark.parametrize("story", ["release"], indirect=True)
def test_a_release(story):
    """STORY-02: git, a file and a process, changed by two frameworks: the branch, the bytes and the process go back."""
    assert "rolled back, clean and verified" in story.run("0")
    before = story.standing()
    assert (before["files"], before["processes"]) == ({"settings.ini": "workers = 2\n"}, 0)
    try:
        story.run("4", "--kill", code=-signal.SIGKILL)
        changed = story.standing()
        assert (changed["files"], changed["processes"]) == ({"settings.ini": "workers = 4\n"}, 1)
        assert changed["head"] != before["head"]
        assert "1 saga recovered; nothing is left" in story.recover()
        assert story.standing() == before
    finally:
        story.python("-c", "import release_tools as tools; tools.stop_all()")


@pytest.mark.parametrize("story", ["orders"], indirect=True)
def test_order_to_cash(story):
    """STORY-03: suspended for an approval, gone on in a process that is killed, recovered around a human's change."""
    asked = story.run("20")
    assert "waits for an approval of 'charge' (charge 1980.00?)" in asked
    suspended = story.standing()
    assert (suspended["payments"], len(suspended["orders"])) == ([], 1)
    assert "0 sagas recovered" in story.recover()  # Recovery leaves it alone.

    request = asked.partition("approvals approve ")[2].partition(" ")[0]
    story.saga("approvals", "approve", request, "--by", "ann")
    story.run("20", "--kill", code=-signal.SIGKILL)
    assert [cents for _, _, cents in story.standing()["payments"]] == [198_000]
    assert len(story.standing()["orders"]) == 1  # It was not placed again.

    sell = "with tools.world() as db: db.execute('UPDATE stock SET free = free - 1')"
    story.python("-c", f"import {story.tools} as tools\n{sell}")  # Somebody buys a lamp meanwhile.
    said = story.recover(code=1)
    assert "conflict" in said
    left = story.standing()
    assert sum(cents for _, _, cents in left["payments"]) == 0
    assert [state for _, _, _, state in left["orders"]] == ["cancelled"]
    saga = said.partition("agent-saga settle ")[2].split()[0]
    story.saga("settle", saga, "2", "--as", "accept", "--evidence", "counted: 1 lamp was sold since", "--by", "ann")
    assert "0 sagas" in story.recover()
    assert story.standing() == left
