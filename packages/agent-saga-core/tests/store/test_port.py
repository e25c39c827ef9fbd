"""Both logs against the port's conformance suite, whose rules (P-n) are in pytest-agent-saga."""

from store_cases import everything

from agent_saga.store.memory import MemoryLog
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import verify
from pytest_agent_saga.conformance import LogStoreSuite


class TestMemoryLog(LogStoreSuite):
    """The reference model."""

    capabilities = frozenset()
    missing = {  # noqa: RUF012 - read only.
        "persists": "it lives and dies with its process",
        "processes": "it lives in one process",
    }

    def open(self, folder):
        return MemoryLog()


class TestSqliteLog(LogStoreSuite):
    """The default."""

    def open(self, folder):
        return SqliteLog(folder / "log.db", create=True)

    def url(self, folder):
        return str(folder / "log.db")


def test_the_samples_are_valid(store):
    """P-100: what the store tests write, all of it in one log, verifies."""
    everything(store)
    assert verify(store).sagas > 20
