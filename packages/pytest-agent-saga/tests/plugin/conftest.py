"""Runs pytest in a process of its own, in an empty folder."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


class Inner:
    """A folder with test files."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text):
        (self.folder / name).write_text(text, "utf-8")

    def pytest(self, *arguments):
        """Return how pytest ended, and what it printed."""
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:asyncio",
                "-W",
                "error",
                *arguments,
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def inner(tmp_path):
    return Inner(tmp_path)
