"""For tests of programs that use agent-saga: crash points."""

from agent_saga.testing.crash import CRASH_AT as CRASH_AT
from agent_saga.testing.crash import CrashingStore as CrashingStore
from agent_saga.testing.crash import CrashPoints as CrashPoints
from agent_saga.testing.crash import watch_commits as watch_commits

__all__ = ["CRASH_AT", "CrashPoints", "CrashingStore", "watch_commits"]
