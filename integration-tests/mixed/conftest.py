"""A world with a bank, and a process that has imported all six frameworks."""

import json
import os
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def started(*words, **options):
    command = [sys.executable, "-W", "ignore", *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    """Runs cases: `zygote(way, world, MIXED_FAIL=...)` returns the exit code and what was said."""
    environment = {**os.environ, "MIXED_WORLD": str(tmp_path_factory.mktemp("none"))}
    with started(HERE / "mixed_zygote.py", env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            assert json.loads(process.stdout.readline())["ready"]

            def run(way, world, **environ):
                case = {"way": way, "world": str(world.folder), "environ": {"MIXED_BANK": world.bank, **environ}}
                process.stdin.write(json.dumps(case) + "\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                return answer["exit"], answer["said"]

            yield run
        finally:
            process.kill()


class World:
    """What the six tools change, and what can be seen of it from outside."""

    def __init__(self, folder, port):
        self.folder, self.bank = folder, f"http://127.0.0.1:{port}"
        self.environment = {**os.environ, "MIXED_WORLD": str(folder), "MIXED_BANK": self.bank}
        self.saga("-c", "import mixed_tools; mixed_tools.set_up()", program=True)
        self.before = self.dump()

    def ledger(self):
        with urllib.request.urlopen(f"{self.bank}/ledger", timeout=30) as answer:
            return json.load(answer)

    def dump(self):
        """Everything that stands, byte by byte."""
        db = sqlite3.connect(self.folder / "world.db")
        rows = list(db.iterdump())
        db.close()
        files = {
            str(p.relative_to(self.folder)): p.read_bytes()
            for p in self.folder.glob("*/*")
            if p.suffix in {".html", ".txt"}
        }
        return rows, files, self.ledger()["standing"]

    def saga(self, *words, code=0, program=False):
        """Run `agent-saga`, or a program, where recovery would run."""
        command = [sys.executable, *([] if program else ["-m", "agent_saga"]), *words]
        environment = {**self.environment, "PYTHONPATH": str(HERE)}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def world(tmp_path):
    with started(HERE / "mixed_bank.py", tmp_path) as bank:
        try:
            yield World(tmp_path, int(bank.stdout.readline()))
        finally:
            bank.stdin.close()
            bank.wait(30)
