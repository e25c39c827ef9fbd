"""For tests of programs that use agent-saga: fixtures, crash and chaos tests, replay, conformance suites.

Names are loaded on first use: the process that the crash runner kills needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_agent_saga.clock import FakeClock as FakeClock
    from pytest_agent_saga.crash import Crashes as Crashes
    from pytest_agent_saga.crash import CrashRunner as CrashRunner
    from pytest_agent_saga.crash import Died as Died
    from pytest_agent_saga.proof import assert_rollback_proven as assert_rollback_proven
    from pytest_agent_saga.replay import Replays as Replays
    from pytest_agent_saga.replay import assert_replays as assert_replays
    from pytest_agent_saga.strikes import Chaos as Chaos
    from pytest_agent_saga.strikes import ChaosError as ChaosError
    from pytest_agent_saga.strikes import ChaosTimeout as ChaosTimeout
    from pytest_agent_saga.strikes import chaos as chaos

_HOME_OF = {
    "Chaos": "strikes",
    "ChaosError": "strikes",
    "ChaosTimeout": "strikes",
    "CrashRunner": "crash",
    "Crashes": "crash",
    "Died": "crash",
    "FakeClock": "clock",
    "Replays": "replay",
    "assert_replays": "replay",
    "assert_rollback_proven": "proof",
    "chaos": "strikes",
}

__all__ = [
    "Chaos",
    "ChaosError",
    "ChaosTimeout",
    "CrashRunner",
    "Crashes",
    "Died",
    "FakeClock",
    "Replays",
    "assert_replays",
    "assert_rollback_proven",
    "chaos",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'pytest_agent_saga' has no attribute {name!r}")
    return getattr(import_module(f"pytest_agent_saga.{home}"), name)
