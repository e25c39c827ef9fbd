"""Runs of protected teams: the saga arrives in all their agents, whoever runs them and wherever they are."""

import asyncio
import threading

import pytest
from autogen_agentchat.agents import MessageFilterAgent, MessageFilterConfig, PerSourceFilter, SocietyOfMindAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import AgentId, SingleThreadedAgentRuntime
from autogen_core.tool_agent import ToolAgent, tool_agent_caller_loop
from autogen_core.tools import FunctionTool
from autogen_scripted import Scripted, in_saga, run, turns
from autogen_shop import BACK, acharge, boom, charge

from agent_saga import AgentKit, SagaRolledBack
from agent_saga.errors import UndeclaredTool
from agent_saga.spi import read_records
from agent_saga_autogen import protect

CHARGE = ("charge", {"thing": "a"})
ACHARGE = ("acharge", {"thing": "b"})
BOOM = ("boom", {"thing": "c"})


def team_of(kind, maker):
    """A team of two, `first` with a charge and `second` with one in the loop."""
    first, second = maker.bare([charge], CHARGE, name="first"), maker.bare([acharge], ACHARGE, name="second")
    if kind == "round robin":
        return RoundRobinGroupChat([first, second], max_turns=2)
    if kind == "selector":
        return SelectorGroupChat([first, second], model_client=Scripted(["first", "second"]), max_turns=2)
    if kind == "swarm":
        calls = (CHARGE, ("transfer_to_second", {}))
        first = maker.bare([charge], *calls, name="first", handoffs=["second"])
        return Swarm([first, second], termination_condition=TextMentionTermination("done"))
    if kind == "graph":
        graph = DiGraphBuilder().add_node(first).add_node(second).add_edge(first, second).build()
        return GraphFlow([first, second], graph)
    if kind == "nested":
        return RoundRobinGroupChat([RoundRobinGroupChat([first], name="inner", max_turns=1), second], max_turns=2)
    if kind == "society":
        mind = SocietyOfMindAgent("mind", RoundRobinGroupChat([first], max_turns=1), model_client=Scripted())
        return RoundRobinGroupChat([mind, second], max_turns=2)
    only = MessageFilterConfig(per_source=[PerSourceFilter(source="user")])
    return RoundRobinGroupChat([MessageFilterAgent("filtered", first, only), second], max_turns=2)


async def listed(items):
    return [item async for item in items]


KINDS = pytest.mark.parametrize("kind", ["round robin", "selector", "swarm", "graph", "nested", "society", "filter"])


@KINDS
@pytest.mark.parametrize("way", ["run", "stream"])
def test_every_agent_of_a_team_is_in_the_saga(kit, maker, kind, way):
    """Protecting a team protects all that it holds, teams within teams included; their calls are steps of one saga."""
    _, saga = run(kit, protect(team_of(kind, maker), kit), way)
    assert [step.tool for step in saga.report.kept] == ["charge", "acharge"]


@KINDS
def test_undeclared_tools_of_a_team(maker, kind):
    """All undeclared tools of a team are named at once, wherever in it they are."""
    with pytest.raises(UndeclaredTool) as caught:
        protect(team_of(kind, maker), AgentKit("memory:"))
    assert all(f"kit.declare('{name}'" in str(caught.value) for name in ("charge", "acharge"))


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_in_a_team_takes_back_all(kit, shop, maker, failing):
    """Whichever agent's tool fails, what the others did before and after it is taken back, in reverse."""
    shop.raises["boom"] = ValueError("no stock")
    calls = [CHARGE, ACHARGE]
    calls.insert(failing, BOOM)
    agents = [maker.bare([charge, acharge, boom], call, name=f"agent{at}") for at, call in enumerate(calls)]
    with pytest.raises(SagaRolledBack, match="boom") as caught:
        run(kit, protect(RoundRobinGroupChat(agents, max_turns=3), kit))
    assert (caught.value.report.clean, shop.standing) == (True, [])
    assert [event[1] for event in shop.events] == ["a", "b", "b", "a"]


@KINDS
def test_a_runtime_that_was_started_before(kit, maker, kind):
    """A runtime that runs since before the saga knows nothing of it: the adapter brings it along."""

    async def main():
        runtime = SingleThreadedAgentRuntime()
        runtime.start()
        team = team_of(kind, maker)
        team._runtime, team._embedded_runtime = runtime, False
        protect(team, kit)
        async with kit.transaction("buy") as saga:
            await team.run(task="go")
        await runtime.stop()
        return saga

    assert [step.tool for step in asyncio.run(main()).report.kept] == ["charge", "acharge"]


