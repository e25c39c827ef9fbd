"""Every tool, workbench and agent is protected when it is made."""

from __future__ import annotations

import functools
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import BaseTool, StaticWorkbench

from agent_saga.errors import SagaError
from agent_saga_autogen import protect
from upstream_plugins.sagas import KIT
from upstream_plugins.sagas import pytest_collection_modifyitems as pytest_collection_modifyitems
from upstream_plugins.sagas import pytest_terminal_summary as pytest_terminal_summary


def protected(kind: Any) -> None:
    make = kind.__init__

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        try:
            protect(self if type(self) is kind or not isinstance(self, BaseTool) else [self], KIT)
        except SagaError as error:
            print(f"not protected: {error}")

    kind.__init__ = made


for each in (BaseTool, StaticWorkbench, AssistantAgent):
    protected(each)
