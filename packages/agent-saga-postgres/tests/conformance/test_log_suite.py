"""The contract of a log, on a real PostgreSQL. Rule ids: P-n."""

import pytest

from agent_saga.store.open import open_log
from pytest_agent_saga.conformance import LogStoreSuite


class TestPostgresLog(LogStoreSuite):
    """Every rule of the port; another process finds the log by its URL."""

    death_seen_s = 10.0

    @pytest.fixture(autouse=True)
    def server(self, saga_postgres_url):
        type(self).database = saga_postgres_url

    def url(self, folder):
        return f"{self.database}?schema={folder.name.replace('-', '_')}&lease_ttl_s=1&wait_s=20"

    def open(self, folder):
        return open_log(self.url(folder), create=True)
