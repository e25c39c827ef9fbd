"""What the child processes of the tests do. Usage: worker.py TASK LOG ARGUMENTS; talks in lines on stdout."""

import os
import signal
import sys
from pathlib import Path

from store_cases import Scribe

from agent_saga.store.sqlite import SqliteLog


def say(*words):
    print(*words, flush=True)


def write_until_killed(log, number):
    """Say each position after its commit returned."""
    scribe = Scribe(log, int(number), owner=log.owner()).open()
    say("opened", log.owner())
    for step in range(1, 1_000_000):
        scribe.write(scribe.intent(step), durable=step % 2 == 0)
        say("wrote", log.row(scribe.id).count)


def write_steps(log, number, steps):
    scribe = Scribe(log, int(number)).open()
    for step in range(1, int(steps) + 1):
        scribe.step(step)
    scribe.end()
    say("done")


def die_holding(log, number):
    """Leave an open saga behind, and die without a word."""
    Scribe(log, int(number), owner=log.owner()).open().step()
    say("owner", log.owner())
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)


def write_and_die(log):
    from torture import mixed  # Here: it imports the whole command line.

    mixed(log)
    os.kill(os.getpid(), signal.SIGKILL)


def claim(log, owner):
    """Say whether this process got the proof of a death, and hold it until told."""
    say("ready")
    sys.stdin.readline()
    proof = log.prove_dead(owner)
    say("won" if proof else "lost")
    sys.stdin.readline()
    if proof:
        proof.forget()


def fork_in_the_middle(log, number):
    """Fork an owner; the child writes a saga of its own and outlives its parent, which is killed."""
    scribe = Scribe(log, int(number), owner=log.owner()).open()
    parent = log.owner()
    if os.fork() == 0:
        Scribe(log, int(number) + 1, owner=log.owner()).open().step().end()
        say("child", log.owner(), parent)
        sys.stdin.readline()
        os._exit(0)
    scribe.step()
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    task, path, *arguments = sys.argv[1:]
    globals()[task](SqliteLog(Path(path), create=True), *arguments)
