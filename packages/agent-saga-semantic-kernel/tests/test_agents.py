"""Agents, agents as plugins, group chats and orchestrations."""

import asyncio

import pytest
from kernel_scripted import agent_of, answers, chat, kernel_of, say
from kernel_shop import BACK, acharge, boom, charge, new
from semantic_kernel import Kernel
from semantic_kernel.agents import (
    AgentGroupChat,
    ChatCompletionAgent,
    ChatHistoryAgentThread,
    HandoffOrchestration,
    OrchestrationHandoffs,
    SequentialOrchestration,
)
from semantic_kernel.agents.runtime import InProcessRuntime
from semantic_kernel.contents import AuthorRole, ChatMessageContent
from semantic_kernel.functions import kernel_function

from agent_saga import SagaRolledBack, SagaSuspended
from agent_saga.errors import UndeclaredTool
from agent_saga.spi import read_records
from agent_saga_semantic_kernel import protect

A, B = {"thing": "a"}, {"thing": "b"}


async def ask(agent, text="go", **options):
    return await agent.get_response(text, **options)


async def streamed(agent, text="go", **options):
    last = None
    async for item in agent.invoke_stream(text, **options):
        last = item
    return last


async def invoked(agent, text="go", **options):
    last = None
    async for item in agent.invoke(text, **options):
        last = item
    return last


@pytest.mark.parametrize("run", [ask, streamed, invoked])
def test_an_agent(kit, shop, run):
    """All ways to run an agent are covered; a failure that its loop swallows is one of the saga's."""
    shop.raises["boom"] = ValueError("no stock")
    agent = agent_of(kernel_of(charge, boom, calls=[[("shop-charge", A), ("shop-boom", B)], "all well"]))
    assert protect(protect(agent, kit), kit) is agent

    async def main():
        async with kit.transaction("buy"):
            assert str((await run(agent)).message) == "all well"

    with pytest.raises(SagaRolledBack, match="boom"):
        asyncio.run(main())
    assert shop.events == [("charge", "a"), ("refund", "a")]


