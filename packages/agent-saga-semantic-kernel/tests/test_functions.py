"""Functions that are invoked: natively, streamed, by prompts, through filters, in clones of the kernel."""

import asyncio
import sys
import threading
import warnings
from typing import Annotated

import pytest
from kernel_scripted import answers, chat, kernel_of, native, say, settings
from kernel_shop import BACK, NoBigOnes, acharge, boom, charge, look, new
from pydantic import BaseModel
from semantic_kernel import Kernel
from semantic_kernel.exceptions import FunctionExecutionException, KernelInvokeException
from semantic_kernel.filters import FilterTypes
from semantic_kernel.functions import FunctionResult, KernelArguments, KernelFunction, KernelPlugin, kernel_function
from semantic_kernel.prompt_template import PromptTemplateConfig

from agent_saga import SagaRolledBack, current_step
from agent_saga.errors import DeclarationError, GateRefused, NoSaga, UndeclaredTool, UsageError
from agent_saga.spi import read_records
from agent_saga_semantic_kernel import protect


def intents(kit):
    return [one for one in read_records(kit.log) if one["kind"] == "intent"]


def invoke(kernel, name, plugin="shop", **given):
    return kernel.invoke(plugin_name=plugin, function_name=name, **given)


@pytest.mark.parametrize("name", ["charge", "acharge"])
def test_kernel_invoke(kit, shop, name):
    """A function that the kernel invokes is a step, and its result is what it is without us."""
    bare, kernel = kernel_of(charge, acharge), kernel_of(charge, acharge, kit=kit)

    async def main():
        without = await invoke(bare, name, thing="a")
        async with kit.transaction("buy") as saga:
            result = await invoke(kernel, name, thing="b")
        return without, result, saga.report

    without, result, report = asyncio.run(main())
    assert (result.value, result.function, result.metadata) == (
        {"id": "b"},
        without.function,
        {"arguments": {"thing": "b"}, "used_arguments": {"thing": "b"}},
    )
    (step,) = report.kept
    assert (step.tool, step.kwargs, report.outcome) == (name, {"thing": "b"}, "committed")


def test_kernel_invoke_raises(kit, shop):
    """An exception of a directly invoked function leaves as the framework's own, from the function's; all is undone."""
    shop.raises["boom"] = ValueError("no stock")
    kernel = kernel_of(charge, boom, kit=kit)

    async def main():
        async with kit.transaction("buy"):
            await invoke(kernel, "charge", thing="a")
            await invoke(kernel, "boom", thing="b")

    with pytest.raises(KernelInvokeException) as caught:
        asyncio.run(main())
    assert caught.value.__cause__ is shop.raises["boom"]
    assert shop.standing == []


