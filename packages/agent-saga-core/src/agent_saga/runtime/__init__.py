"""The imperative shell: declarations, the step, settlement, rollback, scopes and recovery.

Every await, sleep and clock read of the engine is here; what a log means is in `agent_saga.machine`.
"""
