"""The conformance suite for adapters (docs/conformance.md), on the real framework with a model that follows a script.

Fill in `MyAgent` first, with `kit=None`: the rules that need no adapter pass then. Then fill in `_framework.py`
and `_hook.py`.
"""

from typing import ClassVar

import agent_saga_myframework

from pytest_agent_saga.conformance import AdapterSuite, Capability, Run

C = Capability


class MyAgent:
    """An agent of the framework with these functions as its tools, made as a user would make it."""

    def __init__(self, bodies, *, swallow, retries):
        raise NotImplementedError("tests/test_conformance.py, MyAgent: make an agent with a scripted model")

    def schemas(self):
        """Return all that the model is shown about the tools."""

    def run(self, turns, *, thread) -> Run:
        """Let the model make these calls, run without an event loop, and return what the model was told."""

    async def arun(self, turns, *, thread) -> Run:
        """As `run`, in an event loop."""


class Driver:
    adapter = "myframework"
    # Begin with few, and add the others one by one; for those that the framework cannot do, say why, in one line.
    capabilities = frozenset({C.SYNC, C.RAISES})
    gaps: ClassVar = dict.fromkeys(frozenset(C) - capabilities, "not looked at yet")

    def agent(self, bodies, *, kit, swallow, retries, protect):
        made = MyAgent(bodies, swallow=swallow, retries=retries)
        for _ in range(protect if kit is not None else 0):
            made.agent = agent_saga_myframework.protect(made.agent, kit)
        return made


class TestMyframework(AdapterSuite):
    def driver(self, folder):
        return Driver()
