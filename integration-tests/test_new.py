"""`agent-saga new` for each framework: the project that it writes passes its own tests with the real framework."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_saga.cli.new import FRAMEWORKS, project

QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"]


def run(folder, framework):
    """Write the project, and run its tests as its README says, in a process of their own."""
    for path, text in project("shop", framework).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return subprocess.run(
        PYTEST, cwd=folder, env={**os.environ, **QUIET}, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All of them, two at a time: most of each is the import of its framework."""
    with ThreadPoolExecutor(2) as pool:
        yield {framework: pool.submit(run, tmp_path_factory.mktemp(framework), framework) for framework in FRAMEWORKS}


@pytest.mark.slow
@pytest.mark.timeout(600)  # All seven begin with the first test, two at a time.
@pytest.mark.parametrize("framework", list(FRAMEWORKS))
def test_a_new_project_passes_its_tests_on_the_first_day(runs, framework):
    """NEW-01: broken at each effect and compensation, and killed: the project's own two tests pass."""
    done = runs[framework].result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout.splitlines()[-1]
