"""Policies from TOML are the same objects as in code."""

import sys
from decimal import Decimal

import pytest

from agent_saga.errors import DeclarationError
from agent_saga.gates import (
    AllowTools,
    AllowValues,
    ArgumentSchema,
    Bounds,
    Budget,
    CircuitBreaker,
    CompensationWindow,
    Consensus,
    DenyTools,
    DenyValues,
    EffectRule,
    FreezeWindow,
    Quorum,
    RateLimit,
    UndoPath,
    WeeklyFreeze,
    all_of,
    first_of,
    policies_from_toml,
    when,
)
from agent_saga.gates.toml import RULES
from agent_saga.model.effects import Ask

EVERY_RULE = """
[tool.agent-saga]
imports = ["shop.tools"]

[[tool.agent-saga.policies]]
rule = "effect"
effect = "irreversible"
then = { quorum = 2, signed = true, expires_s = 600 }

[[tool.agent-saga.policies]]
rule = "allow_tools"
names = ["pay", "get_*"]

[[tool.agent-saga.policies]]
rule = "deny_tools"
names = "delete_*"

[[tool.agent-saga.policies]]
rule = "allow_values"
argument = "country"
values = ["DE", 7, true, 0.5]

[[tool.agent-saga.policies]]
rule = "deny_values"
argument = "to"
values = "mallory"
missing = "allow"

[[tool.agent-saga.policies]]
rule = "bounds"
tool = "give"
argument = "dose"
min = 0.1
max = 50
unit = "mg"
allowed_units = ["ug", "g"]

[[tool.agent-saga.policies]]
rule = "budget"
name = "spend"
limit = 1000.10
amount = "order.amount"
per = "kwargs.customer"
window = "day"

[[tool.agent-saga.policies]]
rule = "rate_limit"
name = "calls"
calls = 5
window = 1.5

[[tool.agent-saga.policies]]
rule = "circuit_breaker"
tool = ["pay", "refund"]
open_for_s = 2.5

[[tool.agent-saga.policies]]
rule = "consensus"
tool = "pay"
verifiers = ["toml_verifiers:one", "toml_verifiers:two"]
needed = 1

[[tool.agent-saga.policies]]
rule = "undo_path"
tool = "rm"
destroys = "path"

[[tool.agent-saga.policies]]
rule = "compensation_window"
at_least_s = 3600

[[tool.agent-saga.policies]]
rule = "quorum"
tool = "wire"
needed = 3

[[tool.agent-saga.policies]]
rule = "freeze"
starts_at = 2026-12-24T00:00:00Z
ends_at = "2026-12-27T00:00:00Z"

[[tool.agent-saga.policies]]
rule = "weekly_freeze"
days = ["fri", "sat"]
start = 18:00:00

[[tool.agent-saga.policies]]
rule = "argument_schema"
tool = "pay"
schema = { type = "object", required = ["amount"] }

[[tool.agent-saga.policies]]
rule = "when"
argument = "amount"
at_least = 10.5
policy = { rule = "quorum", tool = "pay" }

[[tool.agent-saga.policies]]
rule = "first_of"
otherwise = "ask"
policies = [{ rule = "deny_tools", names = ["x"] }, { rule = "allow_tools", names = ["y"] }]

[[tool.agent-saga.policies]]
rule = "all_of"
policies = [{ rule = "deny_tools", names = ["x"] }]
"""