def test_an_agent_with_a_kernel_of_its_own(kit, shop):
    """An agent that was made of plugins has a kernel of its own, which is protected."""

    class Desk:
        @kernel_function
        def sell(self, thing: str) -> dict:
            """Sell a thing."""
            return new("sell", thing)

    kit.declare("sell", **BACK)
    service = kernel_of(calls=[("Desk-sell", A)]).services["scripted"]
    agent = protect(ChatCompletionAgent(service=service, name="solo", plugins=[Desk()]), kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await agent.get_response("go")
        return saga.report

    assert [step.tool for step in asyncio.run(main()).kept] == ["sell"]


def test_extras_of_an_agent(kit, shop):
    """Arguments that the agent adds for itself are no arguments of the step."""
    agent = protect(agent_of(kernel_of(charge, calls=[("shop-charge", A)])), kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await agent.get_response("go", instructions_override="be quick")
        return saga.report

    assert asyncio.run(main()).kept[0].kwargs == A


@pytest.mark.parametrize("later", [False, True])
def test_an_agent_as_a_plugin(kit, shop, later):
    """An agent that is a plugin is a pass-through: its own functions are steps, also if it is added later."""
    inner = agent_of(kernel_of(charge, calls=[("shop-charge", A), "bought"], ids="i"), name="inner")
    kernel = kernel_of(acharge, calls=[("inner-inner", {"messages": "buy"}), ("shop-acharge", B)])
    if later:
        protect(kernel, kit)
    kernel.add_plugin(inner, "inner")
    if not later:
        protect(kernel, kit)

    async def main():
        async with kit.transaction("buy") as saga:
            return answers(await chat(kernel)), saga

    told, saga = asyncio.run(main())
    assert (str(told[0]), told[1]) == ("bought", {"id": "b"})
    assert [(step.tool, step.kwargs) for step in saga.report.kept] == [("charge", A), ("acharge", B)]


def test_a_failure_within_an_agent_as_a_plugin(kit, shop):
    """The outer agent hears that all is well; the inner step has failed, and nothing commits."""
    shop.raises["boom"] = ValueError("no stock")
    inner = agent_of(kernel_of(boom, calls=[("shop-boom", A), "fine"], ids="i"), name="inner")
    kernel = kernel_of(charge, calls=[("shop-charge", B), ("inner-inner", {"messages": "buy"})])
    kernel.add_plugin(inner, "inner")
    protect(kernel, kit)

    async def main():
        async with kit.transaction("buy"):
            assert str(answers(await chat(kernel))[1]) == "fine"

    with pytest.raises(SagaRolledBack, match="boom"):
        asyncio.run(main())
    assert shop.standing == []


def test_undeclared_functions_of_inner_agents(kit):
    """The undeclared functions of all agents are named at once."""
    inner = agent_of(kernel_of(kernel_function(lambda thing: thing, name="inside")), name="inner")
    kernel = kernel_of(kernel_function(lambda thing: thing, name="outside"))
    kernel.add_plugin(inner, "inner")
    with pytest.raises(UndeclaredTool) as caught:
        protect(agent_of(kernel), kit)
    assert all(f"kit.declare({name!r}" in str(caught.value) for name in ("inside", "outside"))
    assert "inner-inner" not in str(caught.value)


def test_an_agent_goes_on_with_its_thread(kit, shop):
    """An agent that goes on with a stored thread in the resumed saga brings results along, and needs no more calls."""
    agent = protect(agent_of(kernel_of(charge, calls=[("shop-charge", A), "bought", "nothing more"])), kit)
    thread = ChatHistoryAgentThread()

    async def first():
        async with kit.transaction("buy", key="order-1"):
            await agent.get_response("go", thread=thread)
            raise SagaSuspended("later")

    async def second():
        history = type(thread._chat_history).restore_chat_history(thread._chat_history.serialize())
        async with kit.transaction("buy", key="order-1") as saga:
            await agent.get_response("and now?", thread=ChatHistoryAgentThread(chat_history=history))
        return saga.report

    with pytest.raises(SagaSuspended):
        asyncio.run(first())
    assert (asyncio.run(second()).outcome, shop.events) == ("committed", [("charge", "a")])


@pytest.mark.filterwarnings("ignore:Accessing the 'model_fields' attribute on the instance")  # The framework does.
def test_a_group_chat(kit, shop):
    """The agents of a group chat are covered, and those that are added to it later."""
    first = agent_of(kernel_of(charge, calls=[("shop-charge", A), "first"]), name="first")
    second = agent_of(kernel_of(acharge, calls=[("shop-acharge", B), "second"]), name="second")
    group = protect(AgentGroupChat(agents=[first]), kit)
    group.add_agent(second)

    async def main():
        await group.add_chat_message(ChatMessageContent(role=AuthorRole.USER, content="go"))
        async with kit.transaction("buy") as saga:
            said = [message.content for agent in (first, second) async for message in group.invoke(agent)]
        return said, saga.report

    said, report = asyncio.run(main())
    assert said == ["first", "second"]
    assert [(step.tool, step.kwargs) for step in report.kept] == [("charge", A), ("acharge", B)]


async def orchestrated(orchestration, runtime):
    result = await orchestration.invoke(task="go", runtime=runtime)
    value = await result.get(timeout=20)
    await runtime.stop_when_idle()
    return value


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("kind", ["sequential", "handoff"])
def test_orchestrations(kit, shop, early, kind):
    """The agents of an orchestration act in the saga, also where the runtime was started before it."""
    first = agent_of(kernel_of(charge), name="first")
    second = agent_of(kernel_of(acharge, calls=[("shop-acharge", B), "second"], ids="s"), name="second")
    if kind == "sequential":
        say(first.kernel, ("shop-charge", A), "first")
        orchestration = SequentialOrchestration(members=[first, second])
    else:
        say(first.kernel, ("shop-charge", A), ("Handoff-transfer_to_second", {}))
        say(second.kernel, ("shop-acharge", B), ("Handoff-complete_task", {"task_summary": "done"}))
        handoffs = OrchestrationHandoffs().add(first, second, "the other one")
        orchestration = HandoffOrchestration(members=[first, second], handoffs=handoffs)
    assert protect(protect(orchestration, kit), kit) is orchestration

    async def main():
        runtime = InProcessRuntime()
        if early:
            runtime.start()
        async with kit.transaction("buy") as saga:
            if not early:
                runtime.start()
            await orchestrated(orchestration, runtime)
        return saga.report

    report = asyncio.run(main())
    assert [(step.tool, step.kwargs) for step in report.kept] == [("charge", A), ("acharge", B)]


def test_one_runtime_and_two_sagas(kit, shop):
    """Two orchestrations in one runtime belong each to the saga in which it was invoked."""
    runtime_of = {}

    def orchestration(name):
        agent = agent_of(kernel_of(charge, calls=[("shop-charge", {"thing": name}), "done"]), name=name)
        return protect(SequentialOrchestration(members=[agent]), kit)

    async def buy(name, runtime):
        async with kit.transaction(name) as saga:
            result = await orchestration(name).invoke(task="go", runtime=runtime)
            await result.get(timeout=20)
        runtime_of[name] = [step.kwargs["thing"] for step in saga.report.kept]

    async def main():
        runtime = InProcessRuntime()
        async with kit.transaction("around"):
            runtime.start()
        await asyncio.gather(buy("a", runtime), buy("b", runtime))
        await runtime.stop_when_idle()

    asyncio.run(main())
    assert runtime_of == {"a": ["a"], "b": ["b"]}


def test_an_orchestration_without_a_saga(kit, shop):
    """Outside of a saga an orchestration is what it was."""
    agent = agent_of(kernel_of(charge, calls=[("shop-charge", A), "done"]), name="one")
    orchestration = protect(SequentialOrchestration(members=[agent]), kit)

    async def main():
        runtime = InProcessRuntime()
        runtime.start()
        return await orchestrated(orchestration, runtime)

    assert str(asyncio.run(main())) == "done"
    assert shop.events == [("charge", "a")]


def test_a_kernel_that_is_given_to_one_call(kit, shop):
    """A kernel that is given to one call of an agent is covered if it is protected itself."""
    agent = protect(agent_of(kernel_of()), kit)
    other = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await agent.get_response("go", kernel=other)
        return saga.report

    assert len(asyncio.run(main()).kept) == 1
    assert [one["call_id"] for one in read_records(kit.log) if one["kind"] == "intent"] == ["c1"]
    assert isinstance(other, Kernel)
