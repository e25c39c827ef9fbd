"""`protect` for tools: what they stay, what they hide, what they refuse."""

import asyncio
import pathlib

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tools import BaseTool, StructuredTool, Tool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field
from shop import charge, here, look, new, refund

from agent_saga import AgentKit, current_step
from agent_saga.errors import DeclarationError, GateRefused, UndeclaredTool, UsageError
from agent_saga_langgraph import protect


class Order(BaseModel):
    """An order."""

    sku: str
    count: int = 1


class Ship(BaseTool):
    """A tool with a body of its own, an async one, and no schema."""

    name: str = "ship"
    description: str = "Ship an order."

    def _run(self, sku: str, count: int = 1, run_manager=None) -> dict:
        return new("ship", f"{sku}x{count}")

    async def _arun(self, sku: str, count: int = 1, run_manager=None) -> dict:
        return self._run(sku, count)


@tool
def place(order: Order, note: str = "none") -> dict:
    """Place an order."""
    return new("place", order.sku)


@tool(parse_docstring=True)
def pay(amount: int, idempotency_key: str) -> dict:
    """Pay.

    Args:
        amount: how much.
        idempotency_key: tells a retry from a new payment.
    """
    return new("pay", f"{amount}:{idempotency_key}")


def search(query: str) -> str:
    """Search."""
    return query.upper()


SEARCH = Tool(name="search", func=search, description="Search.")
AS_JSON = StructuredTool.from_function(
    func=lambda **arguments: new("mcp", arguments["sku"]),
    name="mcp",
    description="A tool from elsewhere.",
    args_schema={
        "type": "object",
        "properties": {"sku": {"type": "string"}, "idempotency_key": {"type": "string"}},
        "required": ["sku", "idempotency_key"],
    },
)
BACK = {"effect": "compensable", "compensate": refund.bind(thing="result.id")}


@pytest.mark.parametrize("one", [charge, look, place, Ship(), SEARCH], ids=lambda one: one.name)
def test_protected_tool_looks_the_same(kit, one):
    """A protected tool keeps type, name, description and the schema that a model sees."""
    kit.declare(one.name, effect="read_only")
    protected = protect(one, kit)
    assert type(protected) is type(one)
    assert (protected.name, protected.description, protected.args) == (one.name, one.description, one.args)
    assert convert_to_openai_tool(protected) == convert_to_openai_tool(one)
    assert protected.get_input_schema().model_json_schema() == one.get_input_schema().model_json_schema()


def test_protect_twice_changes_nothing(kit):
    """Protecting a protected tool returns it; the user's own tool is untouched."""
    before = dict(vars(charge))
    protected = protect(charge, kit)
    assert protect(protected, kit) is protected
    assert vars(charge) == before


def test_lists_keep_their_kind(kit):
    """A list stays a list and a tuple a tuple; functions become tools, and provider tools stay as they are."""
    kit.declare("search", effect="read_only")
    hosted = {"type": "web_search"}
    tools = protect([charge, search, hosted], kit)
    assert type(tools) is list
    assert [getattr(one, "name", one) for one in tools] == ["charge", "search", hosted]
    assert type(protect((charge,), kit)) is tuple


def test_undeclared_tools_are_named_at_once(kit):
    """Setting up with undeclared tools names all of them, in a block to paste."""
    with pytest.raises(UndeclaredTool) as caught:
        protect([charge, place, SEARCH, Ship()], kit)
    lines = [line for line in str(caught.value).splitlines() if line.startswith("kit.declare(")]
    assert lines == [f"kit.declare({name!r}, effect=...)" for name in ("place", "search", "ship")]


def test_other_things_are_refused(kit):
    """What is no tool, list of tools or ToolNode is refused, with what takes its place."""
    with pytest.raises(UsageError, match="SagaMiddleware"):
        protect(object(), kit)


def test_declaration_of_a_parameter_that_is_not_there(kit):
    """A declaration that names a parameter that the tool lacks is refused when the tool is protected."""
    kit.declare("place", effect="compensable", compensate=refund.bind(thing="kwargs.oder"))
    with pytest.raises(DeclarationError, match="'oder'"):
        protect(place, kit)


def test_outside_of_a_saga_it_is_the_bare_tool(kit, shop, tmp_path):
    """Without a saga a protected tool runs bare, with its own exceptions, and no log appears."""
    protected = protect([charge, place], kit)[0] if kit.declare("place", **BACK) else None
    assert protected.invoke({"thing": "a"}) == {"id": "a"}
    assert shop.events == [("charge", "a")]
    assert not list(pathlib.Path(tmp_path).glob("agent-saga.db*"))


def test_key_is_hidden_and_given(kit, shop):
    """A parameter that takes the key is hidden from the model, and receives the step's key."""
    kit.declare("pay", **BACK)
    protected = protect(pay, kit)
    shown = convert_to_openai_tool(protected)["function"]["parameters"]
    assert shown["properties"] == {"amount": {"type": "integer", "description": "how much."}}
    assert shown["required"] == ["amount"]
    with kit.transaction("buy") as saga:
        protected.invoke({"amount": 3})
    (step,) = saga.report.kept
    assert (step.kwargs, shop.standing) == ({"amount": 3}, [f"3:{step.key}"])


def test_key_outside_of_a_saga(kit, shop):
    """Outside of a saga the caller's own key goes through, and without one the tool's own signature decides."""
    kit.declare("pay", **BACK)
    protected = protect(pay, kit)
    protected.invoke({"amount": 3, "idempotency_key": "mine"})
    assert shop.standing == ["3:mine"]
    with pytest.raises(TypeError, match="idempotency_key"):
        protected.invoke({"amount": 3})


