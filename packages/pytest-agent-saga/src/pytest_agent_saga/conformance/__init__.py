"""Conformance suites: subclass one in your tests, say how your log or adapter is reached, and run pytest.

`docs/conformance.md` describes what to implement. Each rule is one test, with its id in the docstring.
"""

from pytest_agent_saga.conformance.adapters import AdapterSuite as AdapterSuite
from pytest_agent_saga.conformance.driver import AdapterDriver as AdapterDriver
from pytest_agent_saga.conformance.driver import Agent as Agent
from pytest_agent_saga.conformance.driver import Call as Call
from pytest_agent_saga.conformance.driver import Capability as Capability
from pytest_agent_saga.conformance.driver import Run as Run
from pytest_agent_saga.conformance.driver import Seen as Seen
from pytest_agent_saga.conformance.suite import Result as Result
from pytest_agent_saga.conformance.suite import Suite as Suite
from pytest_agent_saga.conformance.suite import examine as examine
from pytest_agent_saga.conformance.suite import rule as rule

__all__ = [
    "AdapterDriver",
    "AdapterSuite",
    "Agent",
    "Call",
    "Capability",
    "Result",
    "Run",
    "Seen",
    "Suite",
    "examine",
    "rule",
]
