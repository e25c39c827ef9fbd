"""The simulator: the real machine, codec, engine and recovery on a simulated log, world, clock and scheduler.

`python -m agent_saga.testing.sim` runs it; `docs/guarantees.md` says what it checks, and what it does not.
"""
