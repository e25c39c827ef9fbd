"""What the plugins share: a kit in which every tool is declared, and a saga around each test."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from agent_saga import AgentKit, SagaRolledBack, compensator
from agent_saga.runtime.declaration import Declaration, Declarations, make_declaration

if TYPE_CHECKING:
    import pytest

COUNTS = {"steps": 0, "sagas": 0}


@compensator("upstream.nothing", idempotent=True)
def nothing(key: str) -> None:
    """Undo nothing: these tests have no world."""


known = Declarations.find


def find(self: Declarations, name: str) -> Declaration | None:
    """Return the declaration of a tool. Every tool is declared, also those that only the framework knows: it acts."""
    if known(self, name) is None:
        self.add(make_declaration(name, "compensable", compensate=nothing.bind(key="key")))
    return known(self, name)


Declarations.find = find  # type: ignore[method-assign]
KIT = AgentKit(log="memory:")


def in_saga(test: Any) -> Any:
    """Run a test inside a saga. What the saga says at its end is not the test's business: its steps are counted."""
    if inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        async def run_async(*args: Any, **kwargs: Any) -> None:
            try:
                async with KIT.transaction("upstream", drain_s=0.1) as saga:
                    await test(*args, **kwargs)
            except SagaRolledBack:
                pass
            finally:
                count(saga)

        return run_async

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with KIT.transaction("upstream", drain_s=0.1) as saga:
                test(*args, **kwargs)
        except SagaRolledBack:
            pass
        finally:
            count(saga)

    return run


def count(saga: Any) -> None:
    report = saga.report
    COUNTS["sagas"] += 1
    if report is not None:
        COUNTS["steps"] += sum(map(len, (report.kept, report.compensated, report.in_doubt, report.orphaned)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        function = getattr(item, "obj", None)
        if function is not None:
            item.obj = in_saga(function)  # type: ignore[attr-defined]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"agent-saga: {COUNTS['steps']} effects in {COUNTS['sagas']} sagas")
