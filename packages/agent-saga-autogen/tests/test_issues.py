"""What users of microsoft/autogen ran into, each with its issue: what the saga makes of it."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool
from autogen_scripted import Scripted, answers, arun, in_saga, run, turns
from autogen_shop import BACK, AskFirst, acharge, boom, charge, new

from agent_saga import Allow, Refuse, SagaRolledBack, current_saga, current_step
from agent_saga_autogen import protect

CHARGE = ("charge", {"thing": "a"})


def test_7956_a_token_is_cancelled_while_a_tool_runs(kit, shop, maker):
    """#7956: cancelling the token while a tool runs hangs the agent: here the run returns, and the step is in doubt."""
    token, begun = CancellationToken(), asyncio.Event()

    async def slow(thing: str) -> dict:
        """Never answer."""
        begun.set()
        await asyncio.get_running_loop().create_future()
        return {}

    kit.declare("slow", **BACK)
    agent = maker.agent([slow], ("slow", {"thing": "a"}), max_tool_iterations=1)

    async def main(saga):
        running = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
        await begun.wait()
        token.cancel()
        returned.append(await asyncio.wait_for(running, 20))

    returned = []
    with pytest.raises(SagaRolledBack) as caught:
        in_saga(kit, main)
    assert "cancelled" in answers(returned[0])[0]
    assert [step.tool for step in caught.value.report.in_doubt] == ["slow"]


def test_5340_an_error_is_only_text(kit, shop, maker):
    """#5340: errors of tools become text; the run returned normally, and the saga is rolled back all the same."""
    shop.raises["boom"] = PermissionError("no budget")
    agent = maker.agent([charge, boom], CHARGE, ("boom", {"thing": "b"}))
    returned = []

    async def main(saga):
        returned.append(await agent.run(task="go"))

    with pytest.raises(SagaRolledBack, match="PermissionError"):
        in_saga(kit, main)
    assert (returned[0].messages[-1].content, shop.standing) == ("done", [])


@pytest.mark.parametrize("approved", [True, False])
def test_4894_no_approval_before_a_tool_runs(kit, shop, maker, approved):
    """#4894: nothing ran when the run has ended with the question; after the word it runs once, or not at all."""
    agent = maker.agent([charge], CHARGE)

    async def main(saga):
        asked = await agent.run(task="go")
        assert shop.events == []
        name = "agent_saga_approve" if approved else "agent_saga_reject"
        metadata = {name: asked.messages[-1].metadata["agent_saga_waits"]}
        return await agent.run(task=TextMessage(content="My word.", source="ann", metadata=metadata))

    _, saga = in_saga(kit, main, policies=[AskFirst()])
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")] * approved)


def test_6516_a_host_with_several_agents_as_tools(kit, maker):
    """#6516: both agents that are tools run; the saga has the steps of the inner ones, and none of the host's."""
    inner = [
        AgentTool(maker.bare([tool], (tool.__name__, {"thing": name}), name=name))
        for name, tool in (("one", charge), ("two", acharge))
    ]
    host = maker.agent(inner, [("one", {"task": "do"}), ("two", {"task": "do"})])
    _, saga = run(kit, host)
    assert sorted((step.tool, step.kwargs["thing"]) for step in saga.report.kept) == [
        ("acharge", "two"),
        ("charge", "one"),
    ]


@pytest.mark.parametrize("way", ["run", "team"])
def test_4640_a_sync_tool_loses_its_context(kit, maker, way):
    """PR #4640, #7883: a sync tool runs in a thread without the context: here it has the saga, and its own step."""
    seen = []

    def look_around(thing: str) -> dict:
        """Look for the saga."""
        seen.append((current_saga(), current_step()))
        return new("look_around", thing)

    kit.declare("look_around", **BACK)
    _, saga = run(kit, maker.agent([look_around], ("look_around", {"thing": "a"})), way)
    ((found, step),) = seen
    assert (found.id, step.tool) == (saga.id, "look_around")


