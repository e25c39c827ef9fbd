"""The command line: `agent-saga`."""

from agent_saga.cli.app import main as main

__all__ = ["main"]
