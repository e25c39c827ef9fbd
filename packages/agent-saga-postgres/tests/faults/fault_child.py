"""Processes of the fault tests. Usage: TASK URL WORDS...; they talk in lines on stdout, and wait for lines on stdin."""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fault_world import make_kit, note

from agent_saga.errors import LogFailed, OwnerReplaced, SagaError


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def hold(url, name):
    """Do a step, wait to be told, do another one; say what became of it."""
    kit, put = make_kit(url)
    try:
        with kit.transaction(name) as saga:
            put(item=f"{name}-1")
            say("held", saga.id)
            sys.stdin.readline()
            put(item=f"{name}-2")
        say("ended", saga.report.outcome)
    except OwnerReplaced:
        say("replaced")
    except LogFailed as failure:
        say("failed", failure)
    kit.close()


def leave(url, count):
    """Leave so many sagas of two steps open, and wait to be killed."""
    kit, put = make_kit(url)
    scopes = []
    for number in range(int(count)):
        scopes.append(kit.transaction(f"left-{number}", independent=True))
        saga = scopes[-1].__enter__()
        for step in (1, 2):
            put(item=f"{saga.id}-{step}")
    say("left")
    sys.stdin.readline()


def work(url, worker, count, seed):
    """Run sagas of one to three steps; about one in four fails. Says the number of each that ended."""
    kit, put = make_kit(url)
    chance = random.Random(f"{seed}-{worker}")
    note("start", worker)
    for number in range(int(count)):
        try:
            with kit.transaction("work", key=f"{worker}/{number}") as saga:
                for step in range(chance.randint(1, 3)):
                    put(item=f"{saga.id}/{step}")
                if chance.random() < 0.25:
                    raise ValueError("a failure of the work itself")
        except ValueError:
            pass
        except SagaError as error:
            say("error", type(error).__name__, error)
    kit.close()
    say("done", worker)


if __name__ == "__main__":
    {"hold": hold, "leave": leave, "work": work}[sys.argv[1]](*sys.argv[2:])
