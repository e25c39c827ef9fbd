"""A world of files for the fault tests: each effect and compensation is a line, written once and never taken back."""

from __future__ import annotations

import os
from collections import Counter

from agent_saga import AgentKit, compensator

PLACE = "AGENT_SAGA_FAULT_WORLD"


def note(what, item):
    """Write one line; appending is atomic, and survives the death of the process."""
    with open(os.environ[PLACE], "ab", buffering=0) as file:
        file.write(f"{what} {item}\n".encode())


def seen():
    """Return how often each thing happened."""
    try:
        with open(os.environ[PLACE], encoding="utf-8") as file:
            return Counter(file.read().splitlines())
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
