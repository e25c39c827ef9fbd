"""Rows about large logs: verifying, sweeping, reading one saga, recovering orphans."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmark.measure import Floor, Result, timed, yardstick_us
from benchmark.tools import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.runtime.writer import Writer

SAGAS: Final = 100_000
STEPS: Final = 4
"""With its beginning and end a saga of 4 steps has 10 records."""
LONG_STEPS: Final = 20
ORPHANS: Final = 2_000
BATCH: Final = 100


def fill(writer: Writer, sagas: int, steps: int) -> str:
    """Append closed sagas to a log as fast as can be, by the engine's own records and fold; returns the last one's id.

    There are no tools and no gate, and nothing waits for the device.
    """
    from agent_saga.model import records as r
    from agent_saga.model.ids import step_id
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.opening import Opening, _record
    from agent_saga.runtime.saga import Limits

    recipe = r.Recipe(name="bench.refund", version=1, bind={"charge_id": "result.id"}, idempotent=True)
    opening = Opening(name="bench", limits=Limits())
    saga_id = ""
    for number in range(sagas):
        live = LiveSaga.opening(writer, _record(opening, incarnation=1))
        saga_id = live.id
        for no in range(1, steps + 1):
            live.emit(
                r.Intent,
                {"kwargs.customer": '"cus_1"', "kwargs.amount": str(no)},
                hold=True,
                step=no,
                tool="charge",
                version=1,
                effect="compensable",
                key=step_id(saga_id, no),
                recipe=recipe,
            )
            values = {"result": '{"id":"ch_1","ok":true}', "compensation.charge_id": '"ch_1"'}
            live.emit(r.Outcome, values, hold=True, step=no, state="succeeded", bound=True)
        live.emit(r.SagaEnded, outcome="committed")
        if number % BATCH == BATCH - 1:
            writer.flush()
    writer.flush()
    return saga_id


def large_log(folder: Path, *, sagas: int = SAGAS) -> Iterator[Result]:
    """A log of 100,000 closed sagas and a million records."""
    from agent_saga.cli.story import story_of
    from agent_saga.runtime.ops import drive
    from agent_saga.runtime.recover import sweep
    from agent_saga.store.verify import verify

    shop, bare = Shop(str(folder / "large.db")), yardstick_us()
    writer = shop.kit.writer()
    fill(writer, sagas // 2, STEPS)
    chosen = fill(writer, 1, LONG_STEPS)
    fill(writer, sagas - sagas // 2 - 1, STEPS)
    writer.store.sync()
    looks = [timed(lambda: drive(sweep(writer))) for _ in range(15)]
    yield Result(row="idle sweep over closed sagas", value=median(looks) * 1e3, unit="ms", limit=20.0, base=bare)

    def read() -> None:
        row = writer.store.row(chosen)
        assert row is not None
        story_of(writer.store, row, lambda *words: " ".join(words))

    reads = [timed(read) for _ in range(15)]
    yield Result(
        row="one saga of 20 steps, read and drawn", value=median(reads) * 1e3, unit="ms", limit=100.0, base=bare
    )
    before = _memory_mb()
    started = time.process_time()
    report = verify(writer.store)
    rate = report.records / (time.process_time() - started)
    yield Result(
        row="verify, records per second of one core",
        value=rate,
        unit="/s",
        limit=200_000.0,
        base=1e6 / bare,
        rate=True,
        more={"records": report.records, "grew_mb": round(_memory_mb() - before, 1)},
    )
    shop.kit.close()


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def orphans(folder: Path, *, number: int = ORPHANS) -> Iterator[Result]:
    """Sagas of one step whose process died, recovered one after the other."""
    from agent_saga.runtime.ops import drive
    from agent_saga.runtime.recover import sweep

    log = str(folder / "orphans.db")
    subprocess.run([sys.executable, "-m", "benchmark.logs", log, str(number)], check=True)
    shop, floor = Shop(log), Floor(folder)
    for _ in range(150):
        floor.once()
    started = time.perf_counter()
    done = drive(sweep(shop.kit.writer()))
    each = (time.perf_counter() - started) / len(done) * 1e6
    for _ in range(150):
        floor.once()
    shop.kit.close()
    assert len(done) == number
    assert all(one.action == "recovered" and not one.left for one in done)
    yield Result(row="recover an orphan of one step", value=each, unit="us", limit=3.0 * floor.us, base=floor.us)
    floor.close()


def die_with_orphans(log: str, number: int) -> None:
    """Open sagas, make one step in each, and die."""
    shop = Shop(log)

    async def one() -> None:
        scope = shop.kit.transaction("orphan")
        await scope.__aenter__()
        scopes.append(scope)
        await shop.charge_async("cus_1", 1)

    async def all_of_them() -> None:
        for start in range(0, number, 250):
            await asyncio.gather(*(one() for _ in range(min(250, number - start))))
        os._exit(0)

    scopes: list[object] = []
    asyncio.run(all_of_them())


if __name__ == "__main__":
    die_with_orphans(sys.argv[1], int(sys.argv[2]))
