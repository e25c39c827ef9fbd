"""The framework's loop: parallel calls, failures as text, limits, terminated loops, cancellation, resumes."""

import asyncio
import threading

import pytest
from kernel_scripted import answers, chat, history_of, kernel_of, results, say, stored, stream
from kernel_shop import BACK, NoBigOnes, acharge, boom, charge, new
from semantic_kernel.filters import FilterTypes
from semantic_kernel.functions import kernel_function

from agent_saga import RollbackIncomplete, SagaRolledBack, SagaSuspended
from agent_saga.errors import SagaDiverged
from agent_saga.spi import read_records
from agent_saga_semantic_kernel import resume

WAYS = pytest.mark.parametrize("run", [chat, stream])
A, B = {"thing": "a"}, {"thing": "b"}


def records(kit, kind):
    return [one for one in read_records(kit.log) if one["kind"] == kind]


@WAYS
def test_parallel_calls(kit, shop, run):
    """The calls of one turn are steps, each with the model's id of it; the history is what it is without us."""
    calls = [[("shop-charge", A), ("shop-acharge", B)], ("shop-look", A)]
    from kernel_shop import look

    bare = kernel_of(charge, acharge, look, calls=calls)
    kernel = kernel_of(charge, acharge, look, calls=calls, kit=kit)

    async def main():
        without = await run(bare)
        shop.events.clear()
        async with kit.transaction("buy") as saga:
            return without, await run(kernel), saga

    without, history, saga = asyncio.run(main())
    assert [str(one) for one in history.messages] == [str(one) for one in without.messages]
    assert sorted(results(history), key=str) == sorted(results(without), key=str)
    assert sorted((step.tool, step.kwargs["thing"]) for step in saga.report.kept) == [("acharge", "b"), ("charge", "a")]
    assert sorted(one["call_id"] for one in records(kit, "intent")) == ["c1", "c2"]


@WAYS
@pytest.mark.parametrize("name", ["boom", "aboom"])
def test_a_failing_sibling(kit, shop, run, name):
    """The loop turns a failure into text and goes on; the saga does not commit, and undoes what the siblings did."""
    from kernel_shop import aboom

    shop.raises[name] = ValueError("no stock")
    kernel = kernel_of(
        charge, acharge, boom, aboom, calls=[[("shop-charge", A), (f"shop-{name}", B), ("shop-acharge", A)]], kit=kit
    )
    told = []

    async def main():
        async with kit.transaction("buy"):
            told.extend(answers(await run(kernel)))

    with pytest.raises(SagaRolledBack, match=name):
        asyncio.run(main())
    assert sum("no stock" in str(text) for text in told) == 1
    assert shop.standing == []


@WAYS
def test_a_failure_that_the_model_repairs(kit, shop, run):
    """A failure that the model repairs with an equal call does not roll back the world."""
    shop.raises["boom"] = ValueError("not now")
    kernel = kernel_of(charge, boom, calls=[("shop-charge", A), ("shop-boom", B), ("shop-boom", B)], kit=kit)

    async def forgets(context, next):  # noqa: A002
        try:
            await next(context)
        finally:
            if context.function.name == "boom":
                shop.raises.clear()

    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, forgets)

    async def main():
        async with kit.transaction("buy") as saga:
            await run(kernel)
        return saga.report.outcome

    assert asyncio.run(main()) == "committed"
    assert shop.events == [("charge", "a"), ("boom", "b")]


def test_repeated_ids(kit, shop):
    """Models repeat ids: an equal id in a later turn, in another run or beside another call is a call of its own."""
    kernel = kernel_of(charge, kit=kit)
    service = kernel.services["scripted"]
    call = ("shop-charge", A, "same")

    async def main():
        async with kit.transaction("buy") as saga:
            service.turns = [[call, call], [call]]
            history = await chat(kernel)
            service.turns = [[call]]
            await chat(kernel, history)
        return saga.report

    assert len(asyncio.run(main()).kept) == 4
    assert shop.events == [("charge", "a")] * 4


