"""templates/adapter: a copy says what is to be filled in; filled in for a small framework, it passes the suite."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILLED = Path(__file__).parent / "adapter_template"
TINY = ROOT / "packages" / "pytest-agent-saga" / "tests" / "conformance"
CHANGED = ("_hook.py", "_framework.py")  # What a stranger writes; the rest of the package stays as it was copied.


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The package, as scripts/new_adapter.py writes it."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from new_adapter import copy

    copy("tiny", tmp_path / "agent-saga-tiny")
    return tmp_path / "agent-saga-tiny"


def run_tests(package):
    path = os.pathsep.join([str(package / "src"), str(TINY)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "tests"]
    return subprocess.run(
        command,
        cwd=package,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_nothing_of_the_template_is_left_over(copied):
    """TPL-01: the copy has the new name everywhere, the licence, and no file of the template's is forgotten."""
    files = [path for path in copied.rglob("*") if path.is_file()]
    assert not [path for path in files if "myframework" in (str(path) + path.read_text("utf-8")).lower()]
    assert {"LICENSE", "pyproject.toml", "README.md", "py.typed", "_step.py"} <= {path.name for path in files}


def test_a_copy_says_what_is_to_be_filled_in(copied):
    """TPL-02: until the first function is written the suite fails, with the file and the function to begin with."""
    done = run_tests(copied)
    assert done.returncode == 1
    assert "tests/test_conformance.py, MyAgent: make an agent with a scripted model" in done.stdout
    assert re.search(r"\d+ failed, \d+ passed", done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_filled_in_it_passes_the_whole_suite(copied):
    """TPL-03: two modules and a driver make an adapter that passes every rule, with no capability left out."""
    for name in CHANGED:
        shutil.copy(FILLED / name, copied / "src" / "agent_saga_tiny" / name)
    shutil.copy(FILLED / "driver.py", copied / "tests" / "test_conformance.py")
    done = run_tests(copied)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 80
