"""Tools: what they are before and after `protect`, how they are called, and what their results are."""

import asyncio
import contextlib
import inspect

import pytest
from llama_index.core.base.llms.types import TextBlock
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool, QueryEngineTool, RetrieverTool, ToolMetadata, ToolOutput
from llama_index.core.tools.calling import acall_tool, call_tool
from llama_index.core.tools.types import AsyncBaseTool, BaseTool
from llama_index.core.workflow import Context
from llama_scripted import Scripted, arun, run, turns
from llama_shop import BACK, NoBigOnes, acharge, boom, charge, look, new, probed, refund, tool
from pydantic import Field

from agent_saga import SagaRolledBack, current_step
from agent_saga.errors import DeclarationError, NoSaga, UndeclaredTool, UsageError
from agent_saga.spi import read_records
from agent_saga_llama_index import protect


class Raw(AsyncBaseTool):
    """A tool that is no function's."""

    def __init__(self, name="raw", properties="thing", fails=None, **output):
        self.fails, self.output = fails, output
        fn = _one if properties == "thing" else _two
        self._metadata = tool(fn, name=name, description="Charge for a thing.").metadata

    @property
    def metadata(self):
        return self._metadata

    def call(self, thing, idempotency_key="none"):
        result = new(self.metadata.name, thing) | {"key": idempotency_key}
        if self.fails:
            raise self.fails
        fields = {"content": f"charged {thing}", "raw_output": result} | self.output
        return ToolOutput(tool_name=self.metadata.name, raw_input={}, **fields)

    async def acall(self, *args, **kwargs):
        return self.call(*args, **kwargs)


class Oldest(BaseTool):
    """A tool from before there was anything async."""

    metadata = ToolMetadata(name="oldest", description="charge")

    def __call__(self, input):  # noqa: A002
        return ToolOutput(
            content="charged", tool_name="oldest", raw_input={"input": input}, raw_output=new("oldest", input)
        )


def _one(thing: str) -> dict:
    """Charge for a thing."""


def _two(thing: str, idempotency_key: str = "") -> dict:
    """Charge for a thing."""


