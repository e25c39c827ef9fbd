"""What the tests of this package share: the server comes from the plug-in (`pytest_agent_saga.postgres`)."""

import pytest


@pytest.fixture
def log_url(saga_postgres_url):
    """A new database, with a lease that a test can wait for."""
    return f"{saga_postgres_url}?lease_ttl_s=1&wait_s=20"
