"""Conformance suites: subclass one in your tests, say how your log or adapter is reached, and run pytest.

`docs/conformance.md` describes what to implement. Each rule is one test, with its id in the docstring. Names are loaded
on first use: processes that a suite starts need few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_agent_saga.conformance.adapters import AdapterSuite as AdapterSuite
    from pytest_agent_saga.conformance.driver import AdapterDriver as AdapterDriver
    from pytest_agent_saga.conformance.driver import Agent as Agent
    from pytest_agent_saga.conformance.driver import Call as Call
    from pytest_agent_saga.conformance.driver import Capability as Capability
    from pytest_agent_saga.conformance.driver import Run as Run
    from pytest_agent_saga.conformance.driver import Seen as Seen
    from pytest_agent_saga.conformance.stores import LogStoreSuite as LogStoreSuite
    from pytest_agent_saga.conformance.suite import Result as Result
    from pytest_agent_saga.conformance.suite import Suite as Suite
    from pytest_agent_saga.conformance.suite import examine as examine
    from pytest_agent_saga.conformance.suite import rule as rule

_HOMES = {
    "adapters": ("AdapterSuite",),
    "driver": ("AdapterDriver", "Agent", "Call", "Capability", "Run", "Seen"),
    "stores": ("LogStoreSuite",),
    "suite": ("Result", "Suite", "examine", "rule"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AdapterDriver",
    "AdapterSuite",
    "Agent",
    "Call",
    "Capability",
    "LogStoreSuite",
    "Result",
    "Run",
    "Seen",
    "Suite",
    "examine",
    "rule",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'pytest_agent_saga.conformance' has no attribute {name!r}")
    return getattr(import_module(f"pytest_agent_saga.conformance.{home}"), name)
