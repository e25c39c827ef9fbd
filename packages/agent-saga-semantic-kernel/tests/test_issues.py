"""What users of microsoft/semantic-kernel ran into, and cases from the field that fit: what the saga makes of them."""

import asyncio

import pytest
from kernel_scripted import agent_of, answers, chat, history_of, kernel_of, results, say, settings, stored
from kernel_shop import BACK, acharge, boom, charge, new, probed
from semantic_kernel.contents import AuthorRole, FunctionResultContent
from semantic_kernel.filters import FilterTypes
from semantic_kernel.functions import KernelArguments, kernel_function

from agent_saga import Allow, Ask, Refuse, SagaRolledBack
from agent_saga.spi import read_records
from agent_saga_semantic_kernel import protect, resume

A, B = {"thing": "a"}, {"thing": "b"}


class AskFirst:
    def decide(self, call, saga):
        return Ask("sure?", suspend=True, expires_s=60)


SAGA = {"key": "order-1", "policies": [AskFirst()]}


def transact(kit, work, **options):
    async def main():
        async with kit.transaction("buy", **options) as saga:
            result = await work()
        return result, saga.report

    return asyncio.run(main())


def test_14072_an_approval_before_an_automatic_call(kit, shop):
    """#14072: no function is invoked automatically before somebody has approved it."""
    kernel = kernel_of(charge, calls=[("shop-charge", A), "bought"], kit=kit)
    history, report = transact(kit, lambda: chat(kernel), **SAGA)
    assert (report.outcome, shop.events) == ("suspended", [])

    async def go_on():
        await resume(kernel, history, approved=True)
        return await chat(kernel, history)

    _, report = transact(kit, go_on, **SAGA)
    assert (report.outcome, shop.events, str(history.messages[-1])) == ("committed", [("charge", "a")], "bought")


def test_8020_a_filter_that_terminates(kit, shop):
    """#8020: where a filter ends the loop after a failure, the caller has the results, and the saga knows better."""
    shop.raises["boom"] = ValueError("no stock")
    kernel = kernel_of(charge, boom, calls=[[("shop-charge", A), ("shop-boom", B)], "never"], kit=kit)

    async def ends(context, next):  # noqa: A002
        await next(context)
        context.terminate = "An error occurred" in str(context.function_result)

    kernel.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, ends)
    told = []

    async def main():
        async with kit.transaction("buy"):
            service = kernel.services["scripted"]
            told.append(await service.get_chat_message_content(history_of(), settings(), kernel=kernel))

    with pytest.raises(SagaRolledBack, match="boom"):
        asyncio.run(main())
    (message,) = told
    assert message.role is AuthorRole.TOOL
    assert all(isinstance(item, FunctionResultContent) for item in message.items)
    assert any("no stock" in str(item.result) for item in message.items)
    assert shop.standing == []


def test_4896_filters_are_not_told_of_failures(kit, shop):
    """#4896: a filter that looks at the result sees nothing; the step has failed, with the function's exception."""
    shop.raises["boom"] = ValueError("no stock")
    kernel = kernel_of(boom, calls=[("shop-boom", A)], kit=kit)

    async def unaware(context, next):  # noqa: A002
        await next(context)

    kernel.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, unaware)
    with pytest.raises(SagaRolledBack, match="ValueError"):
        transact(kit, lambda: chat(kernel))
    (outcome,) = [one for one in read_records(kit.log) if one["kind"] == "outcome"]
    assert (outcome["error"], outcome["values"]["error"]) == ("ValueError", "no stock")


class NoRepeats:
    def decide(self, call, saga):
        return Refuse("this was done already") if call.repeats else Allow()


def test_6554_the_same_call_by_the_program_and_by_the_model(kit, shop):
    """#6554: a function that the program has invoked is called by the model again: a policy sees that it repeats."""
    kernel = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)

    async def work():
        await kernel.invoke(plugin_name="shop", function_name="charge", thing="a")
        return answers(await chat(kernel))

    (text,), report = transact(kit, work, policies=[NoRepeats()])
    assert "this was done already" in text
    assert (len(report.kept), shop.count("charge")) == (1, 1)


def test_9478_parallel_writes_to_one_thing(kit, shop):
    """#9478: two writes of one turn run at the same time; another saga's is held back by what both declare."""

    @kernel_function
    async def write(thing: str) -> dict:
        return new("write", thing)

    kit.declare("write", resources=["row:{thing}"], **BACK)
    kernel = kernel_of(write, calls=[[("shop-write", A), ("shop-write", B)]], kit=kit)
    other = kernel_of(write, calls=[("shop-write", A)], kit=kit, ids="o")

    async def main():
        async with kit.transaction("one"):
            await chat(kernel)
            async with kit.transaction("two", independent=True):
                return answers(await chat(other))

    (text,) = asyncio.run(main())
    assert "row:a" in text
    assert sorted(shop.events) == [("write", "a"), ("write", "b")]