def test_a_team_runs_again_in_another_saga(kit, shop, maker):
    """The same team runs in one saga after another, and outside of any; each has its own steps only."""
    agent = maker.bare([charge], CHARGE, "first", ("charge", {"thing": "b"}), "second", ("charge", {"thing": "c"}))
    team = protect(RoundRobinGroupChat([agent], max_turns=1), kit)

    async def main():
        for _ in range(2):
            async with kit.transaction("buy") as saga:
                await team.run(task="go")
            yield [step.kwargs["thing"] for step in saga.report.kept]
        await team.run(task="go")

    assert asyncio.run(listed(main())) == [["a"], ["b"]]
    assert shop.standing == ["a", "b", "c"]


def test_two_teams_at_once_in_two_sagas(kit, shop, maker):
    """Teams that run at the same time, each in its saga, do not mix: one fails, the other is kept."""
    shop.raises["boom"] = ValueError("no stock")

    async def one(name, *calls):
        team = protect(RoundRobinGroupChat([maker.bare([charge, boom], *calls, name=name)], max_turns=1), kit)
        async with kit.transaction(name) as saga:
            await team.run(task="go")
        return saga.report

    async def main():
        return await asyncio.gather(
            one("good", CHARGE), one("bad", ("charge", {"thing": "b"}), BOOM), return_exceptions=True
        )

    good, bad = asyncio.run(main())
    assert (good.outcome, type(bad), shop.standing) == ("committed", SagaRolledBack, ["a"])


def test_the_teams_own_condition_stays(kit, maker):
    """A team stops for its own reasons as before, and runs on the next time."""
    agent = maker.bare([charge], CHARGE, CHARGE, CHARGE, max_tool_iterations=1)
    team = protect(RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(4)), kit)

    async def main(saga):
        return [(await team.run(task=task)).stop_reason for task in ("go", None)]

    reasons, _ = in_saga(kit, main)
    assert ["Maximum number of messages" in reason for reason in reasons] == [True, True]


def test_a_team_keeps_what_it_shows_of_itself(kit, maker):
    """A protected team is the same object, an instance of its class; protecting again changes nothing."""
    team = team_of("round robin", maker)
    assert protect(team, kit) is team
    assert protect(team, kit) is team
    assert isinstance(team, RoundRobinGroupChat)
    assert (type(team).__name__, team._termination_condition) == ("RoundRobinGroupChat", None)


# -- core, without agents -----------------------------------------------------------------------------------------


async def core(tools, *, early, saga):
    """What core's tool agent tells its caller's model; `early`: its runtime was started before the saga."""
    runtime = SingleThreadedAgentRuntime()
    await ToolAgent.register(runtime, "tools", lambda: ToolAgent("Tools.", tools))
    if early:
        runtime.start()
    async with saga:
        if not early:
            runtime.start()
        caller = (runtime, AgentId("tools", "default"), Scripted(turns([CHARGE, ACHARGE])), [], [])
        messages = await tool_agent_caller_loop(*caller)
    await runtime.stop()
    return messages[1].content


def test_tools_of_the_core_api(kit):
    """Tools that are protected in a list are steps in core's ToolAgent."""
    tools = protect([FunctionTool(fn, "Charge.") for fn in (charge, acharge)], kit)
    told = asyncio.run(core(tools, early=False, saga=kit.transaction("buy")))
    assert [one.content for one in told] == ["{'id': 'a'}", "{'id': 'b'}"]
    intents = [one for one in read_records(kit.log) if one["kind"] == "intent"]
    assert sorted(one["tool"] for one in intents) == ["acharge", "charge"]


def test_a_lost_context_fails_closed(kit, shop):
    """In core's runtime, started before the saga, tools that require one do not run; the caller hears of an error."""
    for name in ("charge", "acharge"):
        kit.declare(name, requires_saga=True, **BACK)
    tools = protect([FunctionTool(fn, "Charge.") for fn in (charge, acharge)], kit)
    told = asyncio.run(core(tools, early=True, saga=kit.transaction("buy")))
    assert [one.is_error for one in told] == [True, True]
    assert shop.events == []


def test_a_thread_of_ones_own(kit, maker):
    """An agent that runs in a thread runs in the saga that is bound to it."""
    agent = maker.agent([charge, acharge], [CHARGE, ACHARGE])

    async def main(saga):
        thread = threading.Thread(target=saga.bind(lambda: asyncio.run(agent.run(task="go"))))
        thread.start()
        await asyncio.to_thread(thread.join)

    _, saga = in_saga(kit, main)
    assert len(saga.report.kept) == 2