@WAYS
def test_the_limit_of_attempts(kit, shop, run):
    """When the loop reaches its limit, what was done is what the saga knows."""
    kernel = kernel_of(charge, calls=[("shop-charge", A), ("shop-charge", B), "enough"], kit=kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await run(kernel, maximum_auto_invoke_attempts=1)
        return saga.report

    assert [step.kwargs for step in asyncio.run(main()).kept] == [A]


@WAYS
def test_a_refusal(kit, shop, run):
    """A refused call is told to the model in the framework's words, with the reason; the saga commits."""
    kernel = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)

    async def main():
        async with kit.transaction("buy", policies=[NoBigOnes()]) as saga:
            return answers(await run(kernel)), saga

    (text,), saga = asyncio.run(main())
    assert text.startswith("An error occurred while invoking the function shop-charge")
    assert "too big" in text
    assert (saga.report.outcome, shop.events) == ("committed", [])


def test_what_the_loop_rejects(kit, shop):
    """Unknown functions, missing, unknown and malformed arguments, and those of the wrong type, are no steps."""

    @kernel_function
    def pay(amount: int) -> dict:
        return new("pay", amount)

    kit.declare("pay", **BACK)
    calls = [
        ("shop-nope", {}),
        ("shop-pay", {}),
        ("shop-pay", {"amount": 1, "more": 2}),
        ("shop-pay", {"amount": "much"}),
    ]
    kernel = kernel_of(pay, calls=[calls], kit=kit)

    async def main():
        async with kit.transaction("buy") as saga:
            return answers(await chat(kernel)), saga.report

    told, _ = asyncio.run(main())
    assert (len(told), records(kit, "intent"), shop.events) == (4, [], [])


def test_a_filter_that_fails(kit, shop):
    """A filter that raises ends the loop, while a sibling runs on by itself: it is waited for, and undone."""
    running, go_on = asyncio.Event(), asyncio.Event()

    @kernel_function
    async def slow(thing: str) -> dict:
        running.set()
        await go_on.wait()
        return new("slow", thing)

    kit.declare("slow", **BACK)
    kernel = kernel_of(charge, slow, calls=[[("shop-slow", A), ("shop-charge", B)]], kit=kit)

    async def fails(context, next):  # noqa: A002
        await next(context)
        if context.function.name == "charge":
            await running.wait()
            raise KeyError("the filter is broken")

    kernel.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, fails)

    async def main():
        async with kit.transaction("buy"):
            try:
                await chat(kernel)
            finally:
                go_on.set()

    with pytest.raises(KeyError, match="broken"):
        asyncio.run(main())
    assert sorted(shop.events) == [("charge", "b"), ("refund", "a"), ("refund", "b"), ("slow", "a")]


def test_a_result_that_cannot_be_copied(kit, shop):
    """The framework fails on a result that it cannot copy, after the effect: all calls are rolled back."""

    @kernel_function
    async def lock(thing: str) -> object:
        new("lock", thing)
        return {"id": thing, "lock": threading.Lock()}

    kit.declare("lock", **BACK)
    kernel = kernel_of(lock, acharge, calls=[[("shop-lock", A), ("shop-acharge", B)]], kit=kit)

    async def main():
        async with kit.transaction("buy"):
            await chat(kernel)

    with pytest.raises(TypeError):
        asyncio.run(main())
    assert shop.standing == []


def test_what_is_no_exception(kit, shop):
    """What is no Exception leaves the loop; what the calls did is undone."""

    class Stop(BaseException):
        pass

    @kernel_function
    async def stops(thing: str) -> dict:
        raise Stop

    kit.declare("stops", **BACK)
    kernel = kernel_of(charge, stops, calls=[[("shop-charge", A), ("shop-stops", B)]], kit=kit)

    async def main():
        async with kit.transaction("buy"):
            await chat(kernel)

    with pytest.raises(Stop):
        asyncio.run(main())
    assert ("charge", "a") in shop.events
    assert ("refund", "a") in shop.events


def test_cancelled_in_flight(kit, shop):
    """A run that is cancelled leaves a call in doubt: its probe finds what it did, and that is taken back."""
    acted = asyncio.Event()

    async def hangs(context, next):  # noqa: A002
        await next(context)

    @kernel_function(name="probed")
    async def slow(thing: str) -> dict:
        result = new("probed", thing)
        acted.set()
        await asyncio.Event().wait()
        return result

    kernel = kernel_of(slow, calls=[("shop-probed", A)], kit=kit)
    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, hangs)

    async def main():
        async with kit.transaction("buy"):
            task = asyncio.create_task(chat(kernel))
            await acted.wait()
            task.cancel()
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert shop.events == [("probed", "a"), ("refund", "a")]