def test_6851_an_approved_call_runs_again_on_a_later_turn(kit, shop, maker):
    """agent-framework #6851, #4075: an approved call is made once, though the state that asked is run again."""
    agent = maker.agent([charge], CHARGE)

    async def main(saga):
        asked = await agent.run(task="go")
        state = await agent.save_state()
        metadata = {"agent_saga_approve": asked.messages[-1].metadata["agent_saga_waits"]}
        for _ in range(2):
            await agent.load_state(state)
            await agent.run(task=TextMessage(content="Yes.", source="ann", metadata=metadata))

    _, saga = in_saga(kit, main, policies=[AskFirst()])
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


class NoRepeats:
    def decide(self, call, saga):
        return Refuse("this was done already") if call.repeats else Allow()


def test_a_model_that_repeats_itself(kit, shop, maker):
    """A model that makes an equal call again, with the id of the first: AutoGen runs it; a policy can refuse it."""
    model = Scripted([[("charge", {"thing": "a"}, "c1")], [("charge", {"thing": "a"}, "c1")]])
    result, saga = run(kit, maker.agent([charge], model=model), policies=[NoRepeats()])
    assert "this was done already" in answers(result)[1]
    assert (len(saga.report.kept), shop.count("charge")) == (1, 1)


def test_ids_of_several_agents_are_equal(kit, shop, maker):
    """Clients count calls from one, each its own: equal ids, and equal arguments, of two agents are two calls."""
    agents = [maker.agent([charge], CHARGE, name=name) for name in ("one", "two")]

    async def main(saga):
        await asyncio.gather(*(agent.run(task="go") for agent in agents))

    _, saga = in_saga(kit, main)
    assert (len(saga.report.kept), shop.count("charge")) == (2, 2)


@pytest.mark.parametrize("way", ["run", "stream", "team"])
def test_a_failing_sibling(kit, shop, maker, way):
    """A call that fails beside others that are slower: they end, the model hears of all, and all is taken back."""
    failed = asyncio.Event()

    async def slow(thing: str) -> dict:
        """Charge after the sibling has failed."""
        await failed.wait()
        return new("slow", thing)

    async def bad(thing: str) -> dict:
        """Fail."""
        failed.set()
        raise ValueError("no stock")

    for name in ("slow", "bad"):
        kit.declare(name, **BACK)
    calls = [("slow", {"thing": "a"}), ("bad", {"thing": "b"}), ("charge", {"thing": "c"})]
    agent = maker.agent([slow, bad, charge], calls)
    told = []

    async def main(saga):
        told.extend(answers(await arun(way, agent)))

    with pytest.raises(SagaRolledBack, match="bad"):
        in_saga(kit, main)
    assert told == ["{'id': 'a'}", "no stock", "{'id': 'c'}"]
    assert shop.standing == []


def test_an_agent_tool_called_twice_at_once(kit, shop, maker):
    """AutoGen's agents cannot run at the same time as themselves; whatever comes of it, world and report agree."""
    inner = maker.bare([charge], CHARGE, ("charge", {"thing": "b"}), name="inner")
    agent = maker.agent([AgentTool(inner)], [("inner", {"task": "one"}), ("inner", {"task": "two"})])
    _, saga = run(kit, agent)
    assert sorted(step.kwargs["thing"] for step in saga.report.kept) == sorted(shop.standing)


def test_an_agent_made_from_its_own_config(kit, maker):
    """A workbench that is dumped and loaded, as components are, is the framework's own again."""
    tool = FunctionTool(charge, "Charge.", global_imports=[])
    agent = protect(AssistantAgent("a", model_client=Scripted(turns()), tools=[tool]), kit)
    config = agent._workbench[0].dump_component()
    assert config.provider == "autogen_core.tools.StaticStreamWorkbench"
    assert config.config["tools"][0]["config"]["name"] == "charge"
