"""Rows about beginnings: what the import and the command line cost over a bare interpreter."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmark.measure import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 15


def starts(_folder: Path) -> Iterator[Result]:
    """Fresh interpreters, the bare one between any two; their processor time, because others want the processor too."""
    program = str(Path(sys.executable).with_name("agent-saga"))
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "import agent_saga": [sys.executable, "-c", "import agent_saga"],
        "agent-saga --help": [program, "--help"],
    }
    for command in commands.values():
        _run(command)  # Byte code is compiled now.
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            times[name].append(_run(command) * 1e3)
    bare = min(times["bare"])
    for name, limit in (("import agent_saga", 30.0), ("agent-saga --help", 90.0)):
        value = min(times[name]) - bare
        yield Result(row=f"{name}, over a bare interpreter", value=value, unit="ms", limit=limit, base=bare)


def _run(command: list[str]) -> float:
    """Run a command; returns the seconds of processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
