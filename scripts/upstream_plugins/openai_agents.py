"""Every agent that is run is protected, with the agents that it hands over to."""

from __future__ import annotations

import functools
from typing import Any

from agents.run import AgentRunner

from agent_saga.errors import SagaError
from agent_saga_openai_agents import protect
from upstream_plugins.sagas import KIT
from upstream_plugins.sagas import pytest_collection_modifyitems as pytest_collection_modifyitems
from upstream_plugins.sagas import pytest_terminal_summary as pytest_terminal_summary


def protected(method: Any) -> Any:
    @functools.wraps(method)
    def run(self: Any, starting_agent: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            protect(starting_agent, KIT)
        except SagaError as error:  # A tool that cannot be guarded, or one that only a handoff knows: run it bare.
            print(f"not protected: {error}")
        return method(self, starting_agent, *args, **kwargs)

    return run


for name in ("run", "run_sync", "run_streamed"):
    setattr(AgentRunner, name, protected(getattr(AgentRunner, name)))
