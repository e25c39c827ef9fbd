"""`protect` for tools: what they stay, what they hide, what they refuse."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.tools import BaseStreamTool, BaseTool, BaseToolWithState, FunctionTool
from autogen_scripted import Scripted, answers, run
from autogen_shop import BACK, NoBigOnes, acharge, charge, here, look, new, refund
from pydantic import BaseModel

from agent_saga import SagaRolledBack, current_step
from agent_saga.errors import DeclarationError, UndeclaredTool, UsageError
from agent_saga_autogen import protect


class Item(BaseModel):
    sku: str
    count: int = 1


def place(item: Item, note: str = "none") -> dict:
    """Place an order."""
    return new("place", f"{item.sku} x {item.count}, {note}")


async def pay(amount: int, idempotency_key: str) -> dict:
    """Pay."""
    return new("pay", f"{amount}:{idempotency_key}")


def pay_in_thread(amount: int, idempotency_key: str = "own") -> dict:
    """Pay."""
    return new("pay", f"{amount}:{idempotency_key}")


def stoppable(thing: str, cancellation_token: CancellationToken) -> dict:
    """Buy, if nobody minds."""
    assert not cancellation_token.is_cancelled()
    return new("stoppable", thing)


class Thing(BaseModel):
    thing: str


class Count(BaseModel):
    calls: int = 0


class Own(BaseToolWithState[Thing, Item, Count]):
    """A tool of the user's own class, with state."""

    component_config_schema = Count

    def __init__(self):
        super().__init__(Thing, Item, Count, "own", "Buy one's own.")
        self.calls = 0

    async def run(self, args, cancellation_token):
        self.calls += 1
        new("own", args.thing)
        return Item(sku=args.thing)

    def save_state(self):
        return Count(calls=self.calls)

    def load_state(self, state):
        self.calls = state.calls


class Direct(BaseTool[Thing, dict]):
    """A tool that does not come to `run`."""

    component_config_schema = Count

    def __init__(self):
        super().__init__(Thing, dict, "direct", "Buy directly.")

    async def run(self, args, cancellation_token):
        raise NotImplementedError

    async def run_json(self, args, cancellation_token, call_id=None):
        return new("direct", args["thing"])


class Streaming(BaseStreamTool[Thing, Item, Item]):
    """A tool that tells how it gets on."""

    component_config_schema = Count

    def __init__(self, fails=False):
        super().__init__(Thing, Item, "streaming", "Buy, and tell.")
        self.fails = fails

    async def run(self, args, cancellation_token):
        raise NotImplementedError

    async def run_stream(self, args, cancellation_token):
        for count in range(3):
            yield Item(sku="progress", count=count)
        if self.fails:
            raise ValueError("no stock")
        new("streaming", args.thing)
        yield Item(sku=args.thing)


def tool(fn, **options):
    return FunctionTool(fn, description=fn.__doc__, **options)


KINDS = {
    "sync": lambda: tool(charge),
    "async": lambda: tool(acharge),
    "look": lambda: tool(look),
    "place": lambda: tool(place),
    "stoppable": lambda: tool(stoppable),
    "strict": lambda: tool(charge, name="strict", strict=True),
    "own": Own,
    "direct": Direct,
    "streaming": Streaming,
}
ALL = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def use(kit, one, arguments, **options):
    """One call of a tool by an agent, in a saga; returns what the model was told, the saga and the model."""
    model = Scripted([[(one.name, arguments, "c1")]])
    agent = protect(AssistantAgent("a", model_client=model, tools=[one], max_tool_iterations=2), kit)
    result, saga = run(kit, agent, **options)
    return answers(result)[0], saga, model


def shown(one):
    return type(one), one.name, one.description, one.schema, one.args_type(), one.return_type(), one.state_type()


@ALL
def test_a_protected_tool_looks_the_same(kit, make):
    """A protected tool is the same object, with its type, name, description and schema; twice changes nothing."""
    kit.declare_read_only("*")
    one, other = make(), make()
    assert protect(one, kit) is one
    before = dict(vars(one))
    assert protect(one, kit) is one
    assert vars(one) == before
    assert one.schema == other.schema
    assert (shown(one)[0], shown(one)[5:]) == (shown(other)[0], shown(other)[5:])


