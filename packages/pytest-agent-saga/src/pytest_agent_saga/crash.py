"""Kill a program at each place that matters, recover in another process, and compare the world."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from agent_saga.machine.report import report_of
from agent_saga.store.open import open_log
from agent_saga.store.port import Query
from agent_saga.store.reader import load
from agent_saga.testing import CRASH_AT
from pytest_agent_saga.crash_child import FAIL_AFTER, REACHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_saga import RollbackReport

PROCESS_S: Final = 60.0
"""How long a process may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """How a process ended.

    Attributes:
        point: where it was to be killed; None for nowhere.
        killed: it died by SIGKILL, there.
        points: those that it reached, in order; empty when it was killed.
        effects: how many effects were recorded; 0 when it was killed.
        stderr: what it had to say.
    """

    point: str | None
    killed: bool
    points: tuple[str, ...]
    effects: int
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashes:
    """What `everywhere` did.

    Attributes:
        kills: each place where a process was killed.
        committed: how many of them left a saga that had committed.
    """

    kills: tuple[str, ...]
    committed: int


class CrashRunner:
    """Runs a program of the user in processes of its own; `AGENT_SAGA_LOG` names their log.

    Args:
        log: the log that the program's kits use.
        folder: for files of this runner.
        python: the interpreter.
    """

    def __init__(self, *, log: str, folder: Path, python: str = sys.executable) -> None:
        self.log, self._folder, self._python = log, folder, python
        self._runs = 0

    # -- one process ------------------------------------------------------------------------------------------------

    def run(self, target: str, *, kill_at: str | None = None, fail_after: int = 0) -> Died:
        """Run a program, and kill its process at a point.

        Args:
            target: `module:function` or `path/to/file.py:function`; the function takes nothing, and may be async.
            kill_at: the name of a point (`before effect of charge`), for its third time with ` #3`.
            fail_after: the number of the effect after which the workflow fails, so that it rolls back; 0 for none.
        """
        return self._start(["run", target], kill_at, fail_after)

    def recover(self, *imports: str, kill_at: str | None = None) -> Died:
        """Recover in a process of its own, which may be killed too.

        Args:
            imports: modules or files that define the compensators and probes.
            kill_at: as for `run`.
        """
        return self._start(["recover", *imports], kill_at, 0)

    def _start(self, arguments: list[str], kill_at: str | None, fail_after: int) -> Died:
        self._runs += 1
        reached = self._folder / f"crash-{self._runs}.json"
        environment = {
            **os.environ,
            "AGENT_SAGA_LOG": self.log,
            REACHED: str(reached),
            FAIL_AFTER: str(fail_after),
            CRASH_AT: kill_at or "",
        }
        done = subprocess.run(  # noqa: S603 - the test's own program.
            [self._python, "-m", "pytest_agent_saga.crash_child", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROCESS_S,
            check=False,
        )
        killed = done.returncode == -signal.SIGKILL
        told: dict[str, Any] = (
            json.loads(reached.read_text("utf-8")) if reached.exists() else {"points": [], "effects": 0}
        )
        if not killed and not reached.exists():
            pytest.fail(f"the process of {arguments} ended by itself, with {done.returncode}:\n{done.stderr}")
        if kill_at is not None and not killed:
            pytest.fail(f"{arguments} never came to {kill_at!r}; it reached: {', '.join(told['points'])}")
        return Died(
            point=kill_at,
            killed=killed,
            points=_numbered(told["points"]),
            effects=told["effects"],
            stderr=done.stderr,
        )

    # -- what is left -----------------------------------------------------------------------------------------------

    def reports(self) -> tuple[RollbackReport, ...]:
        """Return what the log says of each of its sagas; nothing when there is no log yet."""
        return tuple(self._reports()) if Path(self.log).exists() else ()

    def _reports(self) -> Iterator[RollbackReport]:
        store = open_log(self.log, create=False, allow_fs=True)
        try:
            after = None
            while page := store.rows(Query(after=after)):
                for row in page:
                    loaded = load(store, row.saga_id)
                    if loaded is not None:
                        yield report_of(loaded.view)
                after = page[-1].saga_id
        finally:
            store.close()

    def forget(self) -> None:
        """Remove the log, so that the next run begins with none."""
        place = Path(self.log)
        for path in place.parent.glob(f"{place.name}*"):
            if path.is_dir():
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()
            else:
                path.unlink()

    # -- everywhere -------------------------------------------------------------------------------------------------

    def everywhere(
        self,
        target: str,
        *,
        imports: Sequence[str],
        snapshot: Callable[[], Any],
        reset: Callable[[], Any],
        in_recovery: bool = False,
    ) -> Crashes:
        """Kill the program at each point, once as it is and once failing after its last effect; recover; compare.

        Of two points between which nothing can happen, one is taken.

        After recovery the world must be as before, or, where the saga had committed, as after an undisturbed run.

        Args:
            target: as for `run`.
            imports: as for `recover`.
            snapshot: returns the world, which the program shares with the test, as a comparable value.
            reset: brings it back.
            in_recovery: kill the recovery too, at each of its points after the last effect, and recover once more.
        """
        tried = _Tried(self, target, tuple(imports), snapshot, reset)
        tried.look()
        for fail_after in (0, tried.effects):
            for point in _distinct(tried.points if not fail_after else tried.points_while_failing()):
                tried.kill(point, fail_after)
        if in_recovery and tried.effects:
            tried.kill_recoveries()
        return Crashes(kills=tuple(tried.kills), committed=tried.committed)


class _Tried:
    """One `everywhere`."""

    def __init__(
        self,
        runner: CrashRunner,
        target: str,
        imports: tuple[str, ...],
        snapshot: Callable[[], Any],
        reset: Callable[[], Any],
    ) -> None:
        self.runner, self.target, self.imports = runner, target, imports
        self.snapshot, self.reset = snapshot, reset
        self.kills: list[str] = []
        self.committed = 0
        self.effects = 0
        self.points: tuple[str, ...] = ()
        self.before: Any = None
        self.after: Any = None

    def begin(self) -> None:
        """Bring back world and log."""
        self.reset()
        self.runner.forget()

    def look(self) -> None:
        """Run the program undisturbed."""
        self.begin()
        self.before = copy.deepcopy(self.snapshot())
        whole = self.runner.run(self.target)
        self.after = copy.deepcopy(self.snapshot())
        self.points, self.effects = whole.points, whole.effects

    def points_while_failing(self) -> tuple[str, ...]:
        """Return the points of a run that fails after its last effect."""
        self.begin()
        return self.runner.run(self.target, fail_after=self.effects).points

    def kill(self, point: str, fail_after: int) -> None:
        """Kill the program at a point, recover, and compare."""
        self.begin()
        self.runner.run(self.target, kill_at=point, fail_after=fail_after)
        self.runner.recover(*self.imports)
        name = f"{point}, while failing" if fail_after else point
        self.committed += self.compare(f"killed {name}")
        self.kills.append(name)

    def kill_recoveries(self) -> None:
        """Kill the recovery of a program that died after its last effect, at each point of that."""
        last = [point for point in self.points if point.startswith("after effect")][-1]
        self.begin()
        self.runner.run(self.target, kill_at=last)
        for point in _distinct(self.runner.recover(*self.imports).points):
            self.begin()
            self.runner.run(self.target, kill_at=last)
            self.runner.recover(*self.imports, kill_at=point)
            self.runner.recover(*self.imports)
            self.compare(f"killed {last}, and {point} in recovery")
            self.kills.append(f"{point}, in recovery")

    def compare(self, place: str) -> bool:
        """Compare world, log and report; returns whether the saga had committed."""
        reports, world = self.runner.reports(), self.snapshot()
        committed = any(report.outcome == "committed" for report in reports)
        expected = self.after if committed else self.before
        if world != expected or any(report.left for report in reports):
            said = "\n".join(report.format_text() for report in reports) or "the log holds no saga"
            text = f"{place}, then recovered: the world is {world!r}, and should be {expected!r}\n{said}"
            pytest.fail(text, pytrace=False)
        return committed


def _distinct(points: Sequence[str]) -> Iterator[str]:
    """Yield the points without those between which and the one before nothing of the program runs, nor of the log."""
    last = ""
    for point in points:
        same = (
            (_ends_in(last, "intent") and point.startswith("before effect"))
            or (_ends_in(last, "compensation_intent") and point.startswith("before compensation"))
            or (last.startswith(("after effect", "after compensation")) and point.startswith("before commit"))
        )
        if not same:
            yield point
        last = point


def _ends_in(point: str, kind: str) -> bool:
    """Tell whether a point comes after a commit whose last record is of this kind."""
    return point.startswith("after commit of ") and point.rpartition(" of ")[2].rpartition("+")[2].startswith(kind)


def _numbered(points: Sequence[str]) -> tuple[str, ...]:
    """Return the names of points, each with the number of its time where it comes again."""
    named: list[str] = []
    for number, point in enumerate(points):
        nth = list(points[: number + 1]).count(point)
        named.append(point if nth == 1 else f"{point} #{nth}")
    return tuple(named)
