"""How runs end otherwise: cancelled, out of time, out of turns, without a model; and what comes late."""

import asyncio
import threading

import pytest
from llama_scripted import run
from llama_shop import BACK, acharge, charge, new, refund, tool
from workflows.errors import WorkflowCancelledByUser, WorkflowRuntimeError, WorkflowTimeoutError

from agent_saga import RollbackIncomplete, SagaRolledBack, compensator
from agent_saga.spi import read_records

A, B = {"thing": "a"}, {"thing": "b"}


class Gate:
    """Tools that wait in the middle of their work."""

    def __init__(self):
        self.begun, self.release = threading.Event(), threading.Event()

    def slow(self, thing: str) -> dict:
        """Wait, then charge."""
        self.begun.set()
        self.release.wait(20)
        return new("slow", thing)

    async def aslow(self, thing: str) -> dict:
        """Charge, then wait."""
        result = new("aslow", thing)
        self.begun.set()
        await asyncio.Event().wait()
        return result

    async def in_flight(self):
        while not self.begun.is_set():
            await asyncio.sleep(0.001)


@compensator("llama_ends.take_back", idempotent=True, safe_if_absent=True)
def take_back(thing: str) -> None:
    refund.fn(thing)


SAFE = {"effect": "compensable", "compensate": take_back.bind(thing="kwargs.thing")}


def cancelled(handler):
    return handler.cancel_run()


async def awaited(handler):
    """Cancel whoever awaits the run."""

    async def wait():
        await handler

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("way", [cancelled, awaited])
@pytest.mark.parametrize("name", ["slow", "aslow"])
def test_a_run_that_is_cancelled(kit, shop, maker, way, name):
    """What a cancelled run did is taken back, also what a sync tool does afterwards in its thread."""
    kit.declare(name, **SAFE)
    gate = Gate()

    async def main():
        agent = maker.agent([charge, tool(getattr(gate, name))], ("charge", B), (name, A))
        async with kit.transaction("buy", drain_s=0.05) as saga:
            handler = agent.run(user_msg="go")
            await gate.in_flight()
            await way(handler)
            try:
                await handler
            finally:
                states["saga"] = saga

    states = {}
    with pytest.raises((WorkflowCancelledByUser, asyncio.CancelledError, RollbackIncomplete)):
        asyncio.run(releasing(main(), gate))
    until(lambda: shop.events.count(("refund", "a")) >= 1)
    assert shop.standing == []
    kinds = [(one["kind"], one["state"]) for one in read_records(kit.log) if one["kind"] in {"outcome", "late_outcome"}]
    assert (("late_outcome", "succeeded") if name == "slow" else ("outcome", "in_doubt")) in kinds


async def releasing(work, gate):
    try:
        return await work
    finally:
        gate.release.set()


def until(holds):
    condition = threading.Condition()
    with condition:
        assert condition.wait_for(holds, 10) or any(condition.wait_for(holds, 0.01) for _ in range(1000))


def test_a_run_out_of_time(kit, shop, maker):
    """A run whose own time is over is an exception that leaves the scope: all is taken back."""
    kit.declare("aslow", **SAFE)
    gate = Gate()
    agent = maker.agent([acharge, tool(gate.aslow)], ("acharge", B), ("aslow", A), timeout=0.3)
    with pytest.raises(WorkflowTimeoutError) as caught, kit.transaction("buy"):
        run(agent)
    assert "rolled back, clean" in caught.value.__notes__[-1]
    assert shop.standing == []


def test_a_timeout_of_the_tool(kit, shop, maker):
    """A call that its declaration gives up is in doubt; the model hears of it, and the saga does not commit."""
    kit.declare("aslow", timeout_s=0.05, **SAFE)
    with pytest.raises(SagaRolledBack, match="TimeoutError"), kit.transaction("buy"):
        told = run(maker.agent([charge, tool(Gate().aslow)], ("aslow", A)))
    assert (told["c1"].is_error, shop.standing) == (True, [])


@pytest.mark.parametrize("error", [ConnectionError("no model"), ValueError("odd")])
def test_a_model_that_dies(kit, shop, maker, error):
    """When the model fails in the middle, what was done is taken back."""
    with pytest.raises(type(error)), kit.transaction("buy"):
        run(maker.agent([charge], ("charge", A), error))
    assert shop.standing == []


def test_out_of_turns(kit, shop, maker):
    """A run that makes too many turns is an exception that leaves the scope."""
    agent = maker.agent([charge], *[("charge", {"thing": str(number)}) for number in range(5)])
    with pytest.raises(WorkflowRuntimeError, match="Max iterations"), kit.transaction("buy"):
        run(agent, max_iterations=3)
    assert (shop.standing, shop.count("charge")) == ([], 2)


def test_an_exception_that_is_no_error(kit, shop, maker):
    """What is not an `Exception` ends the run, and leaves as itself."""

    class Stop(BaseException):
        pass

    def stops(thing: str) -> dict:
        """Stop."""
        raise Stop

    kit.declare("stops", **BACK)

    async def main():  # Without its events: the framework ends their stream only after an `Exception`.
        await maker.agent([charge, tool(stops)], ("charge", B), ("stops", A)).run(user_msg="go")

    with pytest.raises(Stop), kit.transaction("buy"):
        asyncio.run(main())
    assert shop.standing == []


def test_a_cancelled_run_that_nobody_minds(kit, shop, maker):
    """A cancellation that the program swallows leaves the step in doubt: the saga does not commit with it."""
    kit.declare("aslow", **BACK)
    gate = Gate()

    async def main():
        agent = maker.agent([charge, tool(gate.aslow)], ("charge", B), ("aslow", A))
        async with kit.transaction("buy"):
            handler = agent.run(user_msg="go")
            await gate.in_flight()
            await handler.cancel_run()

    with pytest.raises(SagaRolledBack, match="in doubt"):
        asyncio.run(main())
    assert ("refund", "b") in shop.events
