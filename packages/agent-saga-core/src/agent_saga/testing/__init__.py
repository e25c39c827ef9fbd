"""For tests of programs that use agent-saga: crash points, and the proof that a workflow rolls back."""

from agent_saga.testing.crash import CRASH_AT as CRASH_AT
from agent_saga.testing.crash import CrashingStore as CrashingStore
from agent_saga.testing.crash import CrashPoints as CrashPoints
from agent_saga.testing.crash import watch_commits as watch_commits
from agent_saga.testing.prove import prove_rollback as prove_rollback
from agent_saga.testing.proving.proof import Finding as Finding
from agent_saga.testing.proving.proof import RollbackProof as RollbackProof

__all__ = [
    "CRASH_AT",
    "CrashPoints",
    "CrashingStore",
    "Finding",
    "RollbackProof",
    "prove_rollback",
    "watch_commits",
]
