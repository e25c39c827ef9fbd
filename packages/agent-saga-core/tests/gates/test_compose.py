"""Composition: what is made of policies is never weaker than they are."""

import asyncio
from decimal import Decimal

import pytest
from gate_cases import Facts, allowed, asked, call, decide, refused
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.errors import DeclarationError
from agent_saga.gates import AllowTools, Bounds, Budget, DenyTools, EffectRule, Quorum, all_of, first_of, when
from agent_saga.model.effects import Allow, Ask, Refuse
from agent_saga.model.requirements import Within


class Says:
    """A policy that answers what a test states."""

    def __init__(self, decision):
        self.decision = decision

    def decide(self, call, saga):
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision


class SaysLater(Says):
    """The same, async."""

    async def decide(self, call, saga):
        await asyncio.sleep(0)
        return Says.decide(self, call, saga)


def settle(decision):
    if isinstance(decision, Allow | Refuse | Ask):
        return decision

    async def main():
        return await decision

    return asyncio.run(main())


WITHIN = Within(budget="b", amount=Decimal(1), limit=Decimal(5))
DECISIONS = st.sampled_from(
    [
        Allow(),
        Allow((WITHIN,)),
        Refuse("no"),
        Ask("a"),
        Ask("b", quorum=3, expires_s=10),
        Ask("c", signed=True, suspend=True),
    ]
)
POLICIES = st.lists(
    st.builds(lambda kind, decision: kind(decision), st.sampled_from([Says, SaysLater]), DECISIONS),
    min_size=1,
    max_size=5,
)


@given(POLICIES)
def test_all_of_is_as_strict_as_its_strictest(policies):
    """GATE: all_of drops no refusal, no question and no requirement, sync or async."""
    stated = [policy.decision for policy in policies]
    decision = settle(all_of(*policies).decide(call(), Facts()))
    questions = [one for one in stated if isinstance(one, Ask)]
    required = [need for one in stated if isinstance(one, Allow | Ask) for need in one.requires]
    if any(isinstance(one, Refuse) for one in stated):
        refused(decision)
    elif questions:
        question = asked(decision)
        assert question.quorum == max(one.quorum for one in questions)
        assert question.signed is any(one.signed for one in questions)
        assert question.suspend is any(one.suspend for one in questions)
        assert question.expires_s == min(one.expires_s for one in questions)
        assert all(one.reason in question.reason for one in questions)
        assert list(question.requires) == required
    else:
        assert list(allowed(decision)) == required


@pytest.mark.parametrize("answer", [None, True, "allow", Allow, 1], ids=repr)
@pytest.mark.parametrize("kind", [Says, SaysLater])
@pytest.mark.parametrize("compose", [all_of, first_of])
def test_what_is_no_decision_refuses(answer, kind, compose):
    """GATE: a policy that returns anything but a decision refuses, also inside of another."""
    assert "no decision" in refused(settle(compose(kind(answer)).decide(call(), Facts())))


@pytest.mark.parametrize("kind", [Says, SaysLater])
@pytest.mark.parametrize("compose", [all_of, first_of, when])
def test_a_policy_that_raises_is_not_passed_over(kind, compose):
    """GATE: an exception leaves the composition, and the engine refuses on it."""
    with pytest.raises(ZeroDivisionError):
        settle(compose(kind(ZeroDivisionError())).decide(call(), Facts()))


def test_the_first_rule_that_is_about_a_call_decides_alone():
    """GATE: first_of works like the rules of a firewall, and refuses what no rule is about."""
    rule = first_of(
        Bounds(tool="pay", argument="amount", max=10),
        when(Quorum(tool="wire"), argument="amount", at_least=100),
        EffectRule("compensable", "allow", tool=("wire", "note_*")),
    )
    allowed(decide(rule, call("pay", amount=5)))
    refused(decide(rule, call("pay", amount=50)))
    asked(decide(rule, call("wire", amount=100)))
    allowed(decide(rule, call("wire", amount=99)))
    refused(decide(rule, call("wire", amount="nan")))
    refused(decide(rule, call("wire")))
    allowed(decide(rule, call("note_add")))
    assert "no rule is about other" in refused(decide(rule, call("other")))
    assert "mistaken" in refused(decide(rule, call("Pay", amount=5)))
    asked(decide(first_of(Bounds(tool="x", argument="a", max=1), otherwise="ask"), call()))
    allowed(decide(first_of(Bounds(tool="x", argument="a", max=1), otherwise="allow"), call()))


def test_a_rule_that_does_not_apply_decides_nothing():
    """GATE: conditions on effect, tag and amount, and those of the inner rule, all count for first_of."""
    deny = Says(Refuse("last"))
    grant = EffectRule("reversible", "allow")
    for first in (grant, when(grant), when(grant, tag="eu"), when(Says(Allow()), effect="reversible")):
        assert refused(decide(first_of(first, deny), call(effect="compensable"), Facts())) == "last"
    tagged = when(EffectRule("compensable", "allow"), tag="eu")
    allowed(decide(first_of(tagged, deny), call(), Facts(tags=("eu",))))
    assert refused(decide(first_of(tagged, deny), call(), Facts(tags=("us",)))) == "last"
    assert refused(decide(first_of(all_of(grant, tagged), deny), call(), Facts())) == "last"


def test_when_asks_only_about_calls_that_meet_all_conditions():
    """GATE: tool, effect, tag and amount; amounts split into many count as their sum."""
    rule = when(
        Says(Refuse("inner")), tool="pay", effect="compensable", tag="eu", argument="items.*.price", at_least=100
    )
    eu = Facts(tags=("eu",))
    assert refused(decide(rule, call(items=[{"price": 60}, {"price": 50}]), eu)) == "inner"
    assert refused(decide(rule, call(items=[{"price": "1e9"}]), eu)) == "inner"
    assert "negative" in refused(decide(rule, call(items=[{"price": 200}, {"price": -150}]), eu))
    allowed(decide(rule, call(items=[{"price": 60}]), eu))
    allowed(decide(rule, call(items=[{"price": 600}]), Facts()))
    allowed(decide(rule, call("note", items=[]), eu))
    allowed(decide(rule, call(effect="reversible"), eu))


def test_compositions_nest():
    """GATE: compositions are policies, so they compose."""
    rule = all_of(
        AllowTools("pay"), first_of(all_of(DenyTools("wire"), Budget(name="b", limit=5)), SaysLater(Refuse("x")))
    )
    assert len(allowed(settle(decide(rule, call())))) == 1
    refused(settle(decide(rule, call("wire"))))


@pytest.mark.parametrize(
    "make",
    [
        all_of,
        first_of,
        lambda: all_of(AllowTools),
        lambda: first_of("allow"),
        lambda: first_of(AllowTools("x"), otherwise="maybe"),
        lambda: when(5),
        lambda: when(AllowTools("x"), argument="amount"),
        lambda: when(AllowTools("x"), at_least=5),
        lambda: when(AllowTools("x"), unit="EUR"),
        lambda: when(AllowTools("x"), effect="none"),
        lambda: when(AllowTools("x"), tag=5),
        lambda: EffectRule("read_only"),
        lambda: EffectRule("x"),
        lambda: EffectRule("compensable", "x"),
        lambda: Quorum(tool="x", needed=0),
        lambda: Quorum(tool="x", expires_s=0),
    ],
    ids=range(16),
)
def test_what_cannot_work_is_refused_where_it_is_written(make):
    """GATE: compositions and simple rules are checked when they are made."""
    with pytest.raises(DeclarationError):
        make()
