"""Declarations: what cannot work is refused where it is written, with words that say what would."""

import inspect

import pytest
from engine_world import UNMAKE, Lost, make, make_keyed, make_remote, names, probe_world, tool, unmake, unmake_if_there

from agent_saga import AgentKit, SagaError, saga_scope, saga_tool
from agent_saga.errors import DeclarationError, NoSaga, UsageError
from agent_saga.kit import compensator


async def abind(call):
    return None


def two(first, second):
    return None


WRONG = [
    {"effect": "reversable"},
    {"effect": "read_only", "compensate": unmake.bind(thing="kwargs.thing")},
    {"effect": "irreversible", "compensate": unmake.bind(thing="kwargs.thing")},
    {"effect": "read_only", "probe": probe_world},
    {"compensate": unmake},
    {"compensate": "world.unmake"},
    {"compensate": abind},
    {"compensate": unmake.bind(thing="kwargs.missing")},
    {"probe": two},
    {"probe": lambda: None},
    {"no_effect_on": [ValueError("an instance")]},
    {"in_doubt_on": ["TimeoutError"]},
    {"key_param": "missing"},
    {"identity": ["missing"]},
    {"redact": ["missing"]},
    {"resolves": "anything"},
    {"timeout_s": 0},
    {"timeout_s": -1},
    {"timeout_s": "1"},
    {"settle_s": float("nan")},
    {"settle_s": float("inf")},
    {"retry": -1},
    {"retry": 1},
    {"retry": True, "probe": probe_world},
    {"version": 0},
    {"version": 1.5},
    {"name": "\ud800"},
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_declaration_that_cannot_work_is_refused(mem, number):
    """At declaration, not at the first failure."""
    with pytest.raises(DeclarationError):
        tool(mem, **WRONG[number])


def test_a_name_is_declared_once(mem):
    """Another function of the same name is another tool; the same function may be declared again."""
    tool(mem)
    tool(mem)
    with pytest.raises(DeclarationError, match="apart"):
        tool(mem, make_keyed, name="make")


def test_an_effectful_tool_without_an_inverse_does_not_run_in_a_saga(kit, world):
    """It says how to add one."""
    bare = kit.wrap(make, effect="compensable")
    with kit.transaction("s"), pytest.raises(UsageError, match="compensator"):
        bare("a")
    assert world.attempts == []


def test_a_tool_that_requires_a_saga_refuses_outside_of_one(kit, world):
    """And runs inside."""
    strict = tool(kit, requires_saga=True)
    with pytest.raises(NoSaga):
        strict("a")
    with kit.transaction("s"):
        strict("a")
    assert world.standing == {"a": 1}


@pytest.mark.parametrize("named", [False, True])
def test_the_key_parameter_is_filled_and_hidden(kit, world, named):
    """No model sees it, and what a caller passes for it is not used."""
    options = {"key_param": "token"} if named else {}
    fn = (lambda thing, token: make_keyed(thing, token)) if named else make_keyed
    step = tool(kit, fn, name="keyed", **options)
    assert list(inspect.signature(step).parameters) == ["thing"]
    with kit.transaction("s") as saga:
        assert step("a")["key"] == f"{saga.id}:1"
        assert step(thing="b", **{options.get("key_param", "idempotency_key"): "mine"})["key"] == f"{saga.id}:2"
    assert all("token" not in step.kwargs for step in saga.report.kept)


def test_identity_names_what_makes_two_calls_one(kit, world):
    """A new reference id does not make a retry a new call."""

    def pay(thing, reference):
        return make(thing)

    step = kit.wrap(pay, **UNMAKE, probe=probe_world, identity=["thing"])
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s"):
        with pytest.raises(TimeoutError):
            step("a", "ref-1")
        assert step("a", "ref-2") == {"id": "a"}
    assert world.count("do") == 1


def test_the_decorators_declare_on_the_default_kit(tmp_path, monkeypatch, world):
    """saga_tool, .compensator and saga_scope, as in the README."""
    from agent_saga import kit as kits

    monkeypatch.setattr(kits, "_default", [AgentKit("memory:")])
    charge = saga_tool(effect="compensable")(make)
    charge.compensator(thing="result.id", name="declarations.refund")(refund)
    with pytest.raises(Lost), saga_scope("checkout") as saga:
        charge("a")
        raise Lost
    assert names(saga.report.compensated) == ["a"]
    assert world.standing == {}


def refund(thing):
    unmake.fn(thing)


def test_a_handler_in_a_closure_warns(mem):
    """Another process may not be able to load it."""

    def inner(thing):
        return None

    with pytest.warns(UserWarning, match="another process"):
        compensator("declarations.inner")(inner)


@pytest.mark.parametrize("options", [UNMAKE, {**UNMAKE, "compensate": unmake_if_there.bind(thing="kwargs.thing")}])
def test_a_tool_that_returns_a_coroutine_is_a_clear_error(kit, world, options):
    """Never a success, and never certain that nothing happened: it may have acted before it returned."""

    async def inner():
        return None

    def acts(thing):
        make(thing)
        return inner()

    step = kit.wrap(acts, **options)
    with pytest.raises(UsageError, match="coroutine"), kit.transaction("s") as saga:
        step("a")
    assert not saga.report.verified
    assert names(saga.report.assumed_absent) == ["a"] or world.standing == {}


def test_every_error_says_what_may_have_happened():
    """`effect`, `retry` and `code` of each class."""
    from agent_saga import errors

    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, SagaError)]
    assert len(classes) > 15
    for cls in classes:
        assert cls.effect in {"none", "done", "unknown"}
        assert cls.retry in {"safe", "with_key", "never"}
        assert cls.code.startswith("AS-")
    assert len({cls.code for cls in classes}) == len(classes)


def test_one_key_is_one_effect(kit, world):
    """Whatever is repeated, a remote that honours keys sees one request for each step."""
    step = tool(kit, make_remote)
    world.script["after", "a"] = [TimeoutError(), TimeoutError()]
    with kit.transaction("s") as saga:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                step("a")
        step("a")
        step("b")
    assert world.standing == {"a": 1, "b": 1}
    assert len(saga.report.kept) == 2
