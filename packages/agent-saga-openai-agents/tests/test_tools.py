"""`protect` for tools: what they stay, what they hide, what they refuse."""

import asyncio
import dataclasses
import json

import pytest
from agents import (
    Agent,
    FunctionTool,
    RunContextWrapper,
    Runner,
    ShellTool,
    ToolOutputText,
    WebSearchTool,
    function_tool,
)
from agents.tool_context import ToolContext
from agents_scripted import Scripted, answers, run_sync, turns
from agents_shop import BACK, NoBigOnes, acharge, charge, here, look, new, refund
from pydantic import BaseModel

from agent_saga import AgentKit, SagaRolledBack, current_step
from agent_saga.errors import DeclarationError, UndeclaredTool, UsageError
from agent_saga_openai_agents import protect


class Order(BaseModel):
    sku: str
    count: int = 1


@function_tool(strict_mode=False)
def place(context: RunContextWrapper[str], order: Order, note: str = "none") -> dict:
    """Place an order.

    Args:
        order: what.
        note: why.
    """
    return new("place", f"{order.sku} for {context.context}")


@function_tool
async def ship(context: ToolContext[str], *skus: str) -> dict:
    """Ship things."""
    return new("ship", f"{'+'.join(skus)} by {context.tool_call_id}")


@function_tool
def pay(idempotency_key: str, amount: int) -> dict:
    """Pay.

    Args:
        idempotency_key: tells a retry from a new payment.
        amount: how much.
    """
    return new("pay", f"{amount}:{idempotency_key}")


class Priced:
    """A tool that is an object."""

    def __init__(self, price):
        self.price = price

    def __call__(self, thing: str) -> dict:
        """Buy at a price."""
        return new("buy", f"{thing}:{self.price}")


BUY = function_tool(Priced(3), name_override="buy")


async def _raw(context, arguments):
    return new("raw", json.loads(arguments)["thing"])


SCHEMA = {
    "type": "object",
    "properties": {"thing": {"type": "string"}},
    "required": ["thing"],
    "additionalProperties": False,
}
RAW = FunctionTool(name="raw", description="By hand.", params_json_schema=SCHEMA, on_invoke_tool=_raw)
ALL = [charge, acharge, look, place, ship, BUY, RAW]


def shown(tool):
    """All that a model is told of a tool."""
    return tool.name, tool.description, tool.params_json_schema, tool.strict_json_schema, tool.output_json_schema


def run(tool, arguments, *, kit, **options):
    """One call of a tool by an agent; returns what the model was told, and the agent's model."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    model = Scripted([[(tool.name, text, "c1")]])
    agent = protect(Agent(name="a", model=model, tools=[tool]), kit)
    result = asyncio.run(Runner.run(agent, "go", **options))
    return answers(result)[0], model


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_a_protected_tool_looks_the_same(kit, one):
    """A protected tool keeps type, name, description and the schema that a model sees."""
    kit.declare_read_only("*")
    protected = protect(one, kit)
    assert type(protected) is type(one)
    assert shown(protected) == shown(one)


def test_protect_twice_changes_nothing(kit):
    """Protecting a protected tool returns it; the user's own tool is untouched."""
    before = dict(vars(charge))
    protected = protect(charge, kit)
    assert protect(protected, kit) is protected
    assert {name: value for name, value in vars(charge).items() if before[name] is not value} == {}


def test_lists_keep_their_kind(kit):
    """A list stays a list and a tuple a tuple; what OpenAI runs stays as it is."""
    search = WebSearchTool()
    tools = protect([charge, search], kit)
    assert type(tools) is list
    assert (tools[0].name, tools[1]) == ("charge", search)
    assert type(protect((charge,), kit)) is tuple


def test_protected_tools_of_an_agent_that_is_not(kit, shop):
    """Tools that are protected in a list are steps in any agent."""
    agent = Agent(name="a", model=Scripted(turns(("charge", {"thing": "x"}))), tools=protect([charge], kit))
    with kit.transaction("buy") as saga:
        run_sync(agent)
    assert [step.tool for step in saga.report.kept] == ["charge"]


@pytest.mark.parametrize("form", ["list", "agent"])
def test_undeclared_tools_are_named_at_once(kit, form):
    """Setting up with undeclared tools names all of them, also those of other agents, in a block to paste."""
    other = Agent(name="other", tools=[RAW])
    tools = [charge, place, other.as_tool("other", "ask"), ship]
    thing = tools if form == "list" else Agent(name="a", tools=tools, handoffs=[Agent(name="c", tools=[BUY])])
    with pytest.raises(UndeclaredTool) as caught:
        protect(thing, kit)
    lines = [line for line in str(caught.value).splitlines() if line.startswith("kit.declare(")]
    expected = ["place", "ship", "raw"] if form == "list" else ["place", "ship", "buy", "raw"]
    assert sorted(lines) == sorted(f"kit.declare({name!r}, effect=...)" for name in expected)


