"""Cancellation: AutoGen waits for ever when a token is cancelled while a tool runs; a protected run does not."""

import asyncio
import threading

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, StaticWorkbench
from autogen_scripted import WAYS, Scripted, answers, arun, in_saga, turns
from autogen_shop import BACK, charge, find_late, new

from agent_saga import SagaRolledBack
from agent_saga.spi import read_records
from agent_saga_autogen import protect

CHARGE = ("charge", {"thing": "a"})
LATE = ("late", {"thing": "b"})
HANGS_S = 20
"""Longer than anything here takes: what is not done by then hangs."""


class Slow:
    """A tool that waits to be released, in the loop or in AutoGen's thread."""

    def __init__(self, nature):
        self.begun, self.release = threading.Event(), threading.Event()

        async def aslow(thing: str) -> dict:
            """Charge, in time."""
            self.begun.set()
            while not self.release.is_set():
                await asyncio.sleep(0.005)
            return new("late", thing)

        def slow(thing: str) -> dict:
            """Charge, in time."""
            self.begun.set()
            assert self.release.wait(HANGS_S)
            return new("late", thing)

        self.tool = FunctionTool(aslow if nature == "async" else slow, "Slow.", name="late")

    async def has_begun(self):
        while not self.begun.is_set():
            await asyncio.sleep(0.005)


NATURES = pytest.mark.parametrize("nature", ["sync", "async"])


def states(kit):
    return [one["state"] for one in read_records(kit.log) if one["kind"] == "outcome"]


@WAYS
@NATURES
def test_a_token_is_cancelled_while_a_tool_runs(kit, shop, maker, way, nature):
    """The run ends; the call is in doubt, and lands late or not at all: the world is what it was before."""
    slow = Slow(nature)
    agent = maker.agent([charge, slow.tool], [CHARGE, LATE], max_tool_iterations=1)
    token = CancellationToken()

    async def main(saga):
        running = asyncio.ensure_future(arun(way, agent, cancellation_token=token))
        await slow.has_begun()
        token.cancel()
        try:
            return await asyncio.wait_for(running, HANGS_S)
        finally:
            asyncio.get_running_loop().call_later(0.1, slow.release.set)

    error = asyncio.CancelledError if way == "team" else SagaRolledBack
    with pytest.raises(error):
        in_saga(kit, main, drain_s=0.02)
    _wait_until(lambda: shop.standing == [] and (nature == "async" or ("refund", "b") in shop.events))
    assert states(kit).count("succeeded") == 1  # The one beside it; this one was never answered in time.


def _wait_until(true):
    """Wait for what the engine does on its own thread, after the loop that ran the tool has ended."""
    done = threading.Event()
    for _ in range(HANGS_S * 100):
        if true():
            return
        done.wait(0.01)
    raise AssertionError("it did not happen")


def test_a_late_landing_in_time_is_kept_as_what_it_is(kit, shop, maker):
    """A sync tool that lands after its run was cancelled, and before the saga ends, is known, and in the report."""
    slow = Slow("sync")
    agent = maker.agent([slow.tool], LATE, max_tool_iterations=1)
    token = CancellationToken()

    async def main(saga):
        running = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
        await slow.has_begun()
        token.cancel()
        result = await asyncio.wait_for(running, HANGS_S)
        slow.release.set()
        return result

    result, saga = in_saga(kit, main)
    assert "cancelled" in answers(result)[0]
    assert ([step.tool for step in saga.report.kept], shop.standing) == (["late"], ["b"])


@NATURES
def test_a_cancelled_run_may_fail_the_saga(kit, shop, maker, nature):
    """A program that raises after a cancelled run has everything taken back, also what lands afterwards."""
    slow = Slow(nature)
    agent = maker.agent([charge, slow.tool], CHARGE, LATE, max_tool_iterations=2)
    token = CancellationToken()

    async def main(saga):
        running = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
        await slow.has_begun()
        token.cancel()
        await asyncio.wait_for(running, HANGS_S)
        slow.release.set()
        raise TimeoutError("it took too long")

    with pytest.raises(TimeoutError):
        in_saga(kit, main)
    _wait_until(lambda: shop.standing == [])


@pytest.mark.parametrize("how", ["agent", "tools", "workbench"])
@NATURES
def test_every_form_of_protection_bears_a_cancellation(kit, shop, maker, how, nature):
    """Whatever of an agent is protected, a cancelled call does not hang its run."""
    slow = Slow(nature)
    if how == "agent":
        agent = maker.agent([slow.tool], LATE, max_tool_iterations=1)
    elif how == "tools":
        agent = maker.bare(protect([slow.tool], kit), LATE, max_tool_iterations=1)
    else:
        kind = StaticWorkbench if nature == "sync" else StaticStreamWorkbench
        agent = maker.bare(None, LATE, workbench=protect(kind([slow.tool]), kit), max_tool_iterations=1)
    token = CancellationToken()

    async def main(saga):
        running = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
        await slow.has_begun()
        token.cancel()
        try:
            return await asyncio.wait_for(running, HANGS_S)
        finally:
            slow.release.set()

    if nature == "async":
        with pytest.raises(SagaRolledBack):
            in_saga(kit, main)
    else:
        assert in_saga(kit, main)[1].report.kept
    assert shop.standing == (["b"] if nature == "sync" else [])