@ALL
@pytest.mark.parametrize("good", [True, False])
def test_outside_of_a_saga_it_is_the_bare_tool(kit, tmp_path, make, good):
    """Without a saga a protected tool says what the bare one says, good arguments or bad, and no log appears."""
    kit.declare_read_only("*")
    arguments = {"thing": "a", "item": {"sku": "a"}} if good else {"nothing": 1}

    async def say(one):
        agent = AssistantAgent("a", model_client=Scripted([[(one.name, arguments, "c1")]]), tools=[one])
        return answers(await agent.run(task="go"))

    with pytest.warns(UserWarning, match="Unexpected event") if make is Streaming and good else _nothing():
        assert asyncio.run(say(protect(make(), kit))) == asyncio.run(say(make()))
    assert not list(tmp_path.glob("agent-saga.db*"))


class _nothing:
    def __enter__(self):
        return None

    def __exit__(self, *error):
        return None


@ALL
@pytest.mark.filterwarnings("ignore:Unexpected event type")  # The framework passes on events of its own only.
def test_each_kind_of_tool_is_one_step(kit, make):
    """Whatever a tool is made of, its call is one step, with validated arguments, defaults included."""
    one = make()
    name = "note" if one.name == "place" else "thing"
    kit.declare(one.name, effect="compensable", compensate=refund.bind(thing=f"kwargs.{name}"))
    given = {"item": {"sku": "a"}} if one.name == "place" else {"thing": "a"}
    _, saga, _ = use(kit, one, given)
    (step,) = saga.report.kept
    assert step.tool == one.name
    assert step.kwargs == ({"item": {"sku": "a", "count": 1}, "note": "none"} if one.name == "place" else given)


def test_the_key_is_hidden_and_given(kit):
    """A parameter that takes the key is hidden from the model, and receives the step's key."""
    for fn in (pay, pay_in_thread):
        kit.declare(fn.__name__, **BACK)
        _, saga, model = use(kit, tool(fn), {"amount": 3})
        (step,) = saga.report.kept
        assert (step.kwargs, here().standing[-1]) == ({"amount": 3}, f"3:{step.key}")
        assert list(model.tools[0][0]["parameters"]["properties"]) == ["amount"]


def test_the_key_outside_of_a_saga(kit):
    """Outside of a saga a caller's own key goes through; without one it is the tool's own default."""
    kit.declare("pay_in_thread", **BACK)
    one = protect(tool(pay_in_thread), kit)

    async def main():
        await one.run_json({"amount": 3, "idempotency_key": "mine"}, CancellationToken())
        await one.run_json({"amount": 4}, CancellationToken())

    asyncio.run(main())
    assert here().standing == ["3:mine", "4:own"]


def test_a_key_that_cannot_be_hidden(kit):
    """A tool that makes its own schema, key included, is refused when it is protected."""

    class Shows(Direct):
        def __init__(self):
            BaseTool.__init__(self, type("Args", (Thing,), {"__annotations__": {"key": str}}), dict, "shows", "Show.")

        @property
        def schema(self):
            return {"name": "shows", "parameters": {"type": "object", "properties": {"key": {}}}}

    kit.declare("shows", key_param="key", **BACK)
    with pytest.raises(DeclarationError, match="cannot be hidden"):
        protect(Shows(), kit)