@contextlib.contextmanager
def closed_loop():
    """A loop for the framework's own way from sync to async, which leaves the one that it makes open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def steps(kit):
    return [one for one in read_records(kit.log) if one["kind"] == "intent"]


# -- what protect returns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [charge, acharge, Raw(), Oldest()], ids=["sync", "async", "other", "oldest"])
def test_a_tool_stays_what_it_is(kit, made):
    """A protected tool is a copy of its kind, with the same name, description and schema."""
    kit.declare_read_only("raw", "oldest")
    before = made.metadata.to_openai_tool()
    ours = protect(made, kit)
    assert isinstance(ours, type(made))
    assert type(ours).__name__ == type(made).__name__
    assert (ours.metadata.to_openai_tool(), made.metadata.to_openai_tool()) == (before, before)
    assert ours is not made
    assert protect(ours, kit) is ours
    assert protect(ours) is ours


def test_what_reads_the_function_reads_the_same(kit):
    """The function behind a protected tool has its name, its docstring and its signature."""
    ours = protect(charge, kit)
    assert ours.real_fn.__name__ == "_charge"
    assert inspect.signature(ours.real_fn) == inspect.signature(charge.real_fn)


def test_lists_of_tools_and_functions(kit):
    """A list stays a list, a tuple a tuple; functions become tools, as the framework makes them."""
    kit.declare_read_only("_look")
    first, second = protect([charge, look.real_fn], kit)
    assert (first.metadata.name, second.metadata.name) == ("charge", "_look")
    assert isinstance(protect((charge,), kit), tuple)


def test_undeclared_tools_are_named_at_once(kit):
    """Undeclared tools are named all at once, in lines to paste."""
    with pytest.raises(UndeclaredTool, match=r"(?s)kit.declare\('first'.*kit.declare\('second'"):
        protect([tool(_one, name="second"), charge, tool(_one, name="first")], kit)


def test_another_kit(kit, tmp_path, shop):
    """A tool that is protected for another kit asks that one from then on."""
    from agent_saga import AgentKit

    ours = protect(charge, kit)
    other = AgentKit(tmp_path / "other.db")
    other.declare("charge", requires_saga=True, **BACK)
    with pytest.raises(NoSaga):
        protect(ours, other)(thing="a")
    ours(thing="a")
    assert shop.standing == ["a"]
    other.close()


@pytest.mark.parametrize("thing", [3, "charge", [3]], ids=str)
def test_other_things_are_refused(kit, thing):
    """What is no tool, agent or workflow is a mistake."""
    with pytest.raises(UsageError, match="protect"):
        protect(thing, kit)


def test_a_declaration_that_does_not_fit(kit):
    """A declaration that names parameters that the tool lacks is a mistake, said by `protect`."""
    kit.declare("odd", effect="compensable", compensate=refund.bind(thing="kwargs.what"))
    with pytest.raises(DeclarationError, match="what"):
        protect(tool(_one, name="odd"), kit)


# -- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [charge, acharge], ids=["sync", "async"])
@pytest.mark.parametrize("how", ["call", "()", "acall", "in a loop"])
def test_every_way_to_call_a_function_tool(kit, shop, made, how):
    """A call is one step with the function's own result, whichever of the tool's methods makes it."""
    ours = protect(made, kit)

    async def main():
        async with kit.transaction("buy") as saga:
            output = await ours.acall(thing="a") if how == "acall" else ours.call(thing="a")
        return output, saga

    if how in {"acall", "in a loop"}:
        output, saga = asyncio.run(main())
    else:
        with closed_loop(), kit.transaction("buy") as saga:
            output = ours(thing="a") if how == "()" else ours.call(thing="a")
    assert (output.raw_output, output.is_error, shop.standing) == ({"id": "a"}, False, ["a"])
    assert [step.result for step in saga.report.kept] == [{"id": "a"}]


def test_both_a_sync_and_an_async_function(kit, shop):
    """A tool that is made of two functions has both guarded."""
    kit.declare("two", **BACK)

    async def in_loop(thing: str) -> dict:
        return new("two", f"async {thing}")

    ours = protect(FunctionTool.from_defaults(charge.real_fn, name="two", async_fn=in_loop), kit)

    async def main():
        async with kit.transaction("buy") as saga:
            await ours.acall(thing="a")
            ours.call(thing="a")
        return saga

    assert [step.result["id"] for step in asyncio.run(main()).report.kept] == ["async a", "a"]


def test_defaults_are_arguments(kit, shop):
    """What the model leaves out is recorded with its default, and can be compensated with."""

    def order(
        thing: str = Field(default="lamp", description="what"), *, amount: int = 1, partner: str = "", **more: str
    ) -> dict:
        return new("order", thing)

    kit.declare("order", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    ours = protect(tool(order, partial_params={"partner": "us"}), kit)
    with kit.transaction("buy") as saga:
        ours.call(amount=2, colour="red")
        saga.roll_back("no")
    (step,) = saga.report.compensated
    assert step.kwargs == {"thing": "lamp", "amount": 2, "partner": "us", "colour": "red"}
    assert shop.standing == []


def test_arguments_that_do_not_fit_are_no_step(kit, shop, maker):
    """A call that the function cannot take is no step, and the model hears what is wrong; a good one follows."""
    agent = maker.agent([charge], ("charge", {}), ("charge", {"things": "a"}), ("charge", {"thing": "a"}))
    with kit.transaction("buy") as saga:
        told = run(agent)
    assert [told[id_].is_error for id_ in ("c1", "c2", "c3")] == [True, True, False]
    assert "missing a required argument: 'thing'" in told["c1"].content
    assert [step.result for step in saga.report.kept] == [{"id": "a"}]


def test_parameters_by_place_only(kit, shop):
    """Functions whose parameters cannot all be given by name are called as they want to be."""

    def odd(thing: str, /, *rest: str, loud: bool = False) -> dict:
        return new("odd", " ".join([thing, *rest, str(loud)]))

    kit.declare("odd", **BACK)
    ours = protect(FunctionTool(odd, metadata=ToolMetadata(name="odd", description="odd")), kit)
    with kit.transaction("buy") as saga:
        ours.call("a", "b", loud=True)
    (step,) = saga.report.kept
    assert (step.kwargs, step.result) == ({"thing": "a", "rest": ("b",), "loud": True}, {"id": "a b True"})


def test_the_context_is_no_argument(kit, shop, maker):
    """A tool that takes the run's context is given it; it is not recorded."""

    async def noted(ctx: Context, thing: str) -> dict:
        """Note a thing."""
        await ctx.store.set("noted", thing)
        return new("noted", thing)

    kit.declare("noted", **BACK)
    agent = maker.agent([tool(noted)], ("noted", {"thing": "a"}))

    async def main():
        async with kit.transaction("buy") as saga:
            handler = agent.run(user_msg="go")
            await handler
        return saga, await handler.ctx.store.get("noted")

    saga, noted_thing = asyncio.run(main())
    assert ([step.kwargs for step in saga.report.kept], noted_thing) == ([{"thing": "a"}], "a")


