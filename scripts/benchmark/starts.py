"""Rows about beginnings: what the import and the command line cost over a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmark.measure import Result, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS: Final = 15


def starts(_folder: Path) -> Iterator[Result]:
    """Fresh interpreters, the bare one between any two."""
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
            times[name].append(timed(lambda command=command: _run(command)) * 1e3)  # type: ignore[misc]
    bare = median(times["bare"])
    for name, limit in (("import agent_saga", 30.0), ("agent-saga --help", 90.0)):
        value = median(times[name]) - bare
        yield Result(row=f"{name}, over a bare interpreter", value=value, unit="ms", limit=limit, base=bare)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
