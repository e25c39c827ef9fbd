"""The measure runs, and its figures are of what they say; how large they are is for a quiet machine to tell."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import measure


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_measure_measures(saga_postgres_url):
    """PG-62: all figures are there and positive."""
    found = measure(saga_postgres_url, steps=20)
    assert min(found.values()) > 0
    assert found["step_per_bare"] == pytest.approx(found["step_us"] / found["bare_us"])
