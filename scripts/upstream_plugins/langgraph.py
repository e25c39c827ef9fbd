"""Every ToolNode is protected when it is made; so is every tool in it."""

from __future__ import annotations

import functools
from typing import Any

from langgraph.prebuilt import ToolNode

from agent_saga_langgraph import protect
from upstream_plugins.sagas import KIT
from upstream_plugins.sagas import pytest_collection_modifyitems as pytest_collection_modifyitems
from upstream_plugins.sagas import pytest_terminal_summary as pytest_terminal_summary

make = ToolNode.__init__


@functools.wraps(make)
def protected(self: Any, *args: Any, **kwargs: Any) -> None:
    make(self, *args, **kwargs)
    protect(self, KIT)


ToolNode.__init__ = protected  # type: ignore[method-assign]
