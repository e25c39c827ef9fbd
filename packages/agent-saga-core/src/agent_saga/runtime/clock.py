"""Time and chance, in one place: the simulator and tests put their own here."""

from __future__ import annotations

import os
import random
import time
from typing import Protocol


class Clock(Protocol):
    """Where the engine gets time and chance from."""

    def time_ns(self) -> int:
        """Return nanoseconds since the Unix epoch."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""

    def entropy(self, size: int) -> bytes:
        """Return `size` random bytes."""

    def jitter(self) -> float:
        """Return a factor from 0.5 to 1 for a delay."""


class SystemClock:
    """The machine's clock and its random numbers."""

    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
    entropy = staticmethod(os.urandom)

    @staticmethod
    def jitter() -> float:
        """See Clock.jitter."""
        return random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries; nothing secret.


_clock: Clock = SystemClock()


def clock() -> Clock:
    """Return the clock in use."""
    return _clock


def use_clock(new: Clock) -> Clock:
    """Put another clock in use for the whole process, and return the one before."""
    global _clock
    before, _clock = _clock, new
    return before
