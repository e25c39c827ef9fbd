"""`agent-saga demo`: an agent without a saga, the same agent with one, and a process that is killed in the middle."""

from agent_saga.demo.entry import command as command

__all__ = ["command"]