def test_the_key_is_hidden_and_given(kit, shop, maker):
    """The parameter for the key is in no schema and no description, for a tool with its own schema too."""
    keys = []

    def _noted(thing: str, idempotency_key: str = "bare") -> dict:
        """Note a thing."""
        keys.append((idempotency_key, current_step() and current_step().key))
        return new("noted", thing)

    kit.declare("noted", **BACK)
    kit.declare("raw", effect="compensable", compensate=refund.bind(thing="result.id"))
    agent = maker.agent([tool(_noted), Raw(properties="key")], [("noted", {"thing": "a"}), ("raw", {"thing": "b"})])
    shown = [one.metadata.to_openai_tool()["function"] for one in agent.tools]
    assert "idempotency_key" not in str(shown)
    assert shown[0]["description"] == "noted(thing: str) -> dict\nNote a thing."
    assert list(shown[1]["parameters"]["properties"]) == ["thing"]
    with kit.transaction("buy") as saga:
        told = run(agent)
    by_tool = {step.tool: step for step in saga.report.kept}
    assert keys == [(by_tool["noted"].key, by_tool["noted"].key)]
    assert told["c2"].raw_output["key"] == by_tool["raw"].key
    assert "idempotency_key" not in by_tool["raw"].kwargs
    assert protect(tool(_noted), kit)(thing="c").raw_output == {"id": "c"}
    assert keys[-1] == ("bare", None)


def test_return_direct(kit, shop, maker):
    """A tool whose result is the run's stays that."""
    agent = maker.agent([tool(charge.real_fn, return_direct=True)], ("charge", {"thing": "a"}))

    async def main():
        async with kit.transaction("buy") as saga:
            result = await agent.run(user_msg="go")
        return saga, str(result)

    saga, said = asyncio.run(main())
    assert (saga.report.outcome, said, shop.standing) == ("committed", "{'id': 'a'}", ["a"])


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_result_that_says_error(kit, shop, maker):
    """A `ToolOutput` with `is_error` is a failure: the model reads it, and the saga rolls back."""
    kit.declare("raw", **BACK)
    agent = maker.agent([charge, Raw(is_error=True)], ("charge", {"thing": "a"}), ("raw", {"thing": "b"}))
    with pytest.raises(SagaRolledBack, match="raw"), kit.transaction("buy"):
        told = run(agent)
    assert (told["c2"].is_error, told["c2"].content) == (True, "charged b")
    assert shop.events[-1] == ("refund", "a")


