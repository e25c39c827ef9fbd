"""Halts, drains and quarantines as they are now, read once for many intents of one moment, and still never stale.

They are asked for before each intent, and a question to the server costs as much as an append. So an answer serves all
who ask within `KEPT_S` after the question was sent, and whoever puts or lifts a stop waits `WAITED_S` between the
commit and its return: by then no process uses an answer from before the commit. The clock is one that counts while the
machine sleeps, and the wait is four times as long as an answer is used, so clocks may run that much apart.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from agent_saga.machine.gate import HALTING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.store.port import Item

KEPT_S: Final = 0.025
WAITED_S: Final = 4 * KEPT_S
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Stops:
    """What was last read. Any thread may ask; two that read at once do no harm."""

    def __init__(self, read: Callable[[], list[Fact]]) -> None:
        self._read = read
        self._known: tuple[float, list[Fact]] = (float("-inf"), [])

    def now(self) -> list[Fact]:
        """Return the stops that hold now."""
        sent = time.clock_gettime(_CLOCK)
        asked, known = self._known
        if sent - asked <= KEPT_S:
            return known
        found = self._read()
        self._known = (sent, found)  # Of when it was sent: what is committed while it travels may be missing.
        return found

    def forget(self) -> None:
        """Read anew next time."""
        self._known = (float("-inf"), [])

    def wait_for_others(self) -> None:
        """Wait until no process uses an answer from before now."""
        self.forget()
        time.sleep(WAITED_S)
        self.forget()


def changes_stops(items: Sequence[Item]) -> bool:
    """Tell whether items put or lift a stop."""
    for item in items:
        for change in (item.facts, None if item.amended is None else item.amended.facts):
            if change is not None and any(fact.kind in HALTING for fact in (*change.added, *change.removed)):
                return True
    return False
