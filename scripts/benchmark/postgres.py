"""Rows of the log in PostgreSQL: a step beside a bare insert and commit, and what 64 sagas at once get done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmark.measure import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM: Final = Path(__file__).resolve().parents[2] / "packages" / "agent-saga-postgres" / "tests" / "measure.py"
TIMEOUT_S: Final = 180


def postgres(folder: Path) -> Iterator[Result]:
    """A server of its own with fsync=on; bare commits and steps take turns, on connections of the same server."""
    del folder  # The server has its own, with its data on the same device as temporary files.
    command = [sys.executable, "-W", "ignore", str(PROGRAM)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    found = {name: float(value) for name, value in (line.split(": ") for line in told.stdout.splitlines())}
    more = {"bare_us": round(found["bare_us"]), "step_us": round(found["step_us"])}
    step = found["step_per_bare"]
    yield Result(
        row="PostgreSQL: step over a bare insert and commit", value=step, unit="x", limit=1.6, base=1.0, more=more
    )
    rate = found["throughput_at_64_per_single_step"]
    more = {"steps_per_s": round(found["steps_per_s_at_64"])}
    yield Result(
        row="PostgreSQL: 64 sagas at once, rate over one saga's",
        value=rate,
        unit="x",
        limit=8.0,
        base=8.0,
        rate=True,
        more=more,
    )