@pytest.mark.parametrize("thing", [object(), [charge, "charge"], "charge"], ids=["object", "list", "str"])
def test_other_things_are_refused(kit, thing):
    """What is no agent, tool or list of tools is refused."""
    with pytest.raises(UsageError, match="protect\\(\\) takes"):
        protect(thing, kit)


def test_tools_that_run_past_every_hook(kit):
    """A tool that acts here and cannot be guarded is refused, unless it is said to change nothing."""
    shell = ShellTool(executor=lambda request: "")
    with pytest.raises(UndeclaredTool, match="shell"):
        protect([shell], kit)
    kit.declare("shell", effect="irreversible")
    with pytest.raises(UsageError, match=r"kit.declare_read_only\('shell'\)"):
        protect(Agent(name="a", tools=[shell]), kit)
    other = AgentKit("memory:")
    other.declare_read_only("shell")
    assert protect([shell], other) == [shell]


def test_a_declaration_of_a_parameter_that_is_not_there(kit):
    """A declaration that names a parameter that the tool lacks is refused when the tool is protected."""
    kit.declare("place", effect="compensable", compensate=refund.bind(thing="kwargs.oder"))
    with pytest.raises(DeclarationError, match="'oder'"):
        protect(place, kit)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
@pytest.mark.parametrize("arguments", ["good", "bad", "no json"])
def test_outside_of_a_saga_it_is_the_bare_tool(kit, shop, tmp_path, one, arguments):
    """Without a saga a protected tool says what the bare one says, good arguments or bad, and no log appears."""
    kit.declare_read_only("*")
    good = {"place": {"order": {"sku": "a"}}, "ship": {"skus": ["a", "b"]}}.get(one.name, {"thing": "a"})
    text = {"good": json.dumps(good), "bad": '{"thing": {}, "skus": 1}', "no json": "{"}[arguments]

    def say(tools):
        agent = Agent(name="a", model=Scripted([[(one.name, text, "c1")]]), tools=tools)
        try:
            return answers(asyncio.run(Runner.run(agent, "go", context="ann")))
        except Exception as error:
            return repr(error)

    bare = say([one])
    assert say(protect([one], kit)) == bare
    assert not list(tmp_path.glob("agent-saga.db*"))


def test_arguments_and_raw_results_are_recorded(kit):
    """The step holds validated arguments, defaults included, and the raw result; the context is none of them."""
    kit.declare("place", **BACK)
    kit.declare("ship", **BACK)
    kit.declare("buy", **BACK)
    kit.declare("raw", **BACK)
    with kit.transaction("buy") as saga:
        for tool, given in (
            (place, {"order": {"sku": "a"}}),
            (ship, {"skus": ["b", "c"]}),
            (BUY, {"thing": "d"}),
            (RAW, {"thing": "e"}),
        ):
            run(tool, given, kit=kit, context="ann")
    assert [(step.kwargs, step.result["id"]) for step in saga.report.kept] == [
        ({"order": {"sku": "a", "count": 1}, "note": "none"}, "a for ann"),
        ({"skus": ("b", "c")}, "b+c by c1"),
        ({"thing": "d"}, "d:3"),
        ({"thing": "e"}, "e"),
    ]


@pytest.mark.parametrize("form", ["function", "by hand", "wrapped"])
def test_the_key_is_hidden_and_given(kit, form):
    """A parameter that takes the key is hidden from the model, and receives the step's key."""
    kit.declare("pay", **BACK)
    tool = pay
    if form == "by hand":
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}, "idempotency_key": {}}}

        async def invoke(context, arguments):
            return new("pay", "{amount}:{idempotency_key}".format(**json.loads(arguments)))

        tool = FunctionTool("pay", "Pay.", schema, invoke, strict_json_schema=False)
    if form == "wrapped":

        def by_kit(amount: int, idempotency_key: str) -> dict:
            """Pay."""
            return new("pay", f"{amount}:{idempotency_key}")

        tool = function_tool(kit.wrap(by_kit, name="wrapped_pay", **BACK), name_override="wrapped_pay")
    with kit.transaction("buy") as saga:
        _, model = run(tool, {"amount": 3}, kit=kit)
    (step,) = saga.report.kept
    assert (step.kwargs, here().standing) == ({"amount": 3}, [f"3:{step.key}"])
    parameters = model.tools[0][0].params_json_schema
    assert list(parameters["properties"]) == ["amount"]
    assert "idempotency_key" not in parameters.get("required", ())


def test_the_key_outside_of_a_saga(kit, shop):
    """Outside of a saga a caller's own key goes through, and without one the tool's own signature decides."""
    kit.declare("pay", **BACK)
    assert run(pay, {"amount": 3, "idempotency_key": "mine"}, kit=kit)[0] == {"id": "3:mine"}
    assert "error" in run(pay, {"amount": 3}, kit=kit)[0]
    assert shop.standing == ["3:mine"]