# -- cases from the field -------------------------------------------------------------------------------------------


def test_case_7_a_retry_after_a_lost_answer(kit, shop):
    """Case 7: a filter retries a call whose answer was lost; the probe finds the effect, and there is one."""
    shop.raises["probed"] = TimeoutError("no answer")
    kernel = kernel_of(probed, calls=[("shop-probed", A)], kit=kit)

    async def again(context, next):  # noqa: A002
        try:
            await next(context)
        except TimeoutError:
            await next(context)

    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, again)
    history, report = transact(kit, lambda: chat(kernel))
    assert (answers(history), report.outcome, shop.events) == ([{"id": "a"}], "committed", [("probed", "a")])


def test_case_8_a_run_that_is_begun_again(kit, shop):
    """Case 8: a program begins a whole run again after a failure, in one saga: it says so, or a policy refuses."""
    kernel = kernel_of(charge, acharge, kit=kit)

    async def work():
        say(kernel, ("shop-charge", A), ConnectionError("the model is down"))
        with pytest.raises(ConnectionError):
            await chat(kernel)
        say(kernel, ("shop-charge", A), ("shop-acharge", B))
        return answers(await chat(kernel))

    told, _ = transact(kit, work, policies=[NoRepeats()])
    assert "this was done already" in told[0]
    assert shop.events == [("charge", "a"), ("acharge", "b")]


def test_case_9_the_same_intent_with_another_reference(kit, shop):
    """Case 9: a resumed run makes up a new reference for the same payment: its identity is what counts."""

    @kernel_function
    def pay(to: str, reference: str) -> dict:
        return new("pay", to)

    kit.declare("pay", identity=["to"], **BACK)
    kernel = kernel_of(pay, kit=kit)

    async def work(reference):
        say(kernel, ("shop-pay", {"to": "ann", "reference": reference}))
        return answers(await chat(kernel))

    from agent_saga import SagaSuspended

    async def first():
        async with kit.transaction("buy", key="order-1"):
            await work("r-1")
            raise SagaSuspended("later")

    with pytest.raises(SagaSuspended):
        asyncio.run(first())
    told, report = transact(kit, lambda: work("r-2"), key="order-1")
    assert (told, report.outcome, shop.events) == ([{"id": "ann"}], "committed", [("pay", "ann")])


def test_case_19_a_filter_that_changes_an_approved_call(kit, shop):
    """Case 19: what runs is what was approved: a filter that changes the arguments afterwards makes it another call."""
    kernel = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)
    history, _ = transact(kit, lambda: chat(kernel), **SAGA)

    async def change(context, next):  # noqa: A002
        context.arguments = KernelArguments(thing="the moon")
        await next(context)

    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, change)
    left, report = transact(kit, lambda: resume(kernel, stored(history), approved=True), **SAGA)
    assert ([call.id for call in left], report.outcome, shop.events) == (["c1"], "suspended", [])


def test_case_21_an_approval_that_comes_too_late(kit, shop):
    """Case 21: a word that comes after its request has expired is refused, and nothing runs: it is asked anew."""

    class Quick:
        """Its first request has expired at once."""

        expires_s = 1e-9

        def decide(self, call, saga):
            return Ask("sure?", suspend=True, expires_s=self.expires_s)

    kernel = kernel_of(charge, calls=[("shop-charge", A)], kit=kit)
    told, report = transact(kit, lambda: chat(kernel), key="order-1", policies=[Quick()])
    assert (report.outcome, shop.events) == ("committed", [])
    assert "expired" in answers(told)[0]


def test_case_11_a_failure_that_was_repaired_in_an_inner_agent(kit, shop):
    """Case 11: an inner agent's failure that it repairs by itself rolls back nothing of what was done before."""
    shop.raises["boom"] = ValueError("not now")

    async def forgets(context, next):  # noqa: A002
        try:
            await next(context)
        finally:
            shop.raises.clear()

    inner = agent_of(kernel_of(boom, calls=[("shop-boom", A), ("shop-boom", A), "fine"], ids="i"), name="inner")
    inner.kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, forgets)
    kernel = kernel_of(charge, calls=[("shop-charge", B), ("inner-inner", {"messages": "go"})])
    kernel.add_plugin(inner, "inner")
    protect(kernel, kit)
    history, report = transact(kit, lambda: chat(kernel))
    assert (report.outcome, shop.events) == ("committed", [("charge", "b"), ("boom", "a")])
    assert [str(result) for _, result in results(history)][1] == "fine"
