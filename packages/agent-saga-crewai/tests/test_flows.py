"""Flows inside a saga: crews in their methods, and feedback that is waited for."""

import asyncio

import pytest
from crewai.flow import Flow, human_feedback, listen, start
from crewai.flow.async_feedback import HumanFeedbackPending
from crewai_scripted import make_agent, make_crew, model
from crewai_shop import charge, look

from agent_saga import Ask, SagaSuspended, spi
from agent_saga.errors import UndeclaredTool
from agent_saga_crewai import protect

pytestmark = pytest.mark.slow  # The first flow imports a vector store, in ten seconds.


class Elsewhere:
    """Feedback comes later, from somewhere else."""

    def request_feedback(self, context, flow):
        raise HumanFeedbackPending(context=context)


class Shopping(Flow):
    """Charges for a thing, asks a person, then charges for others at the same time."""

    suppress_flow_events: bool = True

    @start()
    @human_feedback(message="is this right?", provider=Elsewhere())
    def first(self):
        return make_crew([charge], [("charge", "a")])[0].kickoff().raw

    @listen(first)
    def second(self, feedback):
        return make_crew([charge], [("charge", "b")])[0].kickoff().raw

    @listen(first)
    async def third(self, feedback):
        return (await make_crew([charge], [("charge", "c")])[0].akickoff()).raw


def test_a_flow_that_waits_suspends_the_saga(kit, shop):
    """kickoff() returns normally when a flow waits for feedback; a scope that ends meanwhile suspends the saga."""
    flow = protect(Shopping(), kit)
    with kit.transaction("shop", key="o1", on_divergence="keep") as saga:
        assert isinstance(flow.kickoff(), HumanFeedbackPending)
    assert (saga.report.outcome, shop.standing) == ("suspended", ["a"])
    with kit.transaction("shop", key="o1", on_divergence="keep") as saga:
        protect(Shopping.from_pending(flow.flow_id), kit).resume("yes")
    assert (saga.report.outcome, sorted(shop.standing)) == ("committed", ["a", "b", "c"])


@pytest.mark.parametrize("use_async", [False, True])
def test_a_flow_that_goes_on_in_the_same_scope(kit, shop, use_async):
    """A flow that was answered while its scope is open does not suspend the saga."""

    async def arun():
        async with kit.transaction("shop") as saga:
            flow = protect(Shopping(), kit)
            assert isinstance(await flow.kickoff_async(), HumanFeedbackPending)
            await Shopping.from_pending(flow.flow_id).resume_async("yes")
        return saga

    if use_async:
        saga = asyncio.run(arun())
    else:
        with kit.transaction("shop") as saga:
            flow = protect(Shopping(), kit)
            flow.kickoff()
            Shopping.from_pending(flow.flow_id).resume("yes")
    assert (saga.report.outcome, sorted(shop.standing)) == ("committed", ["a", "b", "c"])


def test_a_failing_flow_rolls_back(kit, shop):
    """What the crews of a flow did is taken back when a method raises."""

    class Failing(Flow):
        suppress_flow_events: bool = True

        @start()
        def first(self):
            return make_crew([charge], [("charge", "a")])[0].kickoff().raw

        @listen(first)
        def last(self, result):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), kit.transaction("shop") as saga:
        protect(Failing(), kit).kickoff()
    assert (saga.report.clean, shop.events) == (True, [("charge", "a"), ("refund", "a")])


def test_an_approval_in_a_flow(kit, shop):
    """SagaSuspended leaves kickoff() of a flow; after the word the flow runs again, and the call once."""

    class AskFirst:
        def decide(self, call, saga):
            return Ask("sure?", suspend=True)

    class Paying(Flow):
        suppress_flow_events: bool = True

        @start()
        def first(self):
            return make_crew([charge], [("charge", "a")])[0].kickoff().raw

    with pytest.raises(SagaSuspended) as caught, kit.transaction("shop", key="o1", policies=[AskFirst()]):
        protect(Paying(), kit).kickoff()
    assert shop.events == []
    with kit.transaction("shop", key="o1", policies=[AskFirst()]) as saga:
        spi.decide_approval(caught.value.approval, approved=True, by="ann")
        Paying().kickoff()
    assert (saga.report.outcome, shop.standing) == ("committed", ["a"])


def test_crews_and_agents_that_a_flow_holds(kit, shop):
    """`protect` looks at the crews and agents of a flow, and names their undeclared tools."""
    from crewai.tools import tool

    @tool
    def wire(thing: str) -> str:
        """Wire money."""

    flow = Shopping()
    flow.crew, flow.agent = make_crew([look])[0], make_agent([wire], model())
    with pytest.raises(UndeclaredTool, match="wire"):
        protect(flow, kit)
    kit.declare_read_only("wire")
    assert protect(flow, kit) is flow
    assert flow.agent.tools[0].func is not wire.func
