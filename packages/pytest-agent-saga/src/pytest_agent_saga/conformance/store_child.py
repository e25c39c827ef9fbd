"""The processes that `LogStoreSuite` starts. Usage: URL TASK ARGUMENTS; talks in lines on stdout."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final

from agent_saga.store.open import open_log
from pytest_agent_saga.conformance.sagas import Scribe

STEPS: Final = 20


def say(*words: object) -> None:
    """Tell the test something."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def write(store: Any, number: str) -> None:
    """Write a saga of `STEPS` steps, when told to."""
    say("ready")
    sys.stdin.readline()
    scribe = Scribe(store, int(number), owner=store.owner()).open()
    for step in range(1, STEPS + 1):
        scribe.step(step)
    scribe.end()
    say("done")


def die(store: Any, number: str) -> None:
    """Write a step durably and one that is only written, say so, and die without a word."""
    scribe = Scribe(store, int(number), owner=store.owner()).open().step().step(2)
    say("owner", store.owner(), scribe.view.count)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Do what the test asks for."""
    url, task, *rest = arguments
    store = open_log(url, create=True, allow_fs=True)
    {"write": write, "die": die}[task](store, *rest)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
