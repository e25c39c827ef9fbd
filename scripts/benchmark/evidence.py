"""Rows about evidence: commands as whole processes on a log of 100,000 records, beside a bare scan that hashes them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from hashlib import sha256
from statistics import median
from typing import TYPE_CHECKING, Final

import apsw

from benchmark.logs import LONG_STEPS, STEPS, fill
from benchmark.measure import Result
from benchmark.tools import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDS: Final = 100_000
_RUNS: Final = 5


def commands(folder: Path) -> Iterator[Result]:
    """`verify`, `certify` and `graph` of many small sagas, and of one that has all the records."""
    many, one = folder / "many.db", folder / "one.db"
    shop = Shop(str(many))
    writer, sagas = shop.kit.writer(), RECORDS // (2 * STEPS + 2)
    fill(writer, sagas // 2, STEPS)
    chosen = fill(writer, 1, LONG_STEPS)
    fill(writer, sagas - sagas // 2, STEPS)
    writer.store.sync()
    shop.kit.close()
    shop = Shop(str(one))
    fill(shop.kit.writer(), 1, RECORDS // 2 - 1)
    shop.kit.writer().store.sync()
    shop.kit.close()
    for row, words, log, limit in (
        ("agent-saga verify, 100,000 records", ["verify"], many, 0.6),
        ("agent-saga certify, 100,000 records", ["certify"], many, 0.8),
        ("agent-saga graph, 20 steps out of 100,000 records", ["graph", chosen], many, 0.3),
        ("agent-saga verify, one saga of 100,000 records", ["verify"], one, 1.0),
        ("agent-saga graph, one saga of 100,000 records", ["graph"], one, 1.0),
    ):
        runs = [_run([*words, "--log", str(log)]) for _ in range(_RUNS)]
        more = {"processor_s": round(median(cpu for _, cpu in runs), 2)}
        floor = median(_scan(log) for _ in range(_RUNS))
        yield Result(row=row, value=median(wall for wall, _ in runs), unit="s", limit=limit, base=floor, more=more)


def _run(words: list[str]) -> tuple[float, float]:
    """Return wall time and processor time of a command, those of processes that it forks included."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "agent_saga", *words], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return wall, used.ru_utime + used.ru_stime


def _scan(log: Path) -> float:
    """Return how long it takes to read every body and payload and to hash the bodies, and nothing else."""
    connection = apsw.Connection(str(log), flags=apsw.SQLITE_OPEN_READONLY)
    started = time.perf_counter()
    for _, body, _ in connection.execute("SELECT pos, body, payload FROM records ORDER BY saga, n"):
        sha256(body).digest()
    took = time.perf_counter() - started
    connection.close()
    return took
