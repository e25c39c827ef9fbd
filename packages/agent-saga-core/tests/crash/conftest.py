"""Fixtures of the crash tests: a folder of its own for each run, and the nursery that starts the processes."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The helpers are no package, and child processes import them too.

from crash_lab import Lab
from crash_nursery import Nursery


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def lab(nursery, tmp_path):
    lab = Lab(nursery, tmp_path)
    yield lab
    nursery.end_all()