def test_state_stays_with_the_tool(kit):
    """A tool with state is not copied: its state counts on, and is saved as before."""
    own = Own()
    kit.declare("own", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    use(kit, own, {"thing": "a"})
    assert (own.calls, asyncio.run(own.save_state_json())) == (1, {"calls": 1})


def test_a_model_is_replayed_as_one(kit, shop):
    """A resumed saga answers a call with the recorded result in the framework's words, models too."""
    kit.declare("own", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    first, second = (use(kit, Own(), {"thing": "a"}, key="order-1")[0] for _ in range(2))
    assert first == second == '{"sku": "a", "count": 1}'
    assert shop.events == [("own", "a")]


def test_lists_and_functions(kit):
    """A list stays a list and a tuple a tuple; functions become tools, as AutoGen makes them."""
    own = tool(acharge)
    made = protect([charge, own], kit)
    assert (type(made), made[1], made[0].name, made[0].description) == (list, own, "charge", "Charge for a thing.")
    assert type(protect((charge,), kit)) is tuple


def test_protected_tools_of_an_agent_that_is_not(kit, maker):
    """Tools that are protected in a list are steps in any agent."""
    _, saga = run(
        kit, maker.bare(protect([charge, acharge], kit), [("charge", {"thing": "a"}), ("acharge", {"thing": "b"})])
    )
    assert sorted(step.tool for step in saga.report.kept) == ["acharge", "charge"]


def test_undeclared_tools_are_named_at_once(kit, maker):
    """Setting up with undeclared tools names all of them, also those of agents within, in a block to paste."""
    inner = maker.bare([place, look], name="inner")
    for thing in ([tool(charge), AgentTool(inner), tool(pay)], maker.bare([charge, AgentTool(inner), pay])):
        with pytest.raises(UndeclaredTool) as caught:
            protect(thing, kit)
        lines = [line for line in str(caught.value).splitlines() if line.startswith("kit.declare(")]
        assert sorted(lines) == [f"kit.declare({name!r}, effect=...)" for name in ("pay", "place")]


@pytest.mark.parametrize("thing", [object(), [1], "charge"], ids=["object", "list", "str"])
def test_other_things_are_refused(kit, thing):
    """What is no agent, team, workbench, tool or list of tools is refused."""
    with pytest.raises(UsageError, match="protect\\(\\) takes"):
        protect(thing, kit)


def test_a_declaration_of_a_parameter_that_is_not_there(kit):
    """A declaration that names a parameter that the tool lacks is refused when the tool is protected."""
    kit.declare("place", effect="compensable", compensate=refund.bind(thing="kwargs.itme"))
    with pytest.raises(DeclarationError, match="'itme'"):
        protect(tool(place), kit)


@pytest.mark.parametrize("by_kit", ["sync", "async"])
def test_a_wrapped_function_as_a_tool_is_one_step(kit, by_kit):
    """A function that the kit wraps is one step, also in the thread to which AutoGen gives no context."""
    seen = []

    def buy(thing: str) -> dict:
        """Buy."""
        seen.append(current_step().key)
        return new("buy", thing)

    async def abuy(thing: str) -> dict:
        """Buy."""
        return buy(thing)

    wrapped = kit.wrap(buy if by_kit == "sync" else abuy, name="buy", requires_saga=True, **BACK)
    _, saga, _ = use(kit, tool(wrapped, name="buy"), {"thing": "a"})
    assert [step.key for step in saga.report.kept] == seen


def test_a_stream_that_fails(kit):
    """A streaming tool that fails after its first items has failed; what it had told is passed on."""
    kit.declare("streaming", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    told = []
    with pytest.raises(SagaRolledBack, match="streaming"), pytest.warns(UserWarning, match="Unexpected event"):
        told.append(use(kit, Streaming(fails=True), {"thing": "a"})[0])
    assert here().events == []


def test_a_stream_that_nobody_reads_on(kit, shop):
    """A stream that is closed early is cancelled: in doubt, and nothing is kept unseen."""
    kit.declare("streaming", effect="compensable", compensate=refund.bind(thing="kwargs.thing"))
    one = protect(Streaming(), kit)

    async def main():
        async with kit.transaction("buy"):
            stream = one.run_json_stream({"thing": "a"}, CancellationToken())
            assert (await anext(stream)).count == 0
            await stream.aclose()

    with pytest.raises(SagaRolledBack):
        asyncio.run(main())
    assert shop.events == []


def test_a_tool_that_requires_a_saga(kit, shop):
    """A tool that requires a saga is refused without one, and the model is told."""
    kit.declare("charge", requires_saga=True, **BACK)
    agent = protect(
        AssistantAgent("a", model_client=Scripted([[("charge", {"thing": "x"}, "c1")]]), tools=[charge]), kit
    )
    text = answers(asyncio.run(agent.run(task="go")))[0]
    assert ("must run inside a saga" in text, shop.events) == (True, [])


def test_a_refusal_is_told_with_its_reason(kit, shop):
    """A refusal reaches the model as the framework's error, with the reason, and fails nothing."""
    text, saga, model = use(kit, tool(charge), {"thing": "a"}, policies=[NoBigOnes()])
    assert "too big" in text
    assert (shop.events, saga.report.outcome) == ([], "committed")
    assert model.inputs[1][-1].content[0].is_error
