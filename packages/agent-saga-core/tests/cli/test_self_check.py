"""`agent-saga self-check`: the simulator's verdict on the installed engine."""

import json
import subprocess
import sys

import pytest

from agent_saga.testing.sim.invariants import INVARIANTS
from agent_saga.testing.sim.twins import TWINS


def self_check(*options):
    """Run the command in a process of its own."""
    words = [sys.executable, "-m", "agent_saga", "self-check", *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.timeout(300)
def test_it_prints_what_it_did():
    """Executions, invariants, verdict and bound are printed, and the exit code is 0."""
    done = self_check("--max-steps", "2", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == "agent-saga/self-check/1"
    assert (told["holds"], told["invariants"], told["twins"]) == (True, len(INVARIANTS), len(TWINS))
    assert told["caught"] == told["twins"]
    assert told["executions"] > told["crash_points"] > 50
    assert "sagas of 1 to 2 steps" in told["bound"]
    assert "verdict: every invariant holds" in told["report"]


@pytest.mark.parametrize("size", ["0", "7", "many"])
def test_a_size_that_cannot_be_enumerated_is_wrong_usage(size):
    """A wrong size ends with exit code 2 and without a traceback."""
    done = self_check("--max-steps", size)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