def test_an_answer_that_comes_too_late(kit, shop):
    """A function that ignores its cancellation acts after the saga was rolled back: that is recorded, and undone."""
    began, go_on, undone = asyncio.Event(), asyncio.Event(), threading.Event()

    @kernel_function(name="probed")
    async def stubborn(thing: str) -> dict:
        began.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return new("probed", thing)

    shop.on_refund = undone.set
    kernel = kernel_of(stubborn, calls=[("shop-probed", A)], kit=kit)

    async def main():
        with pytest.raises((KeyError, RollbackIncomplete)):
            async with kit.transaction("buy", drain_s=0.05, rollback_timeout_s=1):
                run = asyncio.create_task(chat(kernel))
                await began.wait()
                run.cancel()
                raise KeyError("enough")
        assert shop.events == []
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert await asyncio.to_thread(undone.wait, 20)

    asyncio.run(main())
    assert shop.events == [("probed", "a"), ("refund", "a")]
    assert [one["state"] for one in records(kit, "late_outcome")] == ["succeeded"]


# -- histories that go on elsewhere -----------------------------------------------------------------------------------


def suspended(kit, kernel):
    """A run in a saga that is suspended; returns its history as it was stored before the answer."""
    history = history_of()

    async def main():
        async with kit.transaction("buy", key="order-1"):
            await chat(kernel, history)
            raise SagaSuspended("later")

    with pytest.raises(SagaSuspended):
        asyncio.run(main())
    history.messages.pop()
    return stored(history)


def test_a_history_brings_its_results_along(kit, shop):
    """A history that goes on in the resumed saga brings results along: those steps are known, and stand."""
    kernel = kernel_of(charge, acharge, calls=[("shop-charge", A)], kit=kit)
    history = suspended(kit, kernel)

    async def main():
        say(kernel, ("shop-acharge", B), ids="d")
        async with kit.transaction("buy", key="order-1") as saga:
            await chat(kernel, history)
        return saga.report

    assert asyncio.run(main()).outcome == "committed"
    assert shop.events == [("charge", "a"), ("acharge", "b")]


def test_a_history_that_needs_nothing_more(kit, shop):
    """A history with all results in it goes on with `resume`, also if the model makes no further call."""
    kernel = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)
    history = suspended(kit, kernel)

    async def main():
        async with kit.transaction("buy", key="order-1") as saga:
            assert await resume(kernel, history) == []
            await chat(kernel, history)
        return saga.report

    assert (asyncio.run(main()).outcome, shop.events) == ("committed", [("charge", "a")])


def test_a_run_that_begins_again(kit, shop):
    """A run that begins again in the resumed saga is answered with what stands, and goes on from there."""
    kernel = kernel_of(charge, acharge, calls=[("shop-charge", A)], kit=kit)
    suspended(kit, kernel)

    async def main():
        say(kernel, ("shop-charge", A), ("shop-acharge", B))
        async with kit.transaction("buy", key="order-1") as saga:
            told = answers(await chat(kernel))
        return told, saga.report.outcome

    assert asyncio.run(main()) == ([{"id": "a"}, {"id": "b"}], "committed")
    assert shop.events == [("charge", "a"), ("acharge", "b")]


def test_a_repeated_id_after_a_resume(kit, shop):
    """A result in the history answers one call, not an equal one with the same id that was made after it was stored."""
    kernel = kernel_of(charge, acharge, kit=kit)
    call = ("shop-charge", A, "same")
    kernel.services["scripted"].turns = [[call], [call]]
    history = suspended(kit, kernel)
    del history.messages[3:]  # The second call and its result were not stored.

    async def main():
        kernel.services["scripted"].turns = [[call]]
        async with kit.transaction("buy", key="order-1") as saga:
            await chat(kernel, history)
        return saga.report.outcome

    assert asyncio.run(main()) == "committed"
    assert shop.events == [("charge", "a")] * 2


def test_a_run_that_does_something_else_diverges(kit, shop):
    """A resumed run that neither makes a call again nor has its result has diverged, and is rolled back."""
    kernel = kernel_of(charge, acharge, calls=[("shop-charge", A)], kit=kit)
    suspended(kit, kernel)

    async def main():
        say(kernel, ("shop-acharge", B))
        async with kit.transaction("buy", key="order-1"):
            await chat(kernel)

    with pytest.raises(SagaDiverged):
        asyncio.run(main())
    assert shop.standing == []
