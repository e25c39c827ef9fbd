"""The examples run, and say what their comments promise."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "gates"

SAYS = {file.stem: file.read_text("utf-8").splitlines() for file in (Path(__file__).parent / "says").glob("*.txt")}


def run(name, folder):
    command = [sys.executable, "-W", "error", str(FOLDER), *name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_says_what_it_promises(tmp_path, name):
    """EXAMPLE: each refusal of an example comes with its reason, and the rest runs."""
    answer = run([name], tmp_path)
    assert answer.stderr == ""
    # How the log words a used-up budget is the log's own affair.
    lines = answer.stdout.splitlines()
    budget = [line for line in lines if line.startswith("refused") and "budget" in line]
    assert len(budget) == (name == "payments")
    assert [line for line in lines if line not in budget] == SAYS[name]
    assert list(tmp_path.iterdir()) == []


def test_every_example_is_listed(tmp_path):
    """EXAMPLE: asked for none, the program lists them; each has a test here."""
    answer = run([], tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.strip() == f"say which: {', '.join(sorted(SAYS))}"
    assert {file.stem for file in FOLDER.glob("*.py")} == {*SAYS, "__main__"}
