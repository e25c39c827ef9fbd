"""Cost curves: what a step, a read, a recovery costs as logs, sagas, crowds and arguments grow. Nothing may bend up.

Processor time of the whole process: what grows here is work, and the disk of a shared machine has moods.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmark.crowds import run_sagas
from benchmark.logs import STEPS, fill
from benchmark.measure import Result, worked
from benchmark.tools import Shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BEND: Final = 2.0
"""How much more the last unit may cost than the first: caches get colder, nothing else."""


def one_long_saga(folder: Path) -> Iterator[Result]:
    """A saga of 20,000 steps: what the last thousand cost over the first, how long it takes to end and to read."""
    from agent_saga.store.reader import load

    shop = Shop(str(folder / "long.db"))
    costs: list[float] = []
    gc.collect()
    with shop.kit.transaction("bench") as saga:
        for thousand in range(20):
            started = time.process_time()
            for number in range(1000):
                shop.charge("cus_1", 1000 * thousand + number)
            costs.append((time.process_time() - started) / 1000 * 1e6)
        leaving = time.process_time()
    ended = time.process_time() - leaving
    store = shop.kit.writer().store
    read = worked(lambda: load(store, saga.id))
    shop.kit.close()
    curve = " ".join(f"{cost:.0f}" for cost in costs[::4])
    more = {"us_per_step": curve, "end_s": round(ended, 2), "read_s": round(read, 2)}
    yield Result(
        row="saga of 20,000 steps: the last over the first",
        value=median(costs[-4:]) / median(costs[1:5]),
        unit="x",
        limit=BEND,
        base=1.0,
        more=more,
    )


def many_open(folder: Path) -> Iterator[Result]:
    """10,000 sagas open at once in one process."""
    shop = Shop(str(folder / "open.db"))
    costs: list[float] = []

    async def run() -> None:
        over = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        async def one(here: asyncio.Queue[None]) -> None:
            async with shop.kit.transaction("bench"):
                await shop.charge_async("cus_1", 1)
                here.put_nowait(None)
                await over.wait()

        for _ in range(10):
            started = time.process_time()
            for _ in range(4):
                here: asyncio.Queue[None] = asyncio.Queue()
                tasks += [asyncio.create_task(one(here)) for _ in range(250)]
                for _ in range(250):
                    await here.get()
            costs.append((time.process_time() - started) / 1000 * 1e6)
        over.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    shop.kit.close()
    yield _bend("10,000 open sagas: the last over the first", costs)


def crowd(folder: Path) -> Iterator[Result]:
    """256 sagas at once, compared with 16."""
    shop = Shop(str(folder / "crowd.db"))
    costs: list[float] = []
    for sagas in (16, 32, 64, 128, 256):
        asyncio.run(run_sagas(shop, sagas, 2))
        took = median([worked(lambda sagas=sagas: asyncio.run(run_sagas(shop, sagas, 10))) for _ in range(5)])  # type: ignore[misc]
        costs.append(took / (sagas * 10) * 1e6)
    shop.kit.close()
    yield _bend("256 sagas at once: a step over one of 16", costs)


def large_arguments(_folder: Path) -> Iterator[Result]:
    """Arguments of up to 50 MB: time per megabyte, and memory."""
    shop = Shop("memory:")
    costs: list[float] = []
    before = _memory_mb()
    for size in (1, 5, 50):
        text = "x" * (size << 20)
        with shop.kit.transaction("bench"):
            costs.append(worked(lambda text=text: shop.charge(text, 1)) / size * 1e3)  # type: ignore[misc]
    yield _bend(
        "arguments of 50 MB: a megabyte over one of 1 MB", costs, unit="ms", grew_mb=round(_memory_mb() - before)
    )


def million(folder: Path) -> Iterator[Result]:
    """A log that grows to a million records: appending, verifying, sweeping."""
    from agent_saga.store.verify import verify

    shop = Shop(str(folder / "million.db"))
    writer = shop.kit.writer()
    appends = [worked(lambda: fill(writer, 10_000, STEPS)) / 100_000 * 1e6 for _ in range(10)]
    yield _bend("a million records: appending the last over the first", appends)
    before = _memory_mb()
    took = worked(lambda: verify(writer.store))
    yield Result(
        row="a million records: memory that verifying takes",
        value=_memory_mb() - before,
        unit="MB",
        limit=64.0,
        base=1.0,
        more={"records_per_core_s": round(1e6 / took)},
    )
    shop.kit.close()


def _bend(row: str, costs: list[float], *, unit: str = "us", **more: object) -> Result:
    curve = {f"{unit}_each": " ".join(f"{cost:.3g}" for cost in costs)}
    return Result(row=row, value=costs[-1] / costs[0], unit="x", limit=BEND, base=1.0, more=curve | more)


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


GROUPS: Final[dict[str, Callable[[Path], Iterator[Result]]]] = {
    "long-saga": one_long_saga,
    "open-sagas": many_open,
    "crowd-growth": crowd,
    "arguments": large_arguments,
    "million": million,
}
