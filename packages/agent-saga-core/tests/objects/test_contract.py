"""The log in an object store against the port's conformance suite (P-n), in memory and over HTTP."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from object_server import ObjectServer

from agent_saga.store.objects.log import ObjectLog
from agent_saga.store.objects.sink import MemorySink
from agent_saga.store.open import open_log
from pytest_agent_saga.conformance import LogStoreSuite


class TestLogInMemorySink(LogStoreSuite):
    """The reference sink: it lives in one process, and the log in it is opened again."""

    capabilities = frozenset({"persists"})
    missing = {"processes": "the sink is in memory"}  # noqa: RUF012 - read only.
    sinks = {}  # noqa: RUF012 - the store.

    def open(self, folder):
        return ObjectLog(self.sinks.setdefault(folder, MemorySink()), lease_ttl_s=1)


@pytest.fixture(scope="module")
def server():
    with ObjectServer() as server:
        yield server


class TestLogOverHttp(LogStoreSuite):
    """A real store over HTTP, which other processes use, too."""

    death_seen_s = 20.0

    @pytest.fixture(autouse=True)
    def place(self, server):
        type(self).place_url = server.url

    def url(self, folder):
        return f"objects+{self.place_url}/{folder.parent.name}/{folder.name}?lease_ttl_s=1"

    def open(self, folder):
        return open_log(self.url(folder), create=True)
