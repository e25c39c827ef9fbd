"""One agent of each framework, with a scripted model, protected by one line each; each makes one call."""

import asyncio
import sys

import mixed_path  # isort: skip  # noqa: F401 - before the frameworks

import agents_scripted
import autogen_scripted
import crewai_scripted
import kernel_scripted
import llama_scripted
import mixed_tools as tools
import scripted
from agents import Agent, Runner, function_tool
from autogen_agentchat.agents import AssistantAgent
from crewai.tools import tool as crew_tool
from langchain.agents import create_agent
from langchain_core.tools import tool as chain_tool
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from semantic_kernel.functions import kernel_function

from agent_saga_autogen import protect as protect_autogen
from agent_saga_crewai import protect as protect_crew
from agent_saga_langgraph import SagaMiddleware
from agent_saga_llama_index import protect as protect_llama
from agent_saga_openai_agents import protect as protect_openai
from agent_saga_semantic_kernel import protect as protect_kernel

kit = tools.kit


def researcher():
    """CrewAI reserves a room."""

    @crew_tool("reserve_room")
    def reserve_room(room: str, idempotency_key: str = "") -> dict:
        """Reserve a room."""
        return tools.reserve_room(room=room, idempotency_key=idempotency_key)

    llm = crewai_scripted.Scripted(model="scripted", turns=[[("reserve_room", {"room": "r1"}, "c1")]])
    crew = crewai_scripted.make_crew([reserve_room], agent={"role": "researcher"})[0]
    crew.agents[0].llm = llm
    return protect_crew(crew, kit)


def writer():
    """LangGraph publishes a page."""

    @chain_tool
    def publish_page(slug: str, text: str) -> dict:
        """Publish a page."""
        return tools.publish_page(slug=slug, text=text)

    model = scripted.Scripted(turns=[[("publish_page", {"slug": "news", "text": "hello"}, "c1")]])
    return create_agent(model, [publish_page], middleware=[SagaMiddleware(kit)])


def cashier():
    """OpenAI Agents charges a card."""

    @function_tool
    def charge_card(customer: str, amount: int, idempotency_key: str = "") -> dict:
        """Charge a card."""
        return tools.charge_card(customer=customer, amount=amount, idempotency_key=idempotency_key)

    model = agents_scripted.Scripted([[("charge_card", {"customer": "ann", "amount": 42}, "c1")]])
    return protect_openai(Agent(name="cashier", model=model, tools=[charge_card]), kit)


def dispatcher():
    """LlamaIndex books a courier."""

    def book_courier(parcel: str, idempotency_key: str = "") -> dict:
        """Book a courier."""
        return tools.book_courier(parcel=parcel, idempotency_key=idempotency_key)

    model = llama_scripted.Scripted([[("book_courier", {"parcel": "p1"}, "c1")]])
    return protect_llama(FunctionAgent(llm=model, tools=[FunctionTool.from_defaults(book_courier)]), kit)


def administrator():
    """Semantic Kernel grants a role."""

    @kernel_function(name="grant_role", description="Grant a role.")
    def grant_role(name: str, role: str, idempotency_key: str = "") -> dict:
        return tools.grant_role(name=name, role=role, idempotency_key=idempotency_key)

    calls = [("desk-grant_role", {"name": "ann", "role": "editor"})]
    kernel = kernel_scripted.kernel_of(grant_role, calls=calls, plugin="desk")
    return kernel_scripted.agent_of(protect_kernel(kernel, kit), name="administrator")


def reviewer():
    """AutoGen notifies the team."""

    def notify_team(team: str, text: str) -> dict:
        """Notify a team."""
        return tools.notify_team(team=team, text=text)

    model = autogen_scripted.Scripted([[("notify_team", {"team": "ops", "text": "published"}, "c1")]])
    return protect_autogen(AssistantAgent("reviewer", model_client=model, tools=[notify_team]), kit)


async def _llama():
    return await dispatcher().run(user_msg="go")


async def _kernel():
    return await administrator().get_response("go")


async def _autogen():
    return await reviewer().run(task="go")


async def run_async(**options):
    """All six, one after the other, in one saga on one event loop."""
    async with kit.transaction("launch", **options) as saga:
        await researcher().kickoff_async()
        await writer().ainvoke({"messages": [("user", "go")]})
        await Runner.run(cashier(), "go")
        await _llama()
        await _kernel()
        await _autogen()
    return saga


def run_sync(**options):
    """All six in one saga of a program without a loop; what has no sync interface gets a loop of its own."""
    with kit.transaction("launch", **options) as saga:
        researcher().kickoff()
        writer().invoke({"messages": [("user", "go")]})
        agents_scripted.run_sync(cashier())
        for main in (_llama, _kernel, _autogen):
            asyncio.run(main())
    return saga


def run(way, **options):
    return asyncio.run(run_async(**options)) if way == "async" else run_sync(**options)


if __name__ == "__main__":
    saga = run(sys.argv[1], key=sys.argv[2] if len(sys.argv) > 2 else None)
    print(saga.report.format_text() if saga.report else "committed")
