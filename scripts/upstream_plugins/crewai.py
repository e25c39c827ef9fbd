"""The adapter's hooks are installed for every tool call of the process."""

from __future__ import annotations

from crewai.tools import BaseTool
from crewai.tools.structured_tool import CrewStructuredTool

from agent_saga_crewai import protect
from upstream_plugins.sagas import KIT, declare
from upstream_plugins.sagas import pytest_collection_modifyitems as pytest_collection_modifyitems
from upstream_plugins.sagas import pytest_terminal_summary as pytest_terminal_summary

protect([], KIT)
for kind in (BaseTool, CrewStructuredTool):
    make = kind.__init__

    def made(self: object, *args: object, _make: object = make, **kwargs: object) -> None:
        _make(self, *args, **kwargs)  # type: ignore[operator]
        name = str(getattr(self, "name", ""))
        declare({name, name.lower().replace(" ", "_")} - {""})

    kind.__init__ = made  # type: ignore[method-assign]
