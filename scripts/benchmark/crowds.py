"""Rows about many sagas at once: in one event loop, and in several processes that write one file."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmark.measure import Floor, Result
from benchmark.tools import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SAGAS: Final = 64
STEPS: Final = 20
ROUNDS: Final = 9
PROCESSES: Final = 4
SAGAS_EACH: Final = 16
STEPS_EACH: Final = 40
SINGLE_STEPS: Final = 400
TICK_S: Final = 0.001


class Commits:
    """Counts the commits that a kit makes: it stands before the log."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.durable = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, items: Sequence[Any], *, durable: bool) -> Any:
        """See LogStore.append."""
        self.durable += durable
        return self._store.append(items, durable=durable)


async def run_sagas(shop: Shop, sagas: int, steps: int, times: list[float] | None = None) -> None:
    """Run some sagas of some steps side by side."""

    async def one() -> None:
        async with shop.kit.transaction("bench"):
            for number in range(steps):
                started = time.perf_counter()
                await shop.charge_async("cus_1", number)
                if times is not None:
                    times.append(time.perf_counter() - started)

    await asyncio.gather(*(one() for _ in range(sagas)))


def concurrent(folder: Path) -> Iterator[Result]:
    """64 async sagas in one process; synced writes of the floor between the rounds."""
    shop, floor = Shop(str(folder / "crowd.db")), Floor(folder)
    writer = shop.kit.writer()
    commits = Commits(writer.store)
    writer.store = commits
    costs: list[float] = []

    async def rounds() -> None:
        await run_sagas(shop, SAGAS, 5)
        commits.durable = 0
        for _ in range(ROUNDS):
            for _ in range(60):
                floor.once()
            started = time.perf_counter()
            await run_sagas(shop, SAGAS, STEPS)
            costs.append((time.perf_counter() - started) / (SAGAS * STEPS))

    asyncio.run(rounds())
    value, base = median(costs) * 1e6, floor.us
    per_commit = ROUNDS * SAGAS * STEPS / commits.durable
    yield Result(row="64 sagas at once, per step", value=value, unit="us", limit=0.35 * base, base=base)
    yield Result(row="64 sagas at once, steps per commit", value=per_commit, unit="", limit=30.0, base=64.0, rate=True)
    shop.kit.close()
    floor.close()


def processes(folder: Path) -> Iterator[Result]:
    """4 processes of 16 sagas each on one file, compared with one saga that has the file to itself."""
    log = str(folder / "processes.db")
    shop = Shop(log)
    asyncio.run(run_sagas(shop, 1, 50))
    single: list[float] = []
    asyncio.run(run_sagas(shop, 1, SINGLE_STEPS, single))
    command = [sys.executable, "-m", "benchmark.crowds", log]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for worker in workers:
        _line(worker)  # It is ready.
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    told = [json.loads(_line(worker)) for worker in workers]
    for worker in workers:
        worker.communicate()
    asyncio.run(run_sagas(shop, 1, SINGLE_STEPS, single))
    shop.kit.close()
    took = max(one["end"] for one in told) - min(one["begin"] for one in told)
    rate = PROCESSES * SAGAS_EACH * STEPS_EACH / took
    alone = 1 / median(single)
    times = sorted(seconds for one in told for seconds in one["times"])
    late = sorted(seconds for one in told for seconds in one["late"])
    yield Result(
        row="4 processes x 16 sagas, rate over one saga's",
        value=rate / alone,
        unit="x",
        limit=3.0,
        base=1.0,
        rate=True,
        more={"steps_per_s": round(rate), "one_saga_steps_per_s": round(alone)},
    )
    p99 = times[int(len(times) * 0.99)] * 1e3
    more = {
        "loop_late_p99_ms": round(late[int(len(late) * 0.99)] * 1e3, 2),
        "loop_late_max_ms": round(late[-1] * 1e3, 2),
    }
    yield Result(
        row="4 processes x 16 sagas, p99", value=p99, unit="ms", limit=10.0, base=median(single) * 1e3, more=more
    )


def _line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError("a worker of the bench has died")
    return line


async def _worker(shop: Shop) -> dict[str, Any]:
    """Run this process's sagas, and watch how late the loop is for a clock of 1 ms."""
    times: list[float] = []
    late: list[float] = []
    done = asyncio.Event()

    async def tick() -> None:
        while not done.is_set():
            started = time.perf_counter()
            await asyncio.sleep(TICK_S)
            late.append(time.perf_counter() - started - TICK_S)

    ticking = asyncio.create_task(tick())
    begin = time.time()
    await run_sagas(shop, SAGAS_EACH, STEPS_EACH, times)
    end = time.time()
    done.set()
    await ticking
    return {"begin": begin, "end": end, "times": times, "late": late}


def main(log: str) -> None:
    """Be one of the processes."""
    shop = Shop(log)
    asyncio.run(run_sagas(shop, 2, 2))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(_worker(shop))), flush=True)
    shop.kit.close()


if __name__ == "__main__":
    main(sys.argv[1])
