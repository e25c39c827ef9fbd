"""The conformance suite, on the tiny framework."""

import agent_saga_tiny
from tiny_adapter import TinyAgent
from tiny_framework import ErrorResult, Pause, Tool, ToolAgent

from pytest_agent_saga.conformance import AdapterSuite, Capability


class Driver:
    adapter = "tiny"
    capabilities = frozenset(Capability)
    gaps = {}  # noqa: RUF012 - read only.

    def __init__(self):
        self.memory = {}

    def agent(self, bodies, *, kit, swallow, retries, protect):
        agent = ToolAgent([Tool(body) for body in bodies], swallow=swallow, retries=retries, memory=self.memory)
        for _ in range(protect if kit is not None else 0):
            agent = agent_saga_tiny.protect(agent, kit)
        return TinyAgent(agent)

    def error_result(self, text):
        return ErrorResult(text)

    def control_flow(self):
        return Pause("steered by the tool")


class TestAdapter(AdapterSuite):
    def driver(self, folder):
        return Driver()