def test_a_wrapped_function_as_a_tool_is_one_step(kit):
    """A function that the kit wraps, used as a tool's body, is one step."""
    seen = []

    def buy(thing: str) -> dict:
        """Buy."""
        seen.append(current_step().key)
        return new("buy", thing)

    with kit.transaction("buy") as saga:
        run(function_tool(kit.wrap(buy, **BACK)), {"thing": "a"}, kit=kit)
    assert [step.key for step in saga.report.kept] == seen


@pytest.mark.parametrize("arguments", ['{"thing": {}}', "{", '{"thin": "a"}', "[1]"])
def test_invalid_arguments_are_no_step(kit, arguments):
    """Arguments that the tool's validation refuses never become an intent, and fail nothing."""
    with kit.transaction("buy") as saga:
        text, _ = run(charge, arguments, kit=kit)
    assert "error occurred" in text
    assert (saga.report.outcome, saga.report.kept, here().events) == ("committed", (), [])


@pytest.mark.parametrize("change", [{"description": "Other."}, {"timeout_seconds": 20.0}], ids=str)
def test_a_changed_copy_is_guarded(kit, shop, change):
    """A copy of a protected tool is protected, and what the copy changed holds."""
    copy = dataclasses.replace(protect(acharge, kit), **change)
    assert {name: getattr(copy, name) for name in change} == change
    assert protect(copy, kit) is copy
    agent = Agent(name="a", model=Scripted(turns(("acharge", {"thing": "x"}))), tools=[copy])
    with kit.transaction("buy") as saga:
        run_sync(agent)
    assert len(saga.report.kept) == 1


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("form", ["function", "by hand", "typed output"])
def test_failures_say_what_they_say_without_us(kit, form, raises):
    """What the model is told of a tool's failure is what it is told without the adapter, by each way to tell it."""
    kit.declare("fails", **BACK)

    def body(thing: str) -> Order:
        """Fail."""
        raise ValueError("no stock")

    async def invoke(context, arguments):
        raise ValueError("no stock")

    if form == "by hand":
        tool = FunctionTool("fails", "Fail.", SCHEMA, invoke)
    else:
        ways = {} if not raises else {"failure_error_function": None}
        if form == "typed output":
            ways["output_type"] = Order
        tool = function_tool(body, name_override="fails", **ways)

    def say(tool):
        agent = Agent(name="a", model=Scripted(turns(("fails", {"thing": "x"}))), tools=[tool])
        try:
            return answers(run_sync(agent))
        except Exception as error:
            return type(error), str(error), type(error.__cause__)

    said = []
    with pytest.raises(SagaRolledBack, match="fails"), kit.transaction("buy"):
        said.append(say(protect(tool, kit)))
    assert said == [say(tool)]


def test_a_typed_output(kit, shop):
    """A tool with a typed output is guarded as a whole; what it returns is checked by the framework."""
    kit.declare("typed", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))

    @function_tool(output_type=Order)
    def typed(thing: str) -> Order:
        """Order."""
        new("typed", thing)
        return Order(sku=thing)

    with kit.transaction("buy") as saga:
        run(typed, {"thing": "a"}, kit=kit)
    assert (len(saga.report.kept), shop.standing) == (1, ["a"])


def test_a_replay_of_the_frameworks_own_output_types(kit, shop):
    """A resumed saga answers a call with the recorded output, also where that is an object of the framework's."""
    kit.declare("tell", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))

    @function_tool
    def tell(thing: str) -> ToolOutputText:
        """Tell."""
        new("tell", thing)
        return ToolOutputText(text=f"told {thing}")

    for _ in range(2):
        with kit.transaction("buy", key="order-1"):
            model = run(tell, {"thing": "a"}, kit=kit)[1]
    (output,) = [item for item in model.inputs[-1] if item.get("type") == "function_call_output"]
    assert output["output"] == [{"type": "input_text", "text": "told a"}]
    assert shop.events == [("tell", "a")]


def test_a_tool_that_requires_a_saga(kit, shop):
    """A tool that requires a saga is refused without one, and the model is told."""
    kit.declare("charge", requires_saga=True, **BACK)
    agent = Agent(name="a", model=Scripted(turns(("charge", {"thing": "x"}))), tools=protect([charge], kit))
    text = answers(run_sync(agent))[0]
    assert ("must run inside a saga" in text, shop.events) == (True, [])


@pytest.mark.parametrize("raises", [True, False])
def test_a_refusal_is_told_with_its_reason(kit, shop, raises):
    """A refusal reaches the model with its reason, whatever the tool does with its own errors."""
    ways = {"failure_error_function": None} if raises else {"failure_error_function": lambda context, error: "oh"}

    @function_tool(**ways)
    def buy(thing: str) -> dict:
        """Buy."""
        return new("buy", thing)

    kit.declare("buy", **BACK)
    with kit.transaction("buy", policies=[NoBigOnes()]) as saga:
        text, _ = run(buy, {"thing": "a"}, kit=kit)
    assert "too big" in text
    assert (shop.events, saga.report.outcome) == ([], "committed")
