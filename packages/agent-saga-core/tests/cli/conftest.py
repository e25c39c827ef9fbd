"""A shop in a folder of its own, and the real `agent-saga` command."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 60


class Shop:
    """A folder with shop.py, its world, and its log."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "agent-saga.db"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"AGENT_SAGA_LOG", "NO_COLOR", "FORCE_COLOR", "PYTHONWARNINGS"}
        }

    def tell(self, *words):
        """Put files beside the shop that change what its functions do."""
        for word in words:
            (self.folder / word).touch()

    def untell(self, *words):
        for word in words:
            (self.folder / word).unlink()

    def start(self, *words, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen([sys.executable, *words], cwd=self.folder, env=self.environment, **options)

    def process(self, *words, **options):
        """Run a Python program to its end, without input."""
        started = self.start(*words, stdin=subprocess.DEVNULL, **options)
        try:
            out, err = started.communicate(timeout=TIMEOUT_S)
        except BaseException:
            started.kill()
            started.communicate()
            raise
        return subprocess.CompletedProcess(words, started.returncode, out, err)

    def run(self, mode):
        """Run the shop in a process."""
        return self.process("-W", "ignore", "shop.py", mode)

    def saga(self, *words, code=0):
        """Run `agent-saga`, and check its exit code; no command may end with a traceback."""
        done = self.process("-m", "agent_saga", *map(str, words))
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def recover(self, *words, code=0):
        return self.saga("recover", "--import", "shop", *words, code=code)

    def data(self, *words, code=0):
        """Run `agent-saga ... --json`, and return its document."""
        done = self.saga(*words, "--json", code=code)
        document = json.loads(done.stdout)
        assert document.get("exit", code) == code
        return document

    def world(self):
        file = self.folder / "world"
        return [line.partition(" ")[0] for line in file.read_text().splitlines()] if file.exists() else []

    def only_saga(self):
        (entry,) = self.data("sagas")["sagas"]
        return entry["saga"]


@pytest.fixture
def shop(tmp_path):
    shutil.copy(Path(__file__).with_name("shop_program.py"), tmp_path / "shop.py")
    return Shop(tmp_path)