def test_key_of_a_json_schema(kit, shop):
    """A tool with a JSON schema hides its key as well."""
    kit.declare("mcp", **BACK)
    protected = protect(AS_JSON, kit)
    assert convert_to_openai_tool(protected)["function"]["parameters"]["properties"] == {"sku": {"type": "string"}}
    with kit.transaction("buy") as saga:
        protected.invoke({"sku": "x"})
    assert saga.report.kept[0].kwargs == {"sku": "x"}


@pytest.mark.parametrize("use_async", [False, True])
def test_arguments_and_raw_result_are_recorded(kit, use_async):
    """The step holds validated arguments, defaults included, and the raw result, in sync and async runs."""
    kit.declare("place", **BACK)
    kit.declare("ship", **BACK)
    placing, shipping = protect([place, Ship()], kit)
    with kit.transaction("buy") as saga:
        for protected, given in ((placing, {"order": {"sku": "a"}}), (shipping, {"sku": "b", "count": 2})):
            asyncio.run(protected.ainvoke(given)) if use_async else protected.invoke(given)
    placed, shipped = saga.report.kept
    assert placed.kwargs == {"order": {"sku": "a", "count": 1}, "note": "none"}
    assert (placed.result, shipped.kwargs) == ({"id": "a"}, {"sku": "b", "count": 2})


def test_single_input_tool(kit):
    """The one argument of a single-input tool is recorded under its own name."""
    kit.declare("search", effect="compensable", compensate=refund.bind(thing="kwargs.query"))
    protected = protect(SEARCH, kit)
    with kit.transaction("find") as saga:
        assert protected.invoke("x") == "X"
    assert saga.report.kept[0].kwargs == {"query": "x"}


def test_wrapped_function_as_a_tool_is_one_step(kit):
    """A function that the kit wraps, used as a tool's body, is one step."""
    seen = []

    def buy(thing: str) -> dict:
        """Buy."""
        seen.append(current_step().key)
        return new("buy", thing)

    protected = protect(tool(kit.wrap(buy, **BACK)), kit)
    with kit.transaction("buy") as saga:
        protected.invoke({"thing": "a"})
    assert [step.key for step in saga.report.kept] == seen


def test_wrapped_function_with_a_key(kit, shop):
    """The key reaches a wrapped body through the tool, and no model sees it."""

    def buy(thing: str, idempotency_key: str) -> dict:
        """Buy."""
        return new("buy", idempotency_key)

    protected = protect(tool(kit.wrap(buy, **BACK)), kit)
    assert list(protected.args) == ["thing"]
    with kit.transaction("buy") as saga:
        protected.invoke({"thing": "a"})
    assert shop.standing == [saga.report.kept[0].key]


def test_python_callers_get_refusals_as_errors(kit, shop):
    """A call without a call id, so by Python, raises a refusal instead of answering it as text."""
    kit.declare("ship", effect="irreversible")
    protected = protect(Ship(), kit)
    with kit.transaction("buy"), pytest.raises(GateRefused):
        protected.invoke({"sku": "a"})
    assert shop.events == []


def test_invalid_arguments_are_no_step(kit):
    """Arguments that the tool's schema refuses never become an intent."""
    kit.declare("place", **BACK)
    protected = protect(place, kit)
    with kit.transaction("buy") as saga, pytest.raises(ValueError, match="sku"):
        protected.invoke({"order": {}})
    assert saga.report.kept == ()


def test_a_changed_copy_is_guarded_with_its_changes(kit, shop):
    """A copy of a protected tool is protected, and what the copy changed holds."""
    seen = []
    changed = protect(charge, kit).model_copy(update={"func": lambda thing: seen.append(thing) or {"id": thing}})
    with kit.transaction("buy") as saga:
        protect(changed, kit).invoke({"thing": "a"})
    assert (seen, shop.events, len(saga.report.kept)) == (["a"], [], 1)


class Traces(BaseCallbackHandler):
    def __init__(self):
        self.seen = []

    def on_tool_start(self, serialized, input_str, *, metadata=None, **kwargs):
        self.seen.append((metadata or {}).get("saga_id"))


def test_saga_id_is_on_the_traces(kit):
    """The runs of tools carry the saga's id, for every tracer; outside of a saga there is none."""
    traces = Traces()
    protected = protect(charge, kit)
    with kit.transaction("buy") as saga:
        protected.invoke({"thing": "a"}, {"callbacks": [traces]})
    protected.invoke({"thing": "b"}, {"callbacks": [traces]})
    assert traces.seen == [saga.id, None]


def test_a_tool_may_be_declared_elsewhere(shop):
    """Outside of any saga the default kit decides unless one is given; a tool that requires a saga refuses there."""
    kit = AgentKit("memory:")
    kit.declare("charge", requires_saga=True, **BACK)
    with pytest.raises(UsageError, match="must run inside a saga"):
        protect(charge, kit).invoke({"thing": "a"})
    assert here().events == []


class Described(BaseModel):
    amount: int = Field(description="how much")
    idempotency_key: str = Field(default="none", description="a key")


def test_explicit_schema_with_a_key(kit):
    """A schema of the user's own hides the key and keeps its other fields, names and titles."""
    paying = StructuredTool.from_function(
        func=lambda amount, idempotency_key: new("pay", idempotency_key),
        name="paying",
        description="Pay.",
        args_schema=Described,
    )
    kit.declare("paying", **BACK)
    shown = convert_to_openai_tool(protect(paying, kit))["function"]
    assert shown["parameters"]["properties"] == {"amount": {"type": "integer", "description": "how much"}}
