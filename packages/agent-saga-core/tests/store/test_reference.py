"""Both logs against a model of the contract that shares no code with them. Rule ids: M-n."""

from hypothesis import HealthCheck, settings

from agent_saga.store.memory import MemoryLog
from agent_saga.store.sqlite import SqliteLog
from pytest_agent_saga.conformance.store_machine import LogMachine

SETTINGS = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class SqliteMachine(LogMachine):
    def open_log(self, folder):
        return SqliteLog(folder / "log.db", create=True)


class MemoryMachine(LogMachine):
    """A memory log dies with its process: what a later process finds is what a shared store held."""

    def open_log(self, folder):
        first = getattr(self, "shared", None)
        log = MemoryLog()
        if first is None:
            self.shared = log
        else:
            log._state, log._lock = first._state, first._lock
        return log


TestSqlite = SqliteMachine.TestCase
TestSqlite.__doc__ = "M-2: SQLite, with two processes that crash and restart."
TestSqlite.settings = SETTINGS
TestMemory = MemoryMachine.TestCase
TestMemory.__doc__ = "M-3: the memory log."
TestMemory.settings = SETTINGS
