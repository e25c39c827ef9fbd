"""Filters of the user's around steps, added before us or after; and functions that are streamed."""

import asyncio
import contextvars

import pytest
from kernel_scripted import answers, chat, kernel_of
from kernel_shop import BACK, boom, charge, new, probed
from semantic_kernel.filters import FilterTypes
from semantic_kernel.functions import FunctionResult, kernel_function

from agent_saga.spi import read_records
from agent_saga_semantic_kernel import protect


def intents(kit):
    return [one for one in read_records(kit.log) if one["kind"] == "intent"]


def invoke(kernel, name, plugin="shop", **given):
    return kernel.invoke(plugin_name=plugin, function_name=name, **given)


async def again(context, next):  # noqa: A002
    """Begin a call once more if it failed."""
    try:
        await next(context)
    except Exception:
        await next(context)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", [FilterTypes.FUNCTION_INVOCATION, FilterTypes.AUTO_FUNCTION_INVOCATION])
def test_a_filter_that_begins_twice(kit, shop, when, kind):
    """A filter that begins each call twice, added before us or after, has one effect, and the result both times."""
    values = []

    async def twice(context, next):  # noqa: A002
        await next(context)
        await next(context)
        values.append((context.result if hasattr(context, "result") else context.function_result).value)

    kernel = kernel_of(charge, calls=[("shop-charge", {"thing": "a"})])
    if when == "before":
        kernel.add_filter(kind, twice)
    protect(kernel, kit)
    if when == "after":
        kernel.add_filter(kind, twice)

    async def main():
        async with kit.transaction("buy") as saga:
            await chat(kernel)
        return saga.report

    assert len(asyncio.run(main()).kept) == 1
    assert (shop.events, values) == ([("charge", "a")], [{"id": "a"}])


def test_a_retry_that_repairs(kit, shop):
    """A filter that retries a failed call repairs it; one whose answer was lost is looked for before."""
    kernel = kernel_of(boom, probed, kit=kit)
    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, again)

    async def forgets(context, next):  # noqa: A002
        try:
            await next(context)
        finally:
            shop.raises.clear()

    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, forgets)  # Inside of the other one.

    async def main():
        async with kit.transaction("buy") as saga:
            shop.raises["boom"] = ValueError("not now")
            await invoke(kernel, "boom", thing="a")
            shop.raises["probed"] = TimeoutError("no answer")
            await invoke(kernel, "probed", thing="b")
        return saga.report

    report = asyncio.run(main())
    assert report.outcome == "committed"
    assert shop.events == [("boom", "a"), ("probed", "b")]


def test_a_filter_that_calls_another_function(kit, shop):
    """What a filter invokes besides is a call of its own, also of the same function with the same arguments."""
    kernel = kernel_of(charge, calls=[("shop-charge", {"thing": "a"})], kit=kit)
    inside = contextvars.ContextVar("inside", default=False)

    async def besides(context, next):  # noqa: A002
        if not inside.get():
            token = inside.set(True)
            await kernel.invoke(context.function, context.arguments)
            inside.reset(token)
        await next(context)

    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, besides)

    async def main():
        async with kit.transaction("buy"):
            await chat(kernel)

    asyncio.run(main())
    assert shop.count("charge") == 2
    assert sorted(str(one.get("call_id")) for one in intents(kit)) == ["None", "c1"]


def test_a_filter_that_answers_itself(kit, shop):
    """A filter that does not go on, and answers by itself, makes no step."""
    kernel = kernel_of(charge, calls=[("shop-charge", {"thing": "a"})], kit=kit)

    async def answer(context, next):  # noqa: A002
        context.function_result = FunctionResult(function=context.function.metadata, value="cached")

    kernel.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, answer)

    async def main():
        async with kit.transaction("buy") as saga:
            return answers(await chat(kernel)), saga

    told, saga = asyncio.run(main())
    assert (told, shop.events, saga.report.kept) == (["cached"], [], ())


def test_a_filter_that_changes_arguments(kit, shop):
    """The step has the arguments that the function gets, after all filters."""
    kernel = kernel_of(charge, kit=kit)

    async def change(context, next):  # noqa: A002
        context.arguments["thing"] = context.arguments["thing"].upper()
        await next(context)

    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, change)

    async def main():
        async with kit.transaction("buy") as saga:
            await invoke(kernel, "charge", thing="a")
        return saga.report.kept[0].kwargs

    assert asyncio.run(main()) == {"thing": "A"}


# -- streams ------------------------------------------------------------------------------------------------------


@kernel_function
async def asend(thing: str):
    """Send two parts."""
    for part in "12":
        yield new("asend", thing + part)["id"]


@kernel_function
def send(thing: str):
    """Send two parts."""
    for part in "12":
        yield new("send", thing + part)["id"]


@pytest.mark.parametrize("name", ["send", "asend"])
@pytest.mark.parametrize("ends", ["read", "closed", "collected"])
def test_streams(kit, shop, name, ends):
    """A streamed function is one step, from its first item to its end, or to where it is closed."""
    kit.declare(name, effect="compensable", compensate=BACK["compensate"].compensator.bind(thing="kwargs.thing"))
    kernel = kernel_of({"send": send, "asend": asend}[name], kit=kit)

    async def main():
        async with kit.transaction("buy") as saga:
            if ends == "collected":
                items = (await invoke(kernel, name, thing="a")).value
            else:
                items = []
                stream = kernel.invoke_stream(plugin_name="shop", function_name=name, thing="a")
                assert shop.events == []
                async for item in stream:
                    items.append(item)
                    if ends == "closed":
                        break
                await stream.aclose()
        return items, saga.report

    items, report = asyncio.run(main())
    assert items == (["a1"] if ends == "closed" else ["a1", "a2"])
    (step,) = report.kept
    assert (step.tool, step.kwargs) == (name, {"thing": "a"})


def test_a_stream_that_fails(kit, shop):
    """A stream that fails after an item is in doubt, and the saga does not commit."""

    @kernel_function
    async def breaks(thing: str):
        yield new("breaks", thing)["id"]
        raise ValueError("broken")

    kit.declare("breaks", effect="compensable", compensate=BACK["compensate"].compensator.bind(thing="kwargs.thing"))
    kernel = kernel_of(breaks, kit=kit)

    async def main():
        async with kit.transaction("buy"):
            async for _ in kernel.invoke_stream(plugin_name="shop", function_name="breaks", thing="a"):
                pass

    with pytest.raises(Exception) as caught:
        asyncio.run(main())
    assert "in doubt" in str(caught.value) + " ".join(getattr(caught.value, "__notes__", []))