@pytest.mark.parametrize("calls", [[CHARGE], [("transfer_to_user", {})]], ids=["tool", "handoff"])
@pytest.mark.parametrize("bench", [None, StaticWorkbench])
def test_a_token_that_is_cancelled_already(kit, shop, maker, calls, bench):
    """A call under a cancelled token does not begin, and does not hang; nothing has happened."""
    token = CancellationToken()

    class Cancels(Scripted):
        async def create(self, messages, **options):
            token.cancel()
            return await super().create(messages, **options)

    tools = [FunctionTool(charge, "C.")]
    options = {"workbench": bench(tools)} if bench is not None else {"tools": tools}
    agent = AssistantAgent("a", model_client=Cancels(turns(calls)), handoffs=["user"], **options)
    protect(agent, kit)

    async def main(saga):
        return await asyncio.wait_for(agent.run(task="go", cancellation_token=token), HANGS_S)

    _, saga = in_saga(kit, main)
    assert (saga.report.outcome, shop.events) == ("committed", [])


@NATURES
def test_a_cancelled_task_lets_its_calls_end(kit, shop, maker, nature):
    """AutoGen's calls outlive the task of their run: the saga waits for them, and takes back what they did."""
    slow = Slow(nature)
    agent = maker.agent([slow.tool], LATE)

    async def main(saga):
        running = asyncio.ensure_future(agent.run(task="go"))
        await slow.has_begun()
        running.cancel()
        asyncio.get_running_loop().call_later(0.05, slow.release.set)
        await running

    with pytest.raises(asyncio.CancelledError):
        in_saga(kit, main)
    assert shop.events == [("late", "b"), ("refund", "b")]


@NATURES
def test_a_cancelled_task_of_a_team(kit, shop, maker, nature):
    """A team whose task is cancelled has its calls cancelled: AutoGen would wait for them first, however long."""
    slow = Slow(nature)
    team = protect(RoundRobinGroupChat([maker.bare([slow.tool], LATE)], max_turns=1), kit)

    async def main(saga):
        running = asyncio.ensure_future(team.run(task="go"))
        await slow.has_begun()
        running.cancel()
        try:
            await asyncio.wait_for(asyncio.wait([running]), HANGS_S)
        finally:
            slow.release.set()
        await running

    with pytest.raises(asyncio.CancelledError):
        in_saga(kit, main)
    _wait_until(lambda: shop.standing == [])


@NATURES
def test_a_cancelled_call_within_an_agent_that_is_a_tool(kit, shop, maker, nature):
    """A token reaches the calls of an inner agent, and neither run hangs."""
    slow = Slow(nature)
    inner = maker.bare([slow.tool], LATE, name="inner", max_tool_iterations=1)
    agent = maker.agent([AgentTool(inner)], ("inner", {"task": "do"}), max_tool_iterations=1)
    token = CancellationToken()

    async def main(saga):
        running = asyncio.ensure_future(agent.run(task="go", cancellation_token=token))
        await slow.has_begun()
        token.cancel()
        try:
            await asyncio.wait_for(running, HANGS_S)
        finally:
            slow.release.set()
        raise TimeoutError

    with pytest.raises(TimeoutError):
        in_saga(kit, main)
    _wait_until(lambda: shop.standing == [])


@pytest.mark.parametrize("lands", [True, False])
def test_a_timeout_of_the_declaration(kit, shop, maker, lands):
    """A call that its declaration gives up is in doubt: its probe says what is true."""

    async def late(thing: str) -> dict:
        """Answer too late."""
        if lands:
            new("late", thing)
        await asyncio.sleep(HANGS_S)
        return {}

    kit.declare("late", probe=find_late, timeout_s=0.05, **BACK)
    try:
        result, saga = in_saga(kit, lambda _: maker.agent([late], LATE).run(task="go"))
        assert lands
        assert [step.tool for step in saga.report.kept] == ["late"]
        assert answers(result)
    except SagaRolledBack:
        assert not lands
    assert shop.standing == (["b"] if lands else [])


@NATURES
def test_outside_of_a_saga_cancellation_is_autogens(kit, maker, nature):
    """Without a saga a protected tool's call is cancelled as the bare one's is."""
    slow = Slow(nature)
    tool = protect(slow.tool, kit)
    token = CancellationToken()

    async def main():
        bench = StaticWorkbench([tool])
        calling = asyncio.ensure_future(bench.call_tool("late", {"thing": "a"}, token))
        await slow.has_begun()
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        slow.release.set()

    asyncio.run(main())
