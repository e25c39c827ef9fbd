"""The conformance suite for adapters, on real CrewAI."""

from typing import ClassVar

from crewai.tools import tool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.agent_utils import convert_tools_to_openai_schema
from crewai_scripted import make_crew

from agent_saga_crewai import protect
from pytest_agent_saga.conformance import AdapterSuite, Capability, Run, Seen

C = Capability
SOLD_OUT = "failed: "


class Driven:
    """A crew of one agent and one task, whose guardrail has it begin again when a tool failed."""

    def __init__(self, bodies, *, kit, retries, protected):
        self.retries = retries
        self.crew, self.model = make_crew([tool(body) for body in bodies], task={"guardrail": self.guardrail})
        for _ in range(protected if kit is not None else 0):
            assert protect(self.crew, kit) is self.crew

    def guardrail(self, output):
        if self.left > 0 and output.tool_failures:
            self.left -= 1
            self.model.at = 0
            return False, "a tool failed: begin again"
        return True, output.raw

    def schemas(self):
        tools = self.crew.agents[0].tools
        return convert_tools_to_openai_schema(tools)[0], [one.formatted_description for one in tools]

    def add(self, body):
        self.crew.agents[0].tools.append(tool(body))

    def _begin(self, turns, *, stream=False):
        self.model.turns = [[(call.tool, dict(call.arguments), call.id) for call in turn] for turn in turns]
        self.model.at, self.left, self.crew.stream = 0, self.retries, stream
        self.model.heard.clear()

    def run(self, turns, *, thread):
        self._begin(turns)
        self.crew.kickoff()
        return self._seen()

    async def arun(self, turns, *, thread):
        self._begin(turns)
        await self.crew.akickoff()
        return self._seen()

    async def astream(self, turns, *, thread):
        self._begin(turns, stream=True)
        async for _ in await self.crew.akickoff():
            pass
        return self._seen()

    def _seen(self):
        told = [message for message in self.model.heard[-1] if message["role"] == "tool"]
        return Run(tuple(Seen(one["tool_call_id"], one["content"], is_error(one["content"])) for one in told))


def is_error(text):
    return text.startswith(("Error executing tool: ", SOLD_OUT))


class Driver:
    adapter = "crewai"
    capabilities = frozenset(C) - {C.RAISES, C.PAUSES, C.CONTROL_FLOW}
    gaps: ClassVar = {
        C.RAISES: "CrewAI tells every exception to the model; under ToolFailurePolicy.RAISE it raises one of its own",
        C.PAUSES: "a crew has no pause: SagaSuspended leaves the run, see test_crews.py",
        C.CONTROL_FLOW: "no exception of a tool steers CrewAI",
    }

    def agent(self, bodies, *, kit, swallow, retries, protect):
        return Driven(bodies, kit=kit, retries=retries, protected=protect)

    def error_result(self, text):
        return ToolFailure(message=f"{SOLD_OUT}{text}")


class TestCrewAI(AdapterSuite):
    def driver(self, folder):
        return Driver()