@pytest.mark.parametrize("way", ["call_tool", "acall_tool"])
@pytest.mark.parametrize("kind", ["raw", "function"])
def test_one_argument_is_not_tried_twice(kit, shop, way, kind):
    """`call_tool` tries a call with one argument again by name when it raised: the effect must not happen twice."""
    kit.declare("raw", **BACK)
    shop.raises["probed"] = ValueError("after the effect")
    made = Raw(fails=ValueError("after the effect")) if kind == "raw" else probed
    ours = protect(made, kit)

    async def main():
        with pytest.raises(SagaRolledBack):
            async with kit.transaction("buy"):
                output = (
                    call_tool(ours, {"thing": "a"}) if way == "call_tool" else await acall_tool(ours, {"thing": "a"})
                )
                assert (output.is_error, type(output.exception)) == (True, ValueError)
                raise_if_probed(kind)

    def raise_if_probed(kind):
        if kind == "function":  # Its probe finds the effect, so the saga would commit.
            raise SagaRolledBack("enough", None)

    asyncio.run(main())
    assert sum(event == (made.metadata.name, "a") for event in shop.events) == 1
    assert len(steps(kit)) == 1


def test_a_retry_in_a_handler_is_one(kit, shop):
    """Whoever calls a tool again, in the same way, where it raised has made a second call."""
    kit.declare("raw", **BACK)
    ours = protect(Raw(fails=ValueError("no")), kit)
    with pytest.raises(SagaRolledBack), kit.transaction("buy"):
        try:
            ours(thing="a")
        except ValueError:
            with pytest.raises(ValueError, match="no"):
                ours(thing="a")
    assert len(steps(kit)) == 2


# -- tools that are no function's -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["acall", "call", "by place"])
def test_other_tools(kit, shop, how):
    """The step's result is the tool's raw output; the framework is given the tool's own `ToolOutput`."""
    kit.declare("raw", **BACK)
    ours = protect(Raw(), kit)

    async def main():
        async with kit.transaction("buy") as saga:
            output = (
                await ours.acall(thing="a")
                if how == "acall"
                else ours("a")
                if how == "by place"
                else ours.call(thing="a")
            )
            saga.roll_back("no")
        return output, saga

    output, saga = asyncio.run(main())
    assert output.content == "charged a"
    assert [(step.kwargs, step.result) for step in saga.report.compensated] == [
        ({"thing": "a"}, {"id": "a", "key": "none"})
    ]
    assert shop.standing == []


def test_the_oldest_kind_of_tool(kit, shop, maker):
    """A tool that is only callable is a step too, in the thread in which the framework runs it."""
    kit.declare("oldest", **BACK)
    agent = maker.agent([Oldest()], ("oldest", {"input": "a"}))
    with kit.transaction("buy") as saga:
        told = run(agent)
    assert (told["c1"].content, shop.standing) == ("charged", ["a"])
    assert [step.kwargs for step in saga.report.kept] == [{"input": "a"}]


class Shelf(BaseRetriever):
    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=TextNode(text=f"about {query_bundle.query_str.strip()}"), score=1.0)]


class Oracle(CustomQueryEngine):
    def custom_query(self, query_str: str):
        return f"42, {query_str}"


def test_query_engines_and_retrievers(kit, shop, maker):
    """Query engines and retrievers are tools like others: declared, and recorded as reads."""
    tools = [
        QueryEngineTool.from_defaults(Oracle(), name="ask", description="ask"),
        RetrieverTool.from_defaults(Shelf(), name="find", description="find"),
    ]
    with pytest.raises(UndeclaredTool, match=r"(?s)'ask'.*'find'"):
        maker.agent(tools)
    kit.declare_read_only("ask", "find")
    agent = maker.agent(tools, [("ask", {"input": "why"}), ("find", {"input": "lamps"})])
    with kit.transaction("read") as saga:
        told = run(agent)
    assert (told["c1"].content, saga.report.outcome) == ("42, why", "committed")
    assert "about input is lamps" in told["c2"].content
    outcomes = [one for one in read_records(kit.log) if one["kind"] == "outcome"]
    assert {one["tool"] for one in outcomes} == {"ask", "find"}