@pytest.fixture
def verifiers(tmp_path, monkeypatch):
    (tmp_path / "toml_verifiers.py").write_text("def one(call): return True\ndef two(call): return True\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("toml_verifiers", None)


def test_every_rule_can_be_written_in_toml(tmp_path, verifiers):
    """GATE: a file gives the very objects that code gives, with exact numbers."""
    path = tmp_path / "pyproject.toml"
    path.write_text(EVERY_RULE)
    policies = policies_from_toml(path)
    import toml_verifiers

    assert policies == (
        EffectRule("irreversible", Ask("", quorum=2, signed=True, expires_s=600.0)),
        AllowTools("pay", "get_*"),
        DenyTools("delete_*"),
        AllowValues(argument="country", values=("DE", 7, True, 0.5)),
        DenyValues(argument="to", values=("mallory",), missing="allow"),
        Bounds(tool="give", argument="dose", min=Decimal("0.1"), max=50, unit="mg", allowed_units=("ug", "g")),
        Budget(
            name="spend",
            limit=Decimal("1000.10"),
            amount="order.amount",
            per="kwargs.customer",
            window="day",
        ),
        RateLimit(name="calls", calls=5, window=1.5),
        CircuitBreaker(tool=("pay", "refund"), open_for_s=2.5),
        Consensus(tool="pay", verifiers=(toml_verifiers.one, toml_verifiers.two), needed=1),
        UndoPath(tool="rm", destroys="path"),
        CompensationWindow(at_least_s=3600),
        Quorum(tool="wire", needed=3),
        FreezeWindow(starts_at="2026-12-24T00:00:00Z", ends_at="2026-12-27T00:00:00Z"),
        WeeklyFreeze(days=("fri", "sat"), start=policies[14].start),
        ArgumentSchema(tool="pay", schema={"type": "object", "required": ["amount"]}),
        when(Quorum(tool="pay"), argument="amount", at_least=Decimal("10.5")),
        first_of(DenyTools("x"), AllowTools("y"), otherwise="ask"),
        all_of(DenyTools("x")),
    )
    assert len({type(policy) for policy in policies}) == len(RULES)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('rule = "bound"\ntool = "x"', 'write rule = "bounds"'),
        ('tool = "x"', "rule = "),
        ('rule = "bounds"\ntool = "x"\nargument = "a"\nmaxx = 50', "write max = 50"),
        ('rule = "bounds"\ntool = "x"\nargument = "a"\nmax = 50\nuntis = "mg"', 'write unit = "mg"'),
        ('rule = "bounds"\ntool = "x"\nmax = 50', "write argument = ..."),
        ('rule = "allow_tools"', 'write names = ["get_*"]'),
        ('rule = "quorum"\ntool = "x"\nzzz = 1', "its keys are tool, needed"),
        ('rule = "quorum"\ntool = "x"\nsigned = "no"', "signed must be true or false"),
        ('rule = "quorum"\ntool = "x"\nneeded = "2"', "policy 1 (quorum)"),
        ('rule = "effect"\neffect = "irreversible"\nthen = { qorum = 2 }', "write quorum = 2"),
        ('rule = "effect"\neffect = "irreversible"\nthen = { quorum = true }', "quorum = 1"),
        ('rule = "effect"\neffect = "irreversible"\nthen = { signed = 1 }', "signed = false"),
        ('rule = "effect"\neffect = "irreversible"\nthen = "aks"', "'ask'"),
        ('rule = "bounds"\ntool = "x"\nargument = "a"\nmax = nan', "not finite"),
        ('rule = "when"\npolicy = { rule = "bounds", mx = 1 }', "policy (bounds): unknown key"),
        ('rule = "first_of"', "write policies = [...]"),
        ('rule = "consensus"\ntool = "x"\nverifiers = ["nowhere:fn"]', 'write verifiers = ["package.module:function"]'),
        ('rule = "consensus"\ntool = "x"\nverifiers = ["json"]', "cannot be loaded"),
        ('rule = "circuit_breaker"\ntool = "x"\nmemory = 5', "unknown key 'memory'"),
        ('rule = "weekly_freeze"\ndays = [5]', "days must be"),
    ],
    ids=range(20),
)
def test_a_mistake_is_refused_with_the_line_that_would_be_right(tmp_path, text, line):
    """GATE: an unknown key, rule or value is never passed over."""
    path = tmp_path / "policies.toml"
    path.write_text(f"[[policies]]\n{text}\n")
    with pytest.raises(DeclarationError) as refusal:
        policies_from_toml(path)
    assert line in str(refusal.value)


def test_a_file_without_policies_is_no_file_with_none(tmp_path):
    """GATE: a misspelt table protects nothing, so it is an error; none at all is written as such."""
    for text, hint in [
        ("", "policies = []"),
        ("[tool.agent-saga]\npolicy = []", "'policy' should be 'policies'"),
        ("policies = 5", "list of tables"),
    ]:
        path = tmp_path / "x.toml"
        path.write_text(text)
        with pytest.raises(DeclarationError, match=hint.replace("[", r"\[").replace("]", r"\]")):
            policies_from_toml(path)
    assert policies_from_toml({"policies": []}) == ()
    for source in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(DeclarationError, match="cannot be read"):
            policies_from_toml(source)
    (tmp_path / "bad.toml").write_text("= 5")
    with pytest.raises(DeclarationError, match="cannot be read"):
        policies_from_toml(tmp_path / "bad.toml")
    with pytest.raises(DeclarationError, match="must be a table"):
        policies_from_toml({"policies": ["bounds"]})
