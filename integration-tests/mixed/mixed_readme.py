"""The README's example of three frameworks in one saga: run as a program, with scripted models."""

import mixed_path  # isort: skip  # noqa: F401 - before the frameworks

import asyncio

import autogen_scripted
import crewai_scripted
import scripted
from autogen_agentchat.agents import AssistantAgent
from crewai.tools import tool
from langchain.agents import create_agent

import agent_saga_autogen
import agent_saga_crewai
from agent_saga import AgentKit, SagaRolledBack, compensator
from agent_saga_langgraph import SagaMiddleware

kit = AgentKit()
published, rooms = {}, set()  # The world.


@compensator("desk.release", idempotent=True)
def release(room: str) -> None:
    rooms.discard(room)


@compensator("desk.unpublish", idempotent=True)
def unpublish(slug: str) -> None:
    published.pop(slug, None)


@compensator("desk.unsend", idempotent=True)
def unsend(team: str) -> None:
    raise NotImplementedError


def reserve(room: str) -> str:
    """Reserve a room."""
    rooms.add(room)
    return f"{room} is yours"


def publish(slug: str, text: str) -> str:
    """Publish a page."""
    assert rooms == {"r1"}
    published[slug] = text
    return f"/{slug}"


def notify(team: str) -> str:
    """Tell a team."""
    assert published == {"news": "hello"}
    raise LookupError(f"there is no team {team}")


kit.declare("reserve", effect="compensable", compensate=release.bind(room="kwargs.room"))
kit.declare("publish", effect="compensable", compensate=unpublish.bind(slug="kwargs.slug"))
kit.declare("notify", effect="compensable", compensate=unsend.bind(team="kwargs.team"))

chat = scripted.Scripted(turns=[[("publish", {"slug": "news", "text": "hello"}, "c1")]])
client = autogen_scripted.Scripted([[("notify", {"team": "ops"}, "c1")]])
crew = crewai_scripted.make_crew([tool("reserve")(reserve)], agent={"role": "researcher"})[0]
crew.agents[0].llm = crewai_scripted.Scripted(model="scripted", turns=[[("reserve", {"room": "r1"}, "c1")]])


async def main() -> None:
    # from here on in the README
    researcher = agent_saga_crewai.protect(crew, kit)  # reserves a room
    writer = create_agent(chat, [publish], middleware=[SagaMiddleware(kit)])  # publishes a page
    reviewer = agent_saga_autogen.protect(AssistantAgent("reviewer", client, tools=[notify]), kit)  # tells the team

    async with kit.transaction("launch"):
        await researcher.kickoff_async()
        await writer.ainvoke({"messages": [("user", "Publish the news.")]})
        await reviewer.run(task="Tell the team.")  # the tool fails, AutoGen tells the model, and run() returns
    # up to here in the README


try:
    asyncio.run(main())
except SagaRolledBack as error:
    print(error)
print(published, rooms)