# -- predict_and_call -------------------------------------------------------------------------------------------------

TWO = turns([("charge", {"thing": "a"}), ("acharge", {"thing": "b"})])


@pytest.mark.parametrize("way", ["sync", "async", "sync in a loop"])
def test_predict_and_call(kit, shop, way):
    """Calls that a model makes without an agent are steps too."""
    tools = protect([charge, acharge], kit)
    options = {"user_msg": "go", "allow_parallel_tool_calls": True}

    async def main():
        async with kit.transaction("buy") as saga:
            if way == "async":
                response = await Scripted(TWO).apredict_and_call(tools, **options)
            else:
                response = Scripted(TWO).predict_and_call(tools, **options)
        return response, saga

    if way == "sync":
        with closed_loop(), kit.transaction("buy") as saga:
            response = Scripted(TWO).predict_and_call(tools, **options)
    else:
        response, saga = asyncio.run(main())
    assert [source.raw_output for source in response.sources] == [{"id": "a"}, {"id": "b"}]
    assert (saga.report.outcome, sorted(shop.standing)) == ("committed", ["a", "b"])


@pytest.mark.parametrize("way", ["predict_and_call", "apredict_and_call"])
def test_predict_and_call_swallows_errors(kit, shop, way):
    """An error that `predict_and_call` tells as text counts; a refusal is told, and nothing has happened."""
    shop.raises["boom"] = ValueError("broken")
    tools = protect([charge, boom], kit)
    said = turns([("charge", {"thing": "a"}), ("boom", {"thing": "b"})])

    async def main(**options):
        async with kit.transaction("buy", **options):
            response = getattr(Scripted(said), way)(tools, user_msg="go", allow_parallel_tool_calls=True)
            return await response if way.startswith("a") else response

    with pytest.raises(SagaRolledBack, match="boom"):
        asyncio.run(main())
    assert shop.standing == []
    assert "too big" in asyncio.run(main(policies=[NoBigOnes()])).response
    assert shop.count("charge") == 1


# -- without a saga ---------------------------------------------------------------------------------------------------


def test_without_a_saga(kit, shop):
    """Outside of a saga a tool does what it did, and no log is made."""
    output = protect(charge, kit)(thing="a")
    assert (output.raw_output, output.blocks) == ({"id": "a"}, [TextBlock(text="{'id': 'a'}")])
    assert asyncio.run(protect(acharge, kit).acall(thing="b")).raw_output == {"id": "b"}
    with pytest.raises(TypeError):
        protect(charge, kit)(things="a")


def test_a_run_that_began_before_the_saga(kit, shop, maker):
    """A run keeps the context in which it began: a tool that must have a saga does not run in one that came later."""
    kit.declare("must", requires_saga=True, **BACK)
    agent = maker.agent([tool(charge.real_fn, name="must")], ("must", {"thing": "a"}))

    async def main():
        handler = agent.run(user_msg="go")
        async with kit.transaction("late"):
            await handler
        async with kit.transaction("bound") as saga:
            bound = saga.bind(agent.run)
        return handler, bound

    handler, _ = asyncio.run(main())
    assert shop.events == []
    assert handler.is_done()


def test_a_run_that_is_bound_to_a_saga(kit, shop, maker):
    """`saga.attach` gives a run that begins elsewhere the saga."""
    agent = maker.agent([charge], ("charge", {"thing": "a"}))

    async def elsewhere(saga):
        with saga.attach():
            return await arun(agent)

    async def main():
        async with kit.transaction("buy") as saga:
            import contextvars

            await asyncio.get_running_loop().create_task(elsewhere(saga), context=contextvars.Context())
        return saga

    assert [step.tool for step in asyncio.run(main()).report.kept] == ["charge"]
