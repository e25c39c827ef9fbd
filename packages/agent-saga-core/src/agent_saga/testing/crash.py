"""Crash points: a test program is killed at each place where a death makes a difference, one run after the other.

The engine has no hooks. A saga changes the log and the world, so the places that matter are before and after each
commit, and before, inside and after each effect. `watch_commits` finds the first kind by standing before the log;
tools and compensators of the test program name the second kind themselves with `CrashPoints.reach`. A run without an
armed point counts them, so that a matrix needs no list of its own:

    points = CrashPoints.from_environment()
    watch_commits(kit.writer(), points)
    ...
    points.reach("charge: before the effect")
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from agent_saga.model.records import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from agent_saga.runtime.writer import Writer
    from agent_saga.store.port import Item, LogStore, Verdict

CRASH_AT: Final = "AGENT_SAGA_CRASH_AT"
"""The environment variable that arms a point: its number, or its name."""


def die() -> NoReturn:
    """Kill this process the way `kill -9` does: no handler, no `finally`, no flush."""
    while True:  # The signal ends the process before the call returns.
        os.kill(os.getpid(), signal.SIGKILL)


class CrashPoints:
    """The points that a run reaches, in order; the process is killed at the first armed one.

    Concurrency:
        `reach` may be called from any thread; numbers are given in the order of the calls.
    """

    def __init__(self, *crash_at: int | str, crash: Callable[[], Any] = die) -> None:
        """Arm points, or none.

        Args:
            crash_at: numbers (from 1) or names of points; a name means its first time, `NAME #3` its third.
            crash: what happens there, for tests that stop the process instead of killing it.
        """
        self.reached: Final[list[str]] = []
        self._crash_at, self._crash = frozenset(crash_at), crash
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls) -> CrashPoints:
        """Arm what `AGENT_SAGA_CRASH_AT` names."""
        text = os.environ.get(CRASH_AT, "")
        return cls(*([int(text) if text.isdigit() else text] if text else []))

    def reach(self, name: str) -> None:
        """Say that the run is at a point."""
        if self._enter(name):
            self._crash()

    def _enter(self, name: str) -> bool:
        with self._lock:
            self.reached.append(name)
            nth = self.reached.count(name)
            here = {len(self.reached), f"{name} #{nth}", name if nth == 1 else ""}
        return not here.isdisjoint(self._crash_at)


class CrashingStore:
    """A log with a crash point before and after each append; everything else is the log's own."""

    def __init__(self, store: LogStore, points: CrashPoints) -> None:
        self._store, self._points = store, points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, items: Sequence[Item], *, durable: bool) -> list[Verdict]:
        """See LogStore.append."""
        what = self._describe(items)
        self._points.reach(f"before commit of {what}")
        verdicts = self._store.append(items, durable=durable)
        self._points.reach(f"after commit of {what}")
        return verdicts

    def _describe(self, items: Sequence[Item]) -> str:
        """Name the records: two runs of one program must give a point the same name."""
        return "+".join(self._name(draft.body) for item in items for draft in item.drafts)

    def _name(self, body: Any) -> str:
        kind = kind_of(body)
        step = getattr(body, "step", 0)
        return f"{kind} {step}" if step else kind


def watch_commits(writer: Writer, points: CrashPoints) -> None:
    """Put a crash point before and after each commit that this process makes to a log.

    Args:
        writer: of the kit (`kit.writer()`), before it has written.
        points: of the run.
    """
    writer.store = CrashingStore(writer.store, points)
