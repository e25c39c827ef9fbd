"""How things are timed here: the floor beside the subject in one loop, medians, and what a row reports."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FLOOR_BYTES: Final = 600
"""What the floor writes: about as much as an intent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measured row.

    Attributes:
        row: its name.
        value: what it costs, in `unit`.
        limit: what it may cost, in the same unit; computed from the floor of the same run where the table says so.
        base: what `value` is compared with from run to run (the floor, a bare call, a peer), in the same unit.
        rate: larger is better.
        more: other figures, for people.
    """

    row: str
    value: float
    unit: str
    limit: float
    base: float
    rate: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the row reaches what the table says."""
        return self.value >= self.limit if self.rate else self.value <= self.limit

    @property
    def ratio(self) -> float:
        """The figure that is compared between runs; smaller is better."""
        return self.base / self.value if self.rate else self.value / self.base


class Floor:
    """`write` and `fdatasync` to a growing file, timed one by one."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "floor", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._block = b"x" * FLOOR_BYTES
        self.times: list[float] = []

    def once(self) -> None:
        """Write once."""
        started = time.perf_counter()
        os.write(self._fd, self._block)
        os.fdatasync(self._fd)
        self.times.append(time.perf_counter() - started)

    @property
    def us(self) -> float:
        """The median, in microseconds."""
        return median(self.times) * 1e6

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def timed(call: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def worked(call: Callable[[], object]) -> float:
    """Return how many seconds of processor time a call takes, in all threads."""
    started = time.process_time()
    call()
    return time.process_time() - started


def lowest_us(call: Callable[[int], object], times: int, *, rounds: int) -> float:
    """Return microseconds for one of `times` repetitions in the quietest of some rounds: what it costs, without noise.

    It is this thread's time on a processor, so that others who want one do not count.

    Args:
        call: does the thing as often as it is told.
        times: in each round.
        rounds: how many.
    """

    def once() -> float:
        started = time.thread_time()
        call(times)
        return time.thread_time() - started

    return min(once() for _ in range(rounds)) / times * 1e6


def yardstick_us() -> float:
    """Return what a small Python call costs here and now: the base of rows that are all Python."""

    def call(customer: str, amount: int) -> dict[str, object]:
        return {"id": customer, "amount": amount}

    def many(times: int) -> None:
        for number in range(times):
            call("cus_1", number)

    return lowest_us(many, 5000, rounds=20)
