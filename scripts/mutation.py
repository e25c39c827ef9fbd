"""Measures how many mutants of the machine and of recovery the tests kill.

First all tests run once and say which of them execute which line. Then each mutant gets a process of its own, forked
from one that has everything imported but agent-saga, and runs the tests of its line, quick ones first, until one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coverage
import pytest
from mutants import Mutant, mutants_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "packages" / "agent-saga-core" / "src"
TESTS = ROOT / "packages" / "agent-saga-core" / "tests"
RECOVERY = ("compensate", "ending", "late", "opening", "recover", "rollback", "settle", "verdict")
SUITES = (
    *("machine", "engine", "gate_engine"),
    *(f"store/{name}" for name in ("test_golden.py", "test_port.py")),
    *(f"model/{name}" for name in ("test_crashes.py", "test_found.py", "test_schedules.py")),
)
"""Tests that run in one process; those that kill processes judge the same code, and more slowly."""
CHOSEN = "not slow and not exhaustive and not serial and not example"
OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", CHOSEN)
PATIENCE = 4.0
PATIENCE_S = 20.0
"""A mutant may take so many times as long as its tests did, and so many seconds more; then it hangs."""
TESTS_S_MAX = 90.0
PROGRESS = 20
KILLED, SURVIVED, HANGS = "killed", "survived", "hangs"


@dataclass(slots=True)
class Record:
    """What the tests did once: who executes which line of which module, and how long each takes.

    `--record` keeps it between runs on the same sources and tests: it costs most of a small sample's time.
    """

    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def tests_of(self, module: str, line: int) -> list[str]:
        """Return the tests that execute a line, quick ones first; all that touch the module when none does."""
        lines = self.lines.get(module, {})
        named = lines.get(line) or sorted({test for tests in lines.values() for test in tests})
        chosen, spent = [], 0.0
        for test in sorted(named, key=lambda name: self.seconds.get(name, 0.0)):
            spent += self.seconds.get(test, 0.0)
            if spent > TESTS_S_MAX:
                break
            chosen.append(test)
        return chosen


class Recorder:
    """A pytest plugin that gives each test a context of its own."""

    def __init__(self, measure: coverage.Coverage) -> None:
        self._measure = measure
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Enter the context of a test."""
        self._measure.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a part of a test took, and whether it failed."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("modules", nargs="*", help="for instance machine/plan.py; machine and recovery by default")
    parser.add_argument("--sample", type=int, help="so many mutants, drawn by the seed; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", metavar="LINE", type=int, help="the mutants of one line of one module")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep there which tests execute which lines")
    parser.add_argument("--show", action="store_true", help="print each survivor's code")
    asked = parser.parse_args()
    modules = asked.modules or [
        *sorted(f"machine/{path.name}" for path in (SOURCE / "agent_saga" / "machine").glob("*.py")),
        *(f"runtime/{name}.py" for name in RECOVERY),
    ]
    started = time.monotonic()
    mutants = [(name, one) for name in modules for one in mutants_of((SOURCE / "agent_saga" / name).read_text("utf-8"))]
    if asked.only:
        mutants = [(name, one) for name, one in mutants if one.line == asked.only]
    total = len(mutants)
    if asked.sample and asked.sample < total:
        mutants = random.Random(asked.seed).sample(mutants, asked.sample)  # noqa: S311 - a sample.
    print(f"{total} mutants of {len(modules)} modules, {len(mutants)} to try; seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        record = recorded(Path(folder), asked.record)
        print(f"{len(record.seconds)} tests, {time.monotonic() - started:.0f} s; mutants now", flush=True)
        results: list[tuple[str, Mutant, str]] = []
        try:
            for result in judged(mutants, record, Path(folder), jobs=asked.jobs, show=asked.show):
                results.append(result)
                if len(results) % PROGRESS == 0:
                    survivors = sum(verdict == SURVIVED for _, _, verdict in results)
                    print(f"{len(results)} tried, {survivors} survived, {time.monotonic() - started:.0f} s", flush=True)
        except KeyboardInterrupt:
            print("stopped: the score is that of the mutants tried so far", flush=True)
    report(results, time.monotonic() - started)


def report(results: list[tuple[str, Mutant, str]], seconds: float) -> None:
    """Print the score of each module and of all."""
    by_module: dict[str, Counter[str]] = defaultdict(Counter)
    for module, _, verdict in results:
        by_module[module][verdict] += 1
    for module, counts in sorted(by_module.items()):
        print(f"{module:<28}{_score(counts)}")
    everything = sum(by_module.values(), Counter[str]())
    print(f"{'score':<28}{_score(everything)}  in {seconds:.0f} s", flush=True)


def _score(counts: Counter[str]) -> str:
    tried = sum(counts.values()) or 1
    noticed = tried - counts[SURVIVED]
    return f"{100 * noticed / tried:6.1f} %  {noticed} of {tried} noticed ({counts[HANGS]} hang)"


# -- what executes what -------------------------------------------------------------------------------------------


def recorded(folder: Path, asked_for: Path | None) -> Record:
    """Run all tests once, in a child, and return which test executes which line; or read that from `asked_for`."""
    out = folder / "record.json"
    if asked_for is not None and asked_for.exists():
        out = asked_for
    else:
        child = os.fork()
        if child == 0:
            _quiet(folder / "record.log")
            _leave(lambda: _record(out))
        os.waitpid(child, 0)
    if not out.exists():
        sys.exit((folder / "record.log").read_text("utf-8", "replace")[-3000:])
    known = json.loads(out.read_text("utf-8"))
    if not known["seconds"]:
        sys.exit((folder / "record.log").read_text("utf-8", "replace")[-3000:])
    if asked_for is not None and out != asked_for:
        shutil.copy(out, asked_for)
    for test in known["failed"]:
        print(f"fails without any mutant, and is left out: {test}", flush=True)
    lines = {module: {int(line): tests for line, tests in found.items()} for module, found in known["lines"].items()}
    return Record(lines=lines, seconds=known["seconds"])


def _record(out: Path) -> int:
    measure = coverage.Coverage(data_file=None, config_file=False, include=[f"{SOURCE}/agent_saga/*"])
    recorder = Recorder(measure)
    sys.path.insert(0, str(SOURCE))
    measure.start()
    suites = [str(TESTS / name) for name in SUITES if (TESTS / name).exists()]
    options = [option for option in OPTIONS if option != "-x"]
    pytest.main([*options, *suites], plugins=[recorder])
    measure.stop()
    data = measure.get_data()
    lines: dict[str, dict[int, list[str]]] = {}
    for name in data.measured_files():
        module = str(Path(name).relative_to(SOURCE / "agent_saga"))
        contexts = data.contexts_by_lineno(name)
        sound = {line: {*tests} - {"", *recorder.failed} for line, tests in contexts.items()}
        lines[module] = {line: sorted(tests) for line, tests in sound.items()}
    out.write_text(json.dumps({"lines": lines, "seconds": recorder.seconds, "failed": recorder.failed}))
    return 0


# -- one mutant ---------------------------------------------------------------------------------------------------


def judged(
    mutants: list[tuple[str, Mutant]], record: Record, folder: Path, *, jobs: int, show: bool
) -> Iterator[tuple[str, Mutant, str]]:
    """Yield each mutant with its verdict; survivors are printed at once."""
    running: dict[int, tuple[str, Mutant, float, int]] = {}
    free = list(range(jobs))
    left = list(reversed(mutants))
    while left or running:
        while left and free:
            module, mutant = left.pop()
            tests = record.tests_of(module, mutant.line)
            limit = time.monotonic() + PATIENCE * sum(record.seconds.get(test, 0.0) for test in tests) + PATIENCE_S
            slot = free.pop()
            running[_started(folder / f"slot-{slot}", module, mutant, tests)] = (module, mutant, limit, slot)
        for child, (module, mutant, limit, slot) in list(running.items()):
            verdict = _verdict(child, limit)
            if verdict is not None:
                del running[child]
                free.append(slot)
                if verdict == SURVIVED:
                    print(f"survived  {module}:{mutant.line}  {mutant.what}", flush=True)
                    if show:
                        print((SOURCE / "agent_saga" / module).read_text("utf-8").splitlines()[mutant.line - 1])
                yield module, mutant, verdict
        time.sleep(0.02)


def _verdict(child: int, limit: float) -> str | None:
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        return SURVIVED if os.waitstatus_to_exitcode(status) == 0 else KILLED
    if time.monotonic() < limit:
        return None
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HANGS


def _started(place: Path, module: str, mutant: Mutant, tests: list[str]) -> int:
    """Fork a process that runs the tests on a copy of the sources with the mutant in it; return its id."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(SOURCE / "agent_saga", place / "agent_saga", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "agent_saga" / module).write_text(mutant.source, "utf-8")
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    _quiet(place / "log")
    sys.path.insert(0, str(place))
    os.environ["PYTHONPATH"] = str(place)
    _leave(lambda: int(pytest.main([*OPTIONS, f"--basetemp={place / 'tmp'}", *tests])) if tests else 0)
    return 0


def _quiet(log: Path) -> None:
    os.chdir(ROOT)
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(to, stream)


def _leave(work: Any) -> None:
    """End a forked child with what its work returns, and never come back."""
    code = 1
    try:
        code = work()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
