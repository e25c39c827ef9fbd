"""A clock for tests: it stands still until the test moves it."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Final

from agent_saga.runtime.clock import use_clock

if TYPE_CHECKING:
    from collections.abc import Iterator

START_NS: Final = 1_800_000_000_000_000_000


class FakeClock:
    """Time and chance of the engine: the same in each run.

    Delays between attempts are left out. What waits for time to pass waits until `advance` is called, so a limit that
    the engine looks at in a loop needs another thread or task to move the clock.
    """

    def __init__(self, *, start_ns: int = START_NS, seed: int = 0) -> None:
        self._now_ns = start_ns
        self._elapsed_s = 0.0
        self._random = random.Random(seed)  # noqa: S311 - ids of a test.

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not run backwards here; set `time_ns` by a new clock")
        self._now_ns += int(seconds * 1e9)
        self._elapsed_s += seconds

    def time_ns(self) -> int:
        """See Clock.time_ns."""
        return self._now_ns

    def monotonic(self) -> float:
        """See Clock.monotonic."""
        return self._elapsed_s

    def entropy(self, size: int) -> bytes:
        """See Clock.entropy."""
        return self._random.randbytes(size)

    def jitter(self) -> float:
        """See Clock.jitter: no delay at all."""
        return 0.0

    @contextlib.contextmanager
    def installed(self) -> Iterator[FakeClock]:
        """Put it in use for the whole process, for the length of the block."""
        before = use_clock(self)
        try:
            yield self
        finally:
            use_clock(before)
