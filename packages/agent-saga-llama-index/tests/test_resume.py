"""Runs that go on elsewhere: from a context that was stored, from a conversation, in other processes, after a kill."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from llama_index.core.agent.workflow import ToolCall
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.workflow import Context
from llama_scripted import results, run
from llama_shop import BACK, acharge, charge, here, new, tool

from agent_saga import SagaSuspended
from agent_saga.errors import SagaDiverged
from agent_saga_llama_index import protect

HERE = Path(__file__).parent
A, B = {"thing": "a"}, {"thing": "b"}


def program(folder, mode, code=0):
    done = subprocess.run(
        [sys.executable, HERE / "llama_resume_program.py", folder, mode],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ.copy(),
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.timeout(400)  # Each process imports the framework, for seconds.
@pytest.mark.parametrize("killed", [False, True])
def test_paused_in_one_process_and_resumed_in_another(tmp_path, killed):
    """A paused run goes on in other processes, and one that is killed after its effect is resumed: each line once."""
    assert program(tmp_path, "ask") == "suspended {'line': 'a'} None"
    if killed:
        program(tmp_path, "die", code=-signal.SIGKILL)
    assert program(tmp_path, "go-on") == "committed {'line': 'b'} done"
    assert (tmp_path / "world").read_text().split() == ["a", "b"]


class Slow:
    """A tool whose effect happens before it waits."""

    def __init__(self):
        self.released = asyncio.Event()
        self.begun = asyncio.Event()

    async def slow(self, thing: str) -> dict:
        """Charge, and wait."""
        result = new("slow", thing)
        self.begun.set()
        await self.released.wait()
        return result


@pytest.mark.parametrize("when", ["both go on", "the first is over"])
def test_a_context_that_is_stored_while_a_tool_runs(kit, shop, maker, when):
    """A run that is resumed from a context in which a tool was running makes that call again: one effect."""
    kit.declare("slow", **BACK)

    async def main():
        slow = Slow()
        agent = maker.agent([tool(slow.slow)], [("slow", A), ("slow", A)])
        async with kit.transaction("buy") as saga:
            handler = agent.run(user_msg="go")
            await slow.begun.wait()
            stored = json.loads(json.dumps(handler.ctx.to_dict()))
            if when == "the first is over":
                slow.released.set()
                await handler
            again = maker.agent([tool(slow.slow)])
            resumed = again.run(ctx=Context.from_dict(again, stored))
            slow.released.set()
            told, _ = await results(resumed)
            await handler
        return told, saga

    told, saga = asyncio.run(main())
    assert {id_: output.raw_output for id_, output in told.items()} == {"c1": {"id": "a"}, "c2": {"id": "a"}}
    assert (saga.report.outcome, len(saga.report.kept), shop.count("slow")) == ("committed", 2, 2)


def test_a_conversation_brings_the_results_along(kit, shop, maker):
    """A run that goes on with the memory of one before, in the resumed saga, has its results, and commits with them."""
    memory = ChatMemoryBuffer.from_defaults(token_limit=10_000)
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        run(maker.agent([charge], ("charge", A)), memory=memory)
        raise SagaSuspended("later")
    kept = ChatMemoryBuffer.from_dict(json.loads(json.dumps(memory.to_dict())))
    with kit.transaction("buy", key="order-1") as saga:
        run(maker.agent([charge]), "and now?", memory=kept)
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_a_history_brings_the_results_along(kit, shop, maker):
    """So does a chat history that is given by hand."""
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        run(maker.agent([charge], ("charge", A)))
        raise SagaSuspended("later")
    told = ChatMessage(role="tool", content="{'id': 'a'}", additional_kwargs={"tool_call_id": "c1"})
    with kit.transaction("buy", key="order-1") as saga:
        run(maker.agent([charge]), "and now?", chat_history=[ChatMessage(role="user", content="go"), told])
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])


def test_a_run_that_begins_again(kit, shop, maker):
    """A run that begins again in the resumed saga is answered with what stands, and goes on from there."""
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        run(maker.agent([charge], ("charge", A)))
        raise SagaSuspended("later")
    with kit.transaction("buy", key="order-1") as saga:
        run(maker.agent([charge, acharge], ("charge", A), ("acharge", B)))
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a"), ("acharge", "b")])


def test_a_run_that_does_something_else_diverges(kit, shop, maker):
    """A resumed run that neither makes a call again nor has its result has diverged, and is rolled back."""
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        run(maker.agent([charge], ("charge", A)))
        raise SagaSuspended("later")
    with pytest.raises(SagaDiverged), kit.transaction("buy", key="order-1"):
        run(maker.agent([charge, acharge], ("acharge", B)))
    assert shop.standing == []


def test_results_that_are_no_plain_data(kit, shop, maker):
    """A result that is a model of the framework's user is answered, elsewhere, as the plain data that the log has."""
    from pydantic import BaseModel

    class Receipt(BaseModel):
        id: str

    def receipt(thing: str) -> Receipt:
        """Charge."""
        return Receipt(id=new("charge", thing)["id"])

    kit.declare("receipt", **BACK)

    def suspended():
        with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
            run(maker.agent([tool(receipt)], ("receipt", A)))
            raise SagaSuspended("later")

    suspended()
    with kit.transaction("buy", key="order-1") as saga:
        told = run(maker.agent([tool(receipt)], ("receipt", A)))
    assert (saga.report.outcome, shop.events) == ("committed", [("charge", "a")])
    assert "a" in told["c1"].content


def test_another_tool_is_answered_elsewhere(kit, shop, maker):
    """A tool that is no function's is answered with a `ToolOutput` of its raw output."""
    from llama_index.core.tools import ToolOutput
    from llama_index.core.tools.types import AsyncBaseTool

    class Raw(AsyncBaseTool):
        metadata = tool(charge.real_fn, name="raw").metadata

        def call(self, thing):
            return ToolOutput(content="charged", tool_name="raw", raw_input={}, raw_output=new("raw", thing))

        async def acall(self, thing):
            return self.call(thing)

    kit.declare("raw", **BACK)
    with pytest.raises(SagaSuspended), kit.transaction("buy", key="order-1"):
        run(maker.agent([Raw()], ("raw", A)))
        raise SagaSuspended("later")
    kit.close()
    with kit.transaction("buy", key="order-1") as saga:
        told = run(protect(maker.agent([Raw()], ("raw", A)), kit))
    assert (told["c1"].raw_output, told["c1"].tool_name, shop.count("raw")) == ({"id": "a"}, "raw", 1)
    assert saga.report.outcome == "committed"


def test_events_of_a_resumed_run(kit, shop, maker):
    """The events of a run are the framework's own, whether its calls are made or answered from the log."""

    async def events(agent):
        seen = []
        handler = agent.run(user_msg="go")
        async for event in handler.stream_events():
            seen.append(type(event).__name__)
            if isinstance(event, ToolCall):
                seen.append(event.tool_id)
        return seen

    async def main():
        seen = []
        for end in (SagaSuspended("later"), None):
            try:
                async with kit.transaction("buy", key="order-1"):
                    seen.append(await events(maker.agent([charge], ("charge", A))))
                    if end:
                        raise end
            except SagaSuspended:
                continue
        return seen

    first, second = asyncio.run(main())
    assert first == second
    assert here().count("charge") == 1
