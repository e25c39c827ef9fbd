"""What a step costs in a log in PostgreSQL, beside a bare insert and commit of 600 bytes in the same run.

Usage: python measure.py [--url URL] [--steps 300]. Without a URL a server with fsync=on is started.
`measure(url, steps=300)` returns the figures: microseconds, rates, and the two ratios that are asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
import warnings

import psycopg

from agent_saga import AgentKit, compensator

BODY = b"x" * 600
CONCURRENT = 64


@compensator("measure.take_back", idempotent=True)
def take_back(item: str) -> None:
    """Nothing is rolled back here."""


def measure(url, *, steps=300):
    """Measure single steps between bare commits, then many sagas at once.

    Args:
        url: an empty database.
        steps: of each kind.
    """
    kit = AgentKit(url)
    call = kit.wrap(
        lambda item: {"id": item}, name="call", effect="compensable", compensate=take_back.bind(item="result.id")
    )

    async def answer(item: str):
        return {"id": item}

    acall = kit.wrap(answer, effect="compensable", compensate=take_back.bind(item="result.id"))
    bare, single = _alternately(url, kit, call, steps)
    rate = asyncio.run(_at_once(kit, acall, max(steps // 10, 5)))
    kit.close()
    bare_s, single_s = statistics.mean(bare), statistics.mean(single)
    return {
        "bare_us": bare_s * 1e6,
        "step_us": single_s * 1e6,
        "step_per_bare": single_s / bare_s,
        "step_per_bare_median": statistics.median(single) / statistics.median(bare),
        "steps_per_s_at_64": rate,
        "throughput_at_64_per_single_step": rate * single_s,
        "throughput_at_64_per_bare_commit": rate * bare_s,
    }


def _alternately(url, kit, call, steps):
    bare, single = [], []
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection, kit.transaction("single"):
        connection.execute("CREATE TABLE IF NOT EXISTS bare(no bigserial PRIMARY KEY, body bytea)")
        for number in range(steps + 20):
            began = time.perf_counter()
            connection.execute("INSERT INTO bare(body) VALUES(%b)", (BODY,))
            between = time.perf_counter()
            call(item=str(number))
            if number >= 20:
                bare.append(between - began)
                single.append(time.perf_counter() - between)
    return bare, single


async def _at_once(kit, acall, steps):
    async def one(number, count):
        async with kit.transaction("many"):
            for step in range(count):
                await acall(item=f"{number}.{step}")

    await asyncio.gather(*(one(number, 2) for number in range(CONCURRENT)))
    began = time.perf_counter()
    await asyncio.gather(*(one(number, steps) for number in range(CONCURRENT)))
    return CONCURRENT * steps / (time.perf_counter() - began)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # A compensator in this file is good enough here.
    if options.url:
        found = measure(options.url, steps=options.steps)
    else:
        from pytest_agent_saga.postgres import PostgresServer

        with PostgresServer.started({"fsync": "on"}) as server:
            found = measure(server.database(), steps=options.steps)
    for name, value in found.items():
        print(f"{name}: {value:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
