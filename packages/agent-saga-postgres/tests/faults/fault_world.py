"""A world of files for the fault tests: each effect and compensation is a line, written once and never taken back."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent_saga import AgentKit, compensator
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.writer import Writer

PLACE = "AGENT_SAGA_FAULT_WORLD"
DEATH_SEEN_S = 30.0


def note(what, item):
    """Write one line; appending is atomic, and survives the death of the process."""
    with Path(os.environ[PLACE]).open("ab", buffering=0) as file:
        file.write(f"{what} {item}\n".encode())


def seen():
    """Return how often each thing happened."""
    try:
        return Counter(Path(os.environ[PLACE]).read_text("utf-8").splitlines())
    except FileNotFoundError:
        return Counter()


@compensator("fault.take_back", idempotent=True)
def take_back(item: str):
    note("undo", item)


def make_kit(url, **options):
    """Return a kit on a log, and its one tool."""
    kit = AgentKit(url, **options)

    def put(item: str):
        note("do", item)
        return {"id": item}

    return kit, kit.wrap(put, effect="compensable", compensate=take_back.bind(item="result.id"))


def recover(log):
    with ThreadPoolExecutor(1) as executor:
        return drive(sweep(Writer(log, executor)))


def wait_for_death(log, owner):
    """Wait until the lease has run out: the database's clock is asked, nothing tells us."""
    pause = threading.Event()
    for _ in range(int(DEATH_SEEN_S / 0.05)):
        proof = log.prove_dead(owner)
        if proof is not None:
            proof.close()
            return
        pause.wait(0.05)
    raise AssertionError(f"owner {owner} does not die")
