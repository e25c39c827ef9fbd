"""`prove_rollback` on the workflows of strangers: threads, gathered tasks, compensators that fail, empty scenarios."""

import asyncio
import threading
import warnings

import pytest

from agent_saga import AgentKit, compensator
from agent_saga.errors import UsageError
from agent_saga.runtime.registry import UnreachableHandler
from agent_saga.testing import prove_rollback


def test_parallel_calls_that_the_test_broke_accuse_nobody():
    """PR-28: what the test itself did to calls that run side by side is no fault of an honest compensation."""
    world, kit = {}, AgentKit(log="memory:")

    def undo(item, idempotency_key):
        world.pop(item, None)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachableHandler)
        handler = compensator(f"beside-{id(world)}")(undo)

    async def take(item):
        await asyncio.sleep(0)
        world[item] = 1

    tool = kit.wrap(take, effect="compensable", name="beside", compensate=handler.bind(item="kwargs.item"))

    async def scenario():
        async with kit.transaction("gather"):
            await asyncio.gather(*(tool(item=item) for item in "abc"))

    async def proof():
        return await prove_rollback(scenario, snapshot=lambda: dict(world), reset=world.clear)

    proven = asyncio.run(proof())
    assert proven.proven, proven.format_text()
    assert {finding.kind for finding in proven.assumptions} == {"effect_despite_error"}
    kit.close()


def test_no_interrupt_reaches_a_thread_of_the_workflow(shop, capsys):
    """PR-29: Ctrl-C is felt by the thread of the scenario only; calls in others are broken in the other ways."""
    tool = shop.good()

    def scenario():
        with shop.kit.transaction("threads") as saga:
            failed = []

            def work(item):
                try:
                    tool(item=item)
                except Exception as error:
                    failed.append(error)

            threads = [threading.Thread(target=saga.bind(work), args=(item,)) for item in "ab"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failed:
                raise failed[0]

    before = threading.excepthook
    proof = prove_rollback(scenario, snapshot=shop.snapshot, reset=shop.reset)
    assert proof.proven, proof.format_text()
    assert "calls run in threads of the workflow, which Ctrl-C does not reach" in proof.bound
    assert all(one.reached for one in proof.broken)
    assert threading.excepthook is before
    assert "Traceback" not in capsys.readouterr().err


def test_a_compensation_that_always_raises_is_named(shop):
    """PR-30: interrupts that strike in recovery are no errors of the proof; what fails by itself is named."""

    def undo(item):
        raise RuntimeError("the refund service is down")

    tool = shop.tool(undo, idempotent=True, handler="refund")

    def scenario():
        with shop.kit.transaction("fails"):
            tool(item="a")

    proof = prove_rollback(scenario, snapshot=shop.snapshot, reset=shop.reset)
    (failing,) = [finding for finding in proof.left_to_humans if finding.kind == "compensation_fails"]
    assert failing.subject.startswith("refund")
    assert "the refund service is down" in failing.text


@pytest.mark.parametrize("calls", ["none", "refused"])
def test_a_scenario_without_effects_proves_nothing(shop, calls):
    """PR-31: a proof cannot pass by being empty."""
    tool = shop.tool(effect="irreversible")  # Nobody can be asked, so it is refused.

    def scenario():
        with shop.kit.transaction("empty"):
            if calls == "refused":
                tool(item="a")

    proof = prove_rollback(scenario, snapshot=shop.snapshot, reset=shop.reset)
    assert not proof.proven
    (finding,) = proof.violations
    assert finding.kind == "nothing_to_prove"
    assert ("GateRefused" in finding.text) == (calls == "refused")


def test_a_coroutine_that_nobody_awaits_is_refused(shop):
    """PR-32: a function that only returns a coroutine would run nothing."""

    async def scenario():
        raise AssertionError

    with pytest.raises(UsageError, match="pass the async function itself"):
        prove_rollback(lambda: scenario(), snapshot=shop.snapshot, reset=shop.reset)


def test_snapshots_that_cannot_be_compared_are_refused(shop):
    """PR-33: the error names `snapshot`, not whatever `==` raised."""

    class Table:
        def __eq__(self, other):
            raise ValueError("ambiguous")

        __hash__ = None

    tool = shop.good()

    def scenario():
        with shop.kit.transaction("table"):
            tool(item="a")

    with pytest.raises(UsageError, match=r"snapshot\(\) .* cannot be compared"):
        prove_rollback(scenario, snapshot=Table, reset=shop.reset)
