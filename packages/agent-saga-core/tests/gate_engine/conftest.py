"""Fixtures of the tests of the gate in the engine: kits on both logs, a clock that jumps, and child processes."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

import gate_world

from agent_saga.runtime.clock import SystemClock, use_clock
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


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(gate_world.PLACE, str(tmp_path / "world"))


@pytest.fixture
def clock():
    clock = JumpingClock()
    before = use_clock(clock)
    yield clock
    use_clock(before)


@pytest.fixture
def log(tmp_path):
    return str(tmp_path / "log.db")


@pytest.fixture(params=["memory", "sqlite"])
def make(request, tmp_path):
    """Make kits on one log; at the end the log must be undamaged."""
    with _made("memory:" if request.param == "memory" else str(tmp_path / "log.db")) as make:
        yield make


@pytest.fixture
def make_sqlite(log):
    with _made(log) as make:
        yield make


@contextlib.contextmanager
def _made(url):
    kits = []

    def make(*policies, **options):
        kits.append(gate_world.make_kit(url, *policies, **options))
        return kits[-1]

    yield make
    for kit in kits:
        if url == "memory:":
            verify(kit.writer().store)
        kit.close()
    if url != "memory:" and Path(url).exists():
        check(url)


def check(url):
    store = open_log(url, create=False)
    try:
        return verify(store)
    finally:
        store.close()


@pytest.fixture
def start(log):
    """Start child processes on the log."""
    children = []

    def start(*words, **options):
        children.append(Child(words[0], log, *words[1:], **options))
        return children[-1]

    yield start
    for child in children:
        if child.process.poll() is None:
            child.kill()
        for pipe in (child.process.stdin, child.process.stdout):
            pipe.close()
