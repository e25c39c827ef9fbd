"""JSON Schema of arguments."""

import builtins
from decimal import Decimal

import pytest
from gate_cases import Facts, Odd, allowed, asked, call, decide, refused

from agent_saga.errors import DeclarationError
from agent_saga.gates import ArgumentSchema

SCHEMA = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "minimum": 0, "maximum": 100, "multipleOf": 0.01},
        "items": {"type": "array", "items": {"type": "object", "required": ["sku"]}},
    },
    "required": ["amount"],
    "additionalProperties": False,
}
RULE = ArgumentSchema(tool="pay", schema=SCHEMA)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"amount": 5},
        {"amount": 0.1},
        {"amount": Decimal("99.99")},
        {"amount": 19.99},
        {"amount": 1, "items": ({"sku": "a"},)},
    ],
)
def test_what_fits_passes(kwargs):
    """GATE: tuples are arrays, Decimals are numbers, and 19.99 is a multiple of 0.01."""
    allowed(decide(RULE, call(**kwargs)))


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"amount": "5"},
        {"amount": True},
        {"amount": -1},
        {"amount": float("nan")},
        {"amount": float("inf")},
        {"amount": Decimal("NaN")},
        {"amount": Decimal("1e9")},
        {"amount": 10**400},
        {"amount": 0.001},
        {"amount": 5, "Amount": 5},
        {"amount": 5, "items": [{}]},
        {"amount": 5, "items": [{"sku": "a"}, 5]},
        {"amount": Odd()},
        {"amount": 5, "items": [{5: "a"}]},
        {"amount": 5, "items": [{"sku": b"a"}]},
    ],
    ids=range(16),
)
def test_what_does_not_fit_is_refused(kwargs):
    """GATE: NaN, infinity, text for number, bool, foreign objects and unknown names never fit."""
    refused(decide(RULE, call(**kwargs)))


def test_a_cyclic_argument_is_refused():
    """GATE: a schema is not followed for ever."""
    cycle = {}
    cycle["x"] = cycle
    assert "too large or too deep" in refused(decide(ArgumentSchema(tool="pay", schema={}), call(a=cycle)))


def test_one_argument_can_have_a_schema():
    """GATE: with argument=, each value at the path must fit; the reason names the place."""
    rule = ArgumentSchema(tool="pay", argument="items.*", schema={"properties": {"n": {"type": "integer"}}}, then="ask")
    allowed(decide(rule, call(items=[{"n": 1}, {"n": 2.0}])))
    assert "items.*.n" in asked(decide(rule, call(items=[{"n": 1}, {"n": "x"}]))).reason
    refused(decide(rule, call()))


def test_no_reference_leaves_the_schema():
    """GATE: a foreign $ref is not fetched; the call does not pass."""
    rule = ArgumentSchema(tool="pay", schema={"$ref": "http://127.0.0.1:1/schema.json"})
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        decide(rule, call(), Facts())


def test_a_schema_that_is_none_is_refused_where_it_is_written():
    """GATE: the schema itself is checked when the rule is made."""
    for schema in ({"type": "nothing"}, "text", {"minimum": "5"}):
        with pytest.raises(DeclarationError):
            ArgumentSchema(tool="pay", schema=schema)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    """GATE: jsonschema is an extra, and its absence is said when the rule is made."""
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "jsonschema":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeclarationError, match=r"agent-saga-core\[schema\]"):
        ArgumentSchema(tool="pay", schema={})
