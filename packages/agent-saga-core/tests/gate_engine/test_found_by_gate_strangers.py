"""What strangers tried against the gate, with only its documentation at hand, and what got through at first."""

import pytest
from gate_world import make_kit, note, refund, world

from agent_saga import Allow, GateRefused, Refuse
from agent_saga.errors import DeclarationError, UsageError
from agent_saga.gates import ArgumentSchema, Bounds, Budget

UNDO = {"customer": "kwargs.order", "amount": "kwargs.order"}


class Doing:
    """A policy that does something, and allows unless that gives a decision."""

    def __init__(self, do):
        self.do = do

    def decide(self, call, saga):
        return self.do(call) or Allow()


def pay_kit(*policies, log="memory:"):
    kit = make_kit(log, *policies)
    kit.pay = kit.wrap(
        lambda order: note(f"pay {order}"), name="pay", effect="compensable", compensate=refund.bind(**UNDO)
    )
    return kit


def test_a_policy_that_changes_a_nested_argument_stops_the_call():
    """What the policies before it have seen, and what the intent says, is what runs; else nothing does."""

    def raise_it(call):
        call.kwargs["order"]["amount"] = 10**9

    kit = pay_kit(Bounds(tool="pay", argument="order.amount", max=500), Doing(raise_it))
    with kit.transaction("shop"), pytest.raises(GateRefused, match="an argument was changed"):
        kit.pay({"amount": 5})
    assert world() == []


def test_a_policy_that_calls_itself_without_end_breaks_no_other_saga():
    """At the limit of recursion a record may fail to be queued: what was folded is queued with the next one."""
    kit = pay_kit()
    endless = Doing(lambda call: kit.pay({"amount": 1}))
    with pytest.raises(GateRefused), kit.transaction("deep", policies=[endless]):
        kit.pay({"amount": 2})
    with kit.transaction("after"):
        kit.pay({"amount": 3})
    assert world() == ["pay {'amount': 3}"]


class Wordless(Exception):
    """Its text cannot be had."""

    def __str__(self):
        raise RuntimeError


def fail(call):
    raise Wordless


@pytest.mark.parametrize(
    ("do", "why"),
    [
        (fail, "the policy failed: Wordless"),
        (lambda call: Refuse(""), "the policy gave no reason"),
        pytest.param(lambda call: Refuse(None), "the policy gave no reason", id="None"),
    ],
)
def test_a_refusal_always_says_why(do, why):
    """Also where the policy does not."""
    kit = pay_kit(Doing(do))
    with kit.transaction("shop"), pytest.raises(GateRefused, match=f"before any effect: {why}$"):
        kit.pay({"amount": 5})


class Patient:
    """As a user would write it: other names for the parameters."""

    def __init__(self, limit_s):
        self.decide_within_s = limit_s

    def decide(self, proposed, facts):
        return Allow() if proposed.tool == "pay" else Refuse("no")


def test_a_policy_with_a_time_limit_is_called_as_one_without():
    """The names of its parameters are its own."""
    kit = pay_kit(Patient(30))
    with kit.transaction("shop"):
        kit.pay({"amount": 5})


@pytest.mark.parametrize("limit_s", [float("nan"), -1, 0, float("inf"), "soon"])
def test_a_time_limit_that_is_none_refuses(limit_s):
    """A typo must not mean: for ever."""
    kit = pay_kit(Patient(limit_s))
    with kit.transaction("shop"), pytest.raises(GateRefused, match="the policy failed"):
        kit.pay({"amount": 5})


@pytest.mark.parametrize("policies", ["bounds", [None], [Patient], [lambda call, saga: Allow()]])
def test_what_is_no_policy_is_refused_when_it_is_given(policies):
    """Not with the first call, by an AttributeError."""
    with pytest.raises(UsageError, match="is no policy"):
        make_kit("memory:", *policies)
    kit = make_kit("memory:")
    with pytest.raises(UsageError, match="is no policy"):
        kit.transaction("shop", policies=policies)
    with pytest.raises(UsageError, match="is no policy"):
        kit.preview([], policies=policies)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("^v[0-9]+$", "v2", True),
        ("^v[0-9]+$", "v2\n", False),
        ("^\\d+$", "12", True),
        ("^\\d+$", "\uff11", False),
        ("^\\$[$]$", "$$", True),
        ("^a$|^b$", "a\n", False),
    ],
)
def test_a_pattern_means_what_json_schema_says(pattern, text, fits):
    """Python's `$` also matches before a last line break, and its `\\d` takes digits of every script."""
    schema = {"properties": {"order": {"type": "string", "pattern": pattern}}}
    kit = pay_kit(ArgumentSchema(tool="pay", schema=schema))
    with kit.transaction("shop"):
        if fits:
            kit.pay(text)
        else:
            with pytest.raises(GateRefused, match="does not match"):
                kit.pay(text)
    assert len(world()) == fits


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a": {"maximun": 5}}}, "maximum"),
        ({"properties": {"a": {"type": "string", "format": "no-such-format"}}}, "cannot be checked"),
        ({"anyOf": [{"items": {"minLenght": 1}}]}, "minLength"),
        ({"$defs": {"x": {"requird": []}}}, "required"),
    ],
)
def test_a_rule_that_nobody_would_keep_is_refused(schema, said):
    """A misspelt keyword, or a format without a checker, is refused when the policy is made."""
    with pytest.raises(DeclarationError, match=said):
        ArgumentSchema(tool="pay", schema=schema)


def test_names_that_are_keywords_elsewhere_are_names():
    """Properties may have any names, and data may hold any words."""
    schema = {"properties": {"maximun": {"enum": [{"requird": 1}]}, "format": {"default": {"x": 1}}}, "title": "t"}
    ArgumentSchema(tool="pay", schema=schema)


def test_a_budget_per_something_else():
    """What `per` cannot be is said when the policy is made."""
    with pytest.raises(DeclarationError, match="per must be"):
        Budget(name="purse", tool="pay", amount="kwargs.amount", limit=5, per=5)
