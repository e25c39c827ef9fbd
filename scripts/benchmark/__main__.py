"""The command line of the bench: runs the rows, prints one screen, compares with the committed baseline."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmark import crowds, databases, evidence, growth, logs, peers, postgres, starts, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmark.measure import Result

BASELINE: Final = Path(__file__).resolve().parent.parent / "bench.json"
_WHOLE_FROM: Final = 1000
TOLERANCE: Final = 1.5
"""How much worse a ratio may be than in the baseline before `--check` fails: machines are noisy."""
GROUPS: Final[dict[str, Callable[[Path], Iterator[Result]]]] = {
    "sync": steps.durable_sync,
    "async": steps.durable_async,
    "memory": steps.in_memory,
    "idle": steps.idle,
    "crowd": crowds.concurrent,
    "processes": crowds.processes,
    "peers": peers.peers,
    "postgres": postgres.postgres,
    "databases": databases.flushes,
    "orphans": logs.orphans,
    "large": logs.large_log,
    "evidence": evidence.commands,
    "starts": starts.starts,
}


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--only", metavar="ROW", choices=[*GROUPS, *growth.GROUPS], help=", ".join(GROUPS))
    parser.add_argument("--growth", action="store_true", help="cost curves: minutes, and a few GB of disk")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help=f"exit 1 if a ratio is {TOLERANCE} x that of bench.json")
    parser.add_argument("--save", action="store_true", help="lower the baseline to this run where it is better")
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary folder, beside this one")
    asked = parser.parse_args()
    groups = {**GROUPS, **growth.GROUPS} if asked.only else growth.GROUPS if asked.growth else GROUPS
    groups = {name: group for name, group in groups.items() if asked.only in {None, name}}
    found = list(_run(groups, asked.folder, quiet=asked.json))
    if asked.json:
        print(json.dumps([_plain(result) for result in found], indent=1))
    if asked.save:
        known = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}
        for result in found:
            known[result.row] = round(min(result.ratio, known.get(result.row, result.ratio)), 4)
        BASELINE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return _check(found) if asked.check else 0


def _run(
    groups: dict[str, Callable[[Path], Iterator[Result]]], folder: Path | None, *, quiet: bool
) -> Iterator[Result]:
    place = folder or Path.cwd()
    started = time.monotonic()
    if not quiet:
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, in {place}")
        print(f"{'':<54}{'measured':>12}{'may be':>12}   base")
    for group in groups.values():
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=place) as inside:
            for result in group(Path(inside)):
                if not quiet:
                    print(_line(result), flush=True)
                yield result
    if not quiet:
        print(f"{time.monotonic() - started:.0f} s")


def _line(result: Result) -> str:
    def shown(number: float) -> str:
        return f"{number:,.0f}" if number >= _WHOLE_FROM else f"{number:.3g}"

    mark = "" if result.met else "  MISSED"
    more = ", ".join(f"{name} {value}" for name, value in result.more.items())
    return (
        f"{result.row:<54}{shown(result.value) + ' ' + result.unit:>12}{shown(result.limit):>12}"
        f"   {shown(result.base)}{'; ' + more if more else ''}{mark}"
    )


def _plain(result: Result) -> dict[str, Any]:
    return {
        "row": result.row,
        "value": result.value,
        "unit": result.unit,
        "limit": result.limit,
        "met": result.met,
        "base": result.base,
        "ratio": result.ratio,
        **result.more,
    }


def _check(found: list[Result]) -> int:
    known = json.loads(BASELINE.read_text("utf-8"))
    worse = [result for result in found if result.row in known and result.ratio > TOLERANCE * known[result.row]]
    for result in worse:
        print(f"worse than bench.json: {result.row}: ratio {result.ratio:.3g}, was {known[result.row]:.3g}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
