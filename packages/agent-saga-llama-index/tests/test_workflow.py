"""Workflows of one's own that hold tools and agents: steps with calls in them, retries, and events."""

import asyncio

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from llama_scripted import Scripted, turns
from llama_shop import acharge, boom, charge, look, probed, tool
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from agent_saga import SagaRolledBack
from agent_saga.errors import UndeclaredTool
from agent_saga.spi import read_records
from agent_saga_llama_index import protect

TWICE = retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2))


class Order(Event):
    thing: str


class Buying(Workflow):
    """Two pieces of work, each of which charges and then fails once."""

    def __init__(self, *tools, **held):
        super().__init__(timeout=20)
        self.tools, self.by_name, self.pair = list(tools), {one.metadata.name: one for one in tools}, tools
        self.one = tools[0] if tools else None
        self.bought = []
        vars(self).update(held)

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Order | None:
        for thing in ev.things:
            ctx.send_event(Order(thing=thing))

    @step(retry_policy=TWICE)
    async def buy(self, ctx: Context, ev: Order) -> StopEvent | None:
        await self.by_name["charge"].acall(thing=ev.thing)
        if ctx.retry_info().retry_number == 0:
            raise ConnectionError("once more")
        await self.by_name["acharge"].acall(thing=f"{ev.thing}!")
        self.bought.append(ev.thing)
        return StopEvent() if len(self.bought) == 2 else None


def intents(kit):
    return [one for one in read_records(kit.log) if one["kind"] == "intent"]


def run(workflow, **given):
    async def main():
        return await workflow.run(**given)

    return asyncio.run(main())


def test_a_step_that_is_tried_again(kit, shop):
    """What a step did before it failed it has done when it is tried again; an equal step beside it is another one."""
    workflow = protect(Buying(charge, acharge), kit)
    with kit.transaction("buy") as saga:
        run(workflow, things=["a", "a"])
    assert saga.report.outcome == "committed"
    assert sorted(shop.events) == [("acharge", "a!")] * 2 + [("charge", "a")] * 2
    assert len({one["call_scope"] for one in intents(kit)}) == 2
    assert {one["call_id"] for one in intents(kit)} == {None}


def test_all_that_a_workflow_holds(kit, shop):
    """Tools in attributes, lists, tuples and dicts are protected, and those of agents and workflows that it holds."""
    agent = FunctionAgent(tools=[boom], llm=Scripted([]))
    workflow = Buying(charge, agents={"a": agent}, inner=Buying(acharge))
    assert protect(workflow, kit) is workflow
    held = [workflow.tools[0], workflow.by_name["charge"], workflow.pair[0], workflow.one]
    for one in [*held, agent.tools[0], workflow.inner.one]:
        assert one is not charge
        assert protect(one, kit) is one
    assert isinstance(workflow, Buying)
    with pytest.raises(UndeclaredTool, match=r"(?s)first.*second"):
        protect(Buying(tool(look.real_fn, name="second"), inner=Buying(tool(look.real_fn, name="first"))), kit)


def test_tools_that_a_workflow_gets_later(kit, shop):
    """What a protected workflow holds when it is run is protected."""
    workflow = protect(Buying(), kit)
    workflow.by_name |= {"charge": charge, "acharge": acharge}
    with kit.transaction("buy") as saga:
        run(workflow, things=["a", "b"])
    assert len(saga.report.kept) == 4


def test_an_exception_that_leaves(kit, shop):
    """In a workflow of one's own a tool's exception leaves the run, and rolls the saga back."""
    shop.raises["boom"] = ValueError("broken")

    class Failing(Workflow):
        tools = ()

        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            await self.tools[0].acall(thing="a")
            await self.tools[1].acall(thing="b")
            return StopEvent()

    workflow = Failing()
    workflow.tools = [charge, boom]
    with pytest.raises(ValueError, match="broken"), kit.transaction("buy"):
        run(protect(workflow, kit))
    assert shop.events == [("charge", "a"), ("refund", "a")]


def test_a_lost_answer_is_not_asked_for_twice(kit, shop):
    """A call whose answer was lost is settled before the step's next try makes it again: its probe finds it."""
    shop.raises["probed"] = TimeoutError("no answer")

    class Once(Workflow):
        @step(retry_policy=TWICE)
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(await self.tool.acall(thing="a")).raw_output)

    workflow = Once()
    workflow.tool = probed
    with kit.transaction("buy") as saga:
        assert run(protect(workflow, kit)) == {"id": "a"}
    assert (saga.report.outcome, shop.events) == ("committed", [("probed", "a")])


def test_steps_that_are_functions(kit, shop):
    """Steps that were added to a workflow's class are steps of the protected one."""

    class Open(Workflow):
        pass

    @step(workflow=Open)
    async def begin(ev: StartEvent) -> StopEvent:
        return StopEvent(result=protect(charge, kit)(thing="a").raw_output)

    with kit.transaction("buy") as saga:
        assert run(protect(Open(), kit)) == {"id": "a"}
    assert [one.tool for one in saga.report.kept] == ["charge"]


def test_a_workflow_that_runs_an_agent(kit, shop):
    """An agent that is run in a step is in the saga, and so is what the step does itself."""
    agent = FunctionAgent(tools=[charge], llm=Scripted(turns(("charge", {"thing": "a"}))))

    class Manager(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            await self.agent.run(user_msg="go")
            await self.tool.acall(thing="b")
            return StopEvent()

    workflow = Manager()
    workflow.agent, workflow.tool = agent, boom
    shop.raises["boom"] = ValueError("broken")
    with pytest.raises(ValueError, match="broken"), kit.transaction("buy"):
        run(protect(workflow, kit))
    assert shop.standing == []


def test_a_swallowed_error(kit, shop):
    """An error that a step handles itself counts, unless the call is made again or waived."""
    shop.raises["boom"] = ValueError("broken")

    class Careless(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> StopEvent:
            try:
                await self.tool.acall(thing="a")
            except ValueError:
                return StopEvent(result="fine")

    workflow = Careless()
    workflow.tool = boom
    with pytest.raises(SagaRolledBack, match="boom"), kit.transaction("buy"):
        run(protect(workflow, kit))
