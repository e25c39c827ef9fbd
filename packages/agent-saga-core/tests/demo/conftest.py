"""Stages in temporary folders, and the demo run as a person would run it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_saga.demo.stage import Stage

Run = Callable[..., subprocess.CompletedProcess[str]]
PROGRAMS = Path(sys.executable).parent


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage.build(tmp_path)


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """A shell in which `agent-saga` is found, and none of its variables is set."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_SAGA_", "NO_COLOR"))}
    return own | {"PATH": f"{PROGRAMS}{os.pathsep}{own['PATH']}"}


@pytest.fixture(scope="session")
def shell(environment: dict[str, str]) -> Run:
    """Runs a command line and returns its end, stdout and stderr apart."""

    def run(line: str, *, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=cwd,
            env=environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def shown(shell: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The output of one run of the demo, and the folder that it kept."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    done = shell("agent-saga demo --fast --keep kept", cwd=folder.parent)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, folder
