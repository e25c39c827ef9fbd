"""Rows about single steps: durable, in memory, read-only, outside of a saga, and of an idle saga."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmark.measure import Floor, Result, lowest_us, yardstick_us
from benchmark.tools import Shop, charge

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS: Final = 1500
FRESH: Final = 500
IDLE_S: Final = 2.0


def durable_sync(folder: Path) -> Iterator[Result]:
    """One saga, one step after the other, a synced write of the floor between any two."""
    shop, floor = Shop(str(folder / "sync.db")), Floor(folder)
    times: list[float] = []
    with shop.kit.transaction("bench"):
        for number in range(STEPS):
            started = time.perf_counter()
            shop.charge("cus_1", number)
            times.append(time.perf_counter() - started)
            floor.once()
    yield from _durable("durable step, sync", times, floor, factor=1.6, plus_us=40.0)
    fresh = median(times[:FRESH]) * 1e6
    base = median(floor.times[:FRESH]) * 1e6
    yield Result(row="first 500 steps, sync", value=fresh, unit="us", limit=2.2 * base + 40.0, base=base)
    shop.kit.close()
    floor.close()


def durable_async(folder: Path) -> Iterator[Result]:
    """The same in an event loop."""
    shop, floor = Shop(str(folder / "async.db")), Floor(folder)
    times: list[float] = []

    async def run() -> None:
        async with shop.kit.transaction("bench"):
            for number in range(STEPS):
                started = time.perf_counter()
                await shop.charge_async("cus_1", number)
                times.append(time.perf_counter() - started)
                floor.once()

    asyncio.run(run())
    yield from _durable("durable step, async", times, floor, factor=1.8, plus_us=60.0)
    shop.kit.close()
    floor.close()


def _durable(row: str, times: list[float], floor: Floor, *, factor: float, plus_us: float) -> Iterator[Result]:
    base = median(floor.times[FRESH:]) * 1e6
    value = median(times[FRESH:]) * 1e6
    yield Result(
        row=row, value=value, unit="us", limit=factor * base + plus_us, base=base, more={"over_floor_us": value - base}
    )


def in_memory(_folder: Path) -> Iterator[Result]:
    """Steps and read-only steps of a saga in memory, and a wrapped tool outside of any."""
    shop, bare = Shop("memory:"), yardstick_us()

    def steps(times: int) -> None:
        for number in range(times):
            shop.charge("cus_1", number)

    def reads(times: int) -> None:
        for _ in range(times):
            shop.look_up("cus_1")

    gc.collect()
    with shop.kit.transaction("bench"):
        step = lowest_us(steps, 25, rounds=200)
    with shop.kit.transaction("bench"):
        read = lowest_us(reads, 25, rounds=200)
    yield Result(row="in-memory step", value=step, unit="us", limit=25.0, base=bare)
    yield Result(row="read-only step", value=read, unit="us", limit=10.0, base=bare)
    yield _outside(bare)


def _outside(bare: float) -> Result:
    shop = Shop("memory:")

    def wrapped(times: int) -> None:
        for number in range(times):
            shop.charge("cus_1", number)

    def plain(times: int) -> None:
        for number in range(times):
            charge("cus_1", number)

    pairs = [(lowest_us(wrapped, 2000, rounds=3), lowest_us(plain, 2000, rounds=3)) for _ in range(20)]
    over = min(first for first, _ in pairs) - min(second for _, second in pairs)
    return Result(row="call outside a saga, over the bare one", value=over, unit="us", limit=0.35, base=bare)


def idle(folder: Path) -> Iterator[Result]:
    """What an open saga writes while it waits."""
    shop = Shop(str(folder / "idle.db"))
    with shop.kit.transaction("bench"):
        shop.charge("cus_1", 1)
        time.sleep(0.3)  # The background commit is over.
        before = _written()
        time.sleep(IDLE_S)
        after = _written()
    shop.kit.close()
    yield Result(row="an idle open saga, for 2 s", value=float(after - before), unit="bytes", limit=0.0, base=1.0)


def _written() -> int:
    """Return how many bytes this process has given to `write` so far (Linux), without those of this look."""
    counters = Path(f"/proc/{os.getpid()}/io")
    if not counters.exists():
        return 0
    lines = dict(line.split(": ") for line in counters.read_text(encoding="ascii").splitlines())
    return int(lines["wchar"])
