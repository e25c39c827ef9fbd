"""A clock that jumps, child processes, and the check that a log is undamaged."""

import os
import subprocess
import sys
from pathlib import Path

from agent_saga.runtime.clock import SystemClock
from agent_saga.store.open import open_log
from agent_saga.store.verify import verify

CHILD = Path(__file__).with_name("gate_child.py")
TIMEOUT_S = 60


class JumpingClock(SystemClock):
    """The machine's clock, moved by a test."""

    def __init__(self):
        self.moved_ns = 0

    def time_ns(self):
        return SystemClock.time_ns() + self.moved_ns

    def jump(self, seconds):
        self.moved_ns += int(seconds * 1e9)


class Child:
    """A process at work on the log: it says lines, and goes on when it is told to."""

    def __init__(self, *words, env=()):
        command = [sys.executable, "-W", "error", str(CHILD), *map(str, words)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, bufsize=1, env={**os.environ, **dict(env)}
        )

    def hear(self, word):
        """Wait for a line that begins with `word`, and return the rest of it."""
        for line in self.process.stdout:
            if line.startswith(word):
                return line[len(word) :].strip()
        raise AssertionError(f"it ended (exit {self.process.wait()}) without a word of {word!r}")

    def tell(self, line="go"):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self):
        """Wait for its end; return its last lines."""
        out, _ = self.process.communicate(timeout=TIMEOUT_S)
        return out.splitlines()

    def kill(self):
        self.process.kill()
        self.process.communicate()


def check(url):
    store = open_log(url, create=False)
    try:
        return verify(store)
    finally:
        store.close()
