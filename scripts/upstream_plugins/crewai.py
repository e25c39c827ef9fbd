"""The adapter's hooks are installed for every tool call of the process."""

from __future__ import annotations

from agent_saga_crewai import protect
from upstream_plugins.sagas import KIT
from upstream_plugins.sagas import pytest_collection_modifyitems as pytest_collection_modifyitems
from upstream_plugins.sagas import pytest_terminal_summary as pytest_terminal_summary

protect([], KIT)
