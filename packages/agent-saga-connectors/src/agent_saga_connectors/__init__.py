"""agent-saga for agents that write code: files, git and the shell, with a pre-image before each effect."""

from __future__ import annotations

from agent_saga_connectors._commands import CommandRefused as CommandRefused
from agent_saga_connectors._guarantees import guarantees as guarantees
from agent_saga_connectors._image import Limits as Limits
from agent_saga_connectors._image import NoImage as NoImage
from agent_saga_connectors._workspace import Workspace as Workspace

__all__ = ["CommandRefused", "Limits", "NoImage", "Workspace", "guarantees"]
