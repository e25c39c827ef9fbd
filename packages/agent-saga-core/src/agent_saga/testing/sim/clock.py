"""Simulated time and chance: nothing moves by itself, and the same decisions give the same bytes."""

from __future__ import annotations

from typing import Final

START_NS: Final = 1_800_000_000_000_000_000
SECOND_NS: Final = 1_000_000_000


class SimClock:
    """See Clock. The wall clock may jump; the monotonic one goes on.

    Attributes:
        now_ns: the wall clock.
        mono_ns: the monotonic clock.
        stream: who draws random bytes (the ordinal of a process); each stream is its own sequence.
    """

    __slots__ = ("_drawn", "mono_ns", "now_ns", "stream")

    def __init__(self, now_ns: int = START_NS) -> None:
        self.now_ns = now_ns
        self.mono_ns = 0
        self.stream = 0
        self._drawn: dict[int, int] = {}

    def time_ns(self) -> int:
        """See Clock.time_ns."""
        return self.now_ns

    def monotonic(self) -> float:
        """See Clock.monotonic."""
        return self.mono_ns / SECOND_NS

    def entropy(self, size: int) -> bytes:
        """See Clock.entropy."""
        drawn = self._drawn[self.stream] = self._drawn.get(self.stream, 0) + 1
        word = self.stream.to_bytes(2, "big") + drawn.to_bytes(4, "big") + b"sims"
        return (word * (size // 10 + 1))[:size]

    def jitter(self) -> float:
        """See Clock.jitter."""
        return 1.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        step = int(seconds * SECOND_NS)
        self.now_ns += step
        self.mono_ns += step

    def jump(self, seconds: float) -> None:
        """Set the wall clock; no time passes."""
        self.now_ns += int(seconds * SECOND_NS)
