"""How `agent-saga` is run from here, by this program and by the person who reads its output."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program() -> list[str]:
    """Return how the `agent-saga` of this very environment is run."""
    script = Path(sys.executable).with_name("agent-saga")
    return [str(script)] if script.exists() else [sys.executable, "-m", "agent_saga"]


def typed_program() -> str:
    """Return what to type for it: the name alone where a shell finds it, else a path."""
    command = program()
    found = shutil.which("agent-saga")
    if len(command) == 1 and found is not None and Path(found).samefile(command[0]):
        return "agent-saga"
    if Path(command[0]).is_relative_to(Path.cwd()):
        command[0] = str(Path(command[0]).relative_to(Path.cwd()))
    return shlex.join(command)


def next_commands(log: Path, saga_id: str) -> list[str]:
    """Return commands that read the log and one saga of it."""
    name, option = typed_program(), shlex.join(["--log", str(log)])
    return [f"{name} sagas {option}", f"{name} show {saga_id} {option}", f"{name} verify {option}"]