def test_a_function_that_is_in_no_plugin(kit, shop):
    """A function that no plugin of the kernel has is a step all the same, also when it is called by itself."""
    kernel = kernel_of(kit=kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await kernel.invoke(native(charge), thing="a")
            await native(charge).invoke(kernel, KernelArguments(thing="b"))
            await native(charge)(kernel, thing="c")
        return saga.report

    assert [step.kwargs["thing"] for step in asyncio.run(main()).kept] == ["a", "b", "c"]


def test_all_undeclared_functions_at_once(kit):
    """`protect` names all functions that are not declared, to be pasted; those of two plugins by their full names."""

    @kernel_function
    def one(x: int) -> int:
        return x

    @kernel_function
    def two(x: int) -> int:
        return x

    kernel = kernel_of(one, two, charge)
    kernel.add_function("other", two)
    with pytest.raises(UndeclaredTool) as caught:
        protect(kernel, kit)
    lines = [line for line in str(caught.value).splitlines() if line.startswith("kit.declare")]
    assert lines == [f"kit.declare({name!r}, effect=...)" for name in ("one", "other-two", "shop-two")]
    assert type(kernel) is Kernel


def test_a_function_that_comes_later_undeclared(kit, shop):
    """A function that is added later, undeclared, is refused when it is called, with the line that declares it."""
    kernel = kernel_of(charge, kit=kit)

    @kernel_function
    def unknown(thing: str) -> dict:
        return new("unknown", thing)

    kernel.add_function("shop", unknown)

    async def main():
        async with kit.transaction("buy"):
            say(kernel, ("shop-unknown", {"thing": "a"}))
            return answers(await chat(kernel))

    (text,) = asyncio.run(main())
    assert "kit.declare('unknown'" in text
    assert shop.events == []


def test_names_of_plugins(kit, shop):
    """A declaration of `plugin-function` counts before one of the function's name alone."""
    kernel = kernel_of(charge)
    kernel.add_function("books", charge)
    kit.declare("shop-charge", **BACK)
    kit.declare("books-charge", effect="read_only")
    protect(kernel, kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await invoke(kernel, "charge", thing="a")
            await invoke(kernel, "charge", plugin="books", thing="b")
        return saga.report

    assert [(step.tool, step.kwargs["thing"]) for step in asyncio.run(main()).kept] == [("shop-charge", "a")]


def test_what_the_model_is_shown(kit):
    """The functions keep their objects' types, metadata and names; only the key's parameter is hidden from models."""

    @kernel_function(name="pay", description="Pay it.")
    def pay(
        thing: Annotated[str, "what"], count: int = 1, idempotency_key: Annotated[str | None, "no model's"] = None
    ) -> dict:
        return {"key": idempotency_key, "step": current_step() and current_step().key}

    kit.declare("pay", effect="compensable", compensate=BACK["compensate"].compensator.bind(thing="kwargs.thing"))
    bare = kernel_of(charge, pay)
    kernel = protect(kernel_of(charge, pay), kit)
    plain, ours = bare.plugins["shop"]["charge"], kernel.plugins["shop"]["charge"]
    assert (type(kernel).__name__, isinstance(kernel, Kernel)) == ("Kernel", True)
    assert (type(ours), ours.metadata, ours.method) == (type(plain), plain.metadata, plain.method)
    shown = {one.name: one for one in kernel.plugins["shop"]["pay"].parameters}
    assert [name for name, one in shown.items() if one.include_in_function_choices] == ["thing", "count"]

    async def main():
        async with kit.transaction("buy"):
            result = await invoke(kernel, "pay", thing="a")
        return result.value, (await invoke(kernel, "pay", thing="a")).value

    inside, outside = asyncio.run(main())
    assert inside["key"] == inside["step"] is not None
    assert outside == {"key": None, "step": None}


def test_a_declaration_that_does_not_fit(kit):
    """A declaration that names parameters that the function does not have is refused by `protect`."""
    kit.declare("misfit", effect="irreversible", identity=["nothing"])
    with pytest.raises(DeclarationError):
        kernel_of(kernel_function(lambda thing: thing, name="misfit"), kit=kit)


@pytest.mark.parametrize("given", [{"amount": "much"}, {}])
def test_arguments_that_the_framework_rejects(kit, shop, given):
    """Arguments that the framework cannot convert never become an intent."""

    @kernel_function
    def pay(amount: int) -> dict:
        return new("pay", amount)

    kit.declare("pay", **BACK)
    kernel = kernel_of(pay, kit=kit)

    async def main():
        async with kit.transaction("buy"):
            with pytest.raises(KernelInvokeException) as caught:
                await invoke(kernel, "pay", **given)
            assert isinstance(caught.value.__cause__, FunctionExecutionException)
            await invoke(kernel, "pay", amount="3")

    asyncio.run(main())
    assert [one["values"]["kwargs.amount"] for one in intents(kit)] == [3]
    assert shop.events == [("pay", 3)]


class Order(BaseModel):
    thing: str
    count: int = 1


def test_models_as_arguments_and_results(kit, shop):
    """Arguments are recorded as the function gets them, converted once; a replay gives back what the function gave."""
    made = []

    class Counted(Order):
        def model_post_init(self, context):
            made.append(self)

    @kernel_function
    async def place(order: Counted) -> Order:
        new("place", order.thing)
        return Order(thing=order.thing, count=order.count)

    kit.declare("place", effect="compensable", compensate=BACK["compensate"].compensator.bind(thing="result.thing"))
    kernel = kernel_of(place, kit=kit)

    async def twice(context, next):  # noqa: A002
        await next(context)
        await next(context)

    kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, twice)

    async def main():
        async with kit.transaction("buy"):
            return (await invoke(kernel, "place", order={"thing": "a"})).value

    assert asyncio.run(main()) == Order(thing="a")
    assert len(made) == 2  # Once for each time that the filter began it.
    assert shop.events == [("place", "a")]


def test_objects_of_the_kernel(kit, shop):
    """Parameters that the kernel fills in reach the function as they are, and are no arguments of the step."""

    @kernel_function
    def ask(thing: str, kernel: Kernel, arguments: KernelArguments) -> dict:
        assert isinstance(arguments, KernelArguments)
        return new(kernel.plugins["shop"].name, thing + arguments["more"])

    kit.declare("ask", **BACK)
    kernel = kernel_of(ask, kit=kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await invoke(kernel, "ask", thing="a", more="b")
        return saga.report

    (step,) = asyncio.run(main()).kept
    assert step.kwargs == {"thing": "a", "arguments": {"thing": "a", "more": "b"}}
    assert shop.events == [("shop", "ab")]


def test_a_function_that_makes_its_result(kit, shop):
    """A function that returns a FunctionResult returns that one; its compensation is bound to the value in it."""

    @kernel_function
    def made(thing: str) -> dict:
        value = new("made", thing)
        return FunctionResult(function=native(charge).metadata, value=value, metadata={"mine": 1})

    kit.declare("made", **BACK)
    kernel = kernel_of(made, kit=kit)

    async def main():
        async with kit.transaction("buy"):
            result = await invoke(kernel, "made", thing="a")
            assert (result.metadata, result.value) == ({"mine": 1}, {"id": "a"})
            raise KeyError("enough")

    with pytest.raises(KeyError):
        asyncio.run(main())
    assert shop.events == [("made", "a"), ("refund", "a")]


def test_error_results(kit, shop):
    """Results that tell of an exception in the framework's own ways are failures."""
    result = FunctionResult(function=native(charge).metadata, value=None, metadata={"exception": ValueError("x")})
    for bad in (result, "An error occurred while invoking the function shop-x: no"):
        kit.declare("relay", **BACK)
        kernel = kernel_of(kernel_function(lambda thing: bad, name="relay"), kit=kit)  # noqa: B023

        async def main(kernel=kernel):
            async with kit.transaction("buy"):
                await invoke(kernel, "relay", thing="a")

        with pytest.raises(SagaRolledBack, match="relay"):
            asyncio.run(main())


# -- other kinds of functions, and kernels --------------------------------------------------------------------------


def test_prompts(kit, shop):
    """A prompt is no step; the functions that its template calls are, and those that its model calls."""
    kernel = kernel_of(charge, acharge, calls=[("shop-charge", {"thing": "b"}), "bought"], kit=kit)
    config = PromptTemplateConfig(
        template="Buy {{shop.acharge thing='a'}}.", execution_settings={"scripted": settings()}
    )
    kernel.add_function("prompts", function_name="buy", prompt_template_config=config)

    async def main():
        async with kit.transaction("buy") as saga:
            text = str(await kernel.invoke(plugin_name="prompts", function_name="buy"))
            say(kernel, "again")
            parts = [str(part[0]) async for part in kernel.invoke_stream(plugin_name="prompts", function_name="buy")]
        return text, parts, saga.report

    text, parts, report = asyncio.run(main())
    assert (text, parts) == ("bought", ["again"])
    assert [step.tool for step in report.kept] == ["acharge", "charge", "acharge"]


class Doubled(KernelFunction):
    """A function of a class of the user's."""

    async def _invoke_internal(self, context):
        context.result = FunctionResult(function=self.metadata, value=new("own", context.arguments["thing"]))

    async def _invoke_internal_stream(self, context):
        context.result = FunctionResult(function=self.metadata, value=iter_of(context.arguments["thing"]))


async def iter_of(thing):
    yield new("own", thing)


def test_a_class_of_the_users_own(kit, shop):
    """A function of a class that the framework does not know is a step; it cannot be streamed in a saga."""
    metadata = native(charge).metadata.model_copy(update={"name": "own"})
    kit.declare("own", **BACK)
    kernel = kernel_of(kit=kit)

    async def main():
        async with kit.transaction("buy") as saga:
            value = (await kernel.invoke(Doubled(metadata=metadata), thing="a")).value
            with pytest.raises(UsageError, match="streamed"):
                async for _ in kernel.invoke_stream(Doubled(metadata=metadata), thing="b"):
                    pass
            saga.waive(2)
        return value, saga.report

    value, report = asyncio.run(main())
    assert (value, [step.tool for step in report.kept], shop.events) == ({"id": "a"}, ["own"], [("own", "a")])


def test_clones_and_copies(kit, shop):
    """Clones of a protected kernel are protected, and what is added to them."""
    kernel = kernel_of(charge, kit=kit)
    clone = kernel.clone().clone()
    clone.add_function("more", acharge)
    assert (type(clone), "more" in kernel.plugins) == (type(kernel), False)

    async def main():
        async with kit.transaction("buy") as saga:
            await invoke(clone, "charge", thing="a")
            await invoke(clone, "acharge", plugin="more", thing="b")
        return saga.report

    assert len(asyncio.run(main()).kept) == 2


def test_protecting_changes_nothing_that_is_stored(kit):
    """A protected kernel is dumped and compared as before."""
    kernel = kernel_of()
    before = kernel.model_dump()
    protect(protect(kernel, kit), kit)
    assert (kernel.model_dump(), kernel == kernel.model_copy()) == (before, True)


def test_plugins_of_all_shapes(kit, shop):
    """Functions of objects, of plugins and of dictionaries are covered, whenever they are added."""

    class Desk:
        @kernel_function
        def sell(self, thing: str) -> dict:
            return new("sell", thing)

    kit.declare("sell", **BACK)
    kernel = protect(Kernel(), kit)
    kernel.add_plugin(Desk(), "desk")
    kernel.add_plugin(KernelPlugin(name="given", functions=[charge]))
    kernel.add_plugins({"table": {"acharge": acharge}})
    kernel.plugins["given"]["boom"] = native(boom)

    async def main():
        async with kit.transaction("buy") as saga:
            for plugin, name in (("desk", "sell"), ("given", "charge"), ("table", "acharge"), ("given", "boom")):
                await invoke(kernel, name, plugin=plugin, thing="a")
        return saga.report

    assert [step.tool for step in asyncio.run(main()).kept] == ["sell", "charge", "acharge", "boom"]


def test_what_cannot_be_protected(kit):
    """Anything else is a usage error."""
    with pytest.raises(UsageError, match="kernel"):
        protect(charge, kit)


# -- without a saga, and in lost contexts ---------------------------------------------------------------------------


def test_outside_of_a_saga(kit, shop, tmp_path):
    """Outside of a saga functions are bare, also undeclared ones, and no log is made."""
    kernel = kernel_of(charge, kit=kit)
    kernel.add_function("shop", kernel_function(lambda thing: thing, name="unknown"))

    async def main():
        return (await invoke(kernel, "charge", thing="a")).value, (await invoke(kernel, "unknown", thing="b")).value

    assert asyncio.run(main()) == ({"id": "a"}, "b")
    assert not (tmp_path / "agent-saga.db").exists()


def test_a_thread_of_the_users_own(kit, shop):
    """In a thread that lost the saga, an irreversible function does not run; one that is bound is a step."""
    kit.declare("wipe", effect="irreversible")
    kernel = kernel_of(kernel_function(lambda thing: new("wipe", thing), name="wipe"), charge, kit=kit)
    seen = []

    def elsewhere(name):
        try:
            asyncio.run(invoke(kernel, name, thing="a"))
        except KernelInvokeException as error:
            seen.append(error.__cause__)

    def in_thread(target, name):
        thread = threading.Thread(target=target, args=(name,))
        thread.start()
        thread.join()

    with kit.transaction("buy") as saga:
        in_thread(elsewhere, "wipe")
        in_thread(saga.bind(elsewhere), "charge")
    assert [type(error) for error in seen] == [NoSaga]
    assert [step.tool for step in saga.report.kept] == ["charge"]


def test_a_lost_context_is_said(kit, shop):
    """Any other function that runs without the saga that is open beside it warns."""
    kit.declare("lost", **BACK)
    kernel = kernel_of(kernel_function(lambda thing: new("lost", thing), name="lost"), kit=kit)

    def elsewhere():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            asyncio.run(invoke(kernel, "lost", thing="a"))
        texts.extend(str(one.message) for one in found)

    texts = []
    with kit.transaction("buy"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert any("the context was probably lost" in text for text in texts)


def test_a_refusal(kit, shop):
    """A refused call that is made directly raises the refusal; nothing ran, and the saga can go on."""
    kernel = kernel_of(charge, look, kit=kit)

    async def main():
        async with kit.transaction("buy", policies=[NoBigOnes()]) as saga:
            with pytest.raises(KernelInvokeException) as caught:
                await invoke(kernel, "charge", thing="a")
        return caught.value.__cause__, saga.report.outcome

    refusal, outcome = asyncio.run(main())
    assert (type(refusal), outcome, shop.events) == (GateRefused, "committed", [])


def test_saga_id_on_spans(kit, shop):
    """The framework's span of a function has the saga's id, and so has its span of the loop."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    names = ("functions.kernel_function", "connectors.ai.chat_completion_client_base")
    homes = [sys.modules[f"semantic_kernel.{name}"] for name in names]
    before = [home.tracer for home in homes]
    kernel = kernel_of(charge, calls=[("shop-charge", {"thing": "a"})], kit=kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await chat(kernel)
        return saga.id

    try:
        for home in homes:
            home.tracer = provider.get_tracer("test")
        saga_id = asyncio.run(main())
    finally:
        for home, tracer in zip(homes, before, strict=True):
            home.tracer = tracer
    spans = {span.name: dict(span.attributes) for span in exporter.get_finished_spans()}
    assert spans["execute_tool shop-charge"]["saga.id"] == saga_id
    assert spans["execute_tool shop-charge"]["gen_ai.tool.call.id"] == "c1"
    assert spans["AutoFunctionInvocationLoop"]["saga.id"] == saga_id
