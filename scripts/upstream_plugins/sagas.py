"""What the plugins share: a kit in which every tool is declared, and a saga around each test."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from agent_saga import AgentKit, SagaRolledBack, compensator
from agent_saga.errors import SagaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

KIT = AgentKit(log="memory:")
COUNTS = {"steps": 0, "sagas": 0}


KIT.declare_read_only("*")  # What only the framework knows, such as the tools of an MCP server.


@compensator("upstream.nothing", idempotent=True)
def nothing(key: str) -> None:
    """Undo nothing: these tests have no world."""


def declare(names: Iterable[str]) -> None:
    """Declare tools that are not declared yet, each with an effect and a compensation."""
    for name in names:
        try:
            KIT.declare(name, effect="compensable", compensate=nothing.bind(key="key"))
        except SagaError:
            continue  # It is declared.


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
