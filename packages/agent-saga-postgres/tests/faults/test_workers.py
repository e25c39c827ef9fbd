"""A small run of `workers.py`, which is run with larger numbers by hand."""

import pytest
import workers


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_killed_at_random(saga_postgres_url, capsys):
    """PG-10: nothing is lost, nothing is compensated twice unsaid, and nobody who was replaced appends."""
    numbers = ["--workers", "4", "--sagas", "10", "--at-once", "3", "--kills", "4", "--every", "1.5"]
    code = workers.main(["--url", saga_postgres_url, *numbers])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "wrong in another way: 0" in told
