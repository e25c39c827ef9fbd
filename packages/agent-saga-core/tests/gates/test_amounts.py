"""Amounts: read exactly, or not at all."""

import math
from decimal import Decimal, localcontext

import pytest
from gate_cases import UNREADABLE, Facts, allowed, call, refused
from hypothesis import example, given
from hypothesis import strategies as st

from agent_saga.errors import DeclarationError
from agent_saga.gates import Bounds, Budget, when
from agent_saga.gates.rules import Quorum
from agent_saga.gates.values import Unreadable, amount_of, at_path, check_path, total_of


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize(
    "rule",
    [
        Bounds(tool="pay", argument="amount", max=10**9),
        Bounds(tool="pay", argument="amount", min=-(10**9), max=10**9),
        Bounds(tool="pay", argument="amount", max=10**9, then="ask"),
        Bounds(tool="pay", argument="amount", max=10**9, then="allow"),
        Budget(name="b", limit=10**9, amount="amount"),
        when(Quorum(tool="pay"), argument="amount", at_least=10),
    ],
    ids=["bounds", "bounds with negatives", "asks", "allows", "budget", "when"],
)
def test_what_is_no_amount_is_refused_with_a_reason(rule, value):
    """GATE: an amount that cannot be read is refused, whatever the rule would answer."""
    assert "amount" in refused(rule.decide(call(amount=value), Facts()))


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (5, "5"),
        (0.1, "0.1"),
        (-0.0, "0"),
        ("0.10", "0.10"),
        ("1e9", "1000000000"),
        ("1E+2", "100"),
        ("+5", "5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("-5", "-5"),
        (Decimal("42.10"), "42.10"),
        (10**30, "1" + "0" * 30),
    ],
)
def test_what_is_an_amount_is_read_exactly(value, exact):
    """GATE: int, Decimal, finite float and numeric text are the amount that they state."""
    assert amount_of(value) == Decimal(exact)


@pytest.mark.parametrize(
    "value", ["1e9", Decimal("1e9"), 10**9, 1e9, "1000000000", "100.000000001", 100.00000000000001], ids=repr
)
def test_no_spelling_of_a_large_amount_passes_a_bound(value):
    """GATE: text, Decimal, float and exponent are compared as what they are worth."""
    assert "outside 0 to 100" in refused(
        Bounds(tool="pay", argument="amount", max=100).decide(call(amount=value), Facts())
    )


@pytest.mark.parametrize("value", [-5, "-5", Decimal(-5), -0.01, "-1e-9"], ids=repr)
def test_a_negative_amount_passes_nothing_that_does_not_allow_it(value):
    """GATE: -5 is refused by bounds without a negative minimum and by every budget."""
    assert "negative" in refused(Bounds(tool="pay", argument="amount", max=100).decide(call(amount=value), Facts()))
    assert "negative" in refused(Budget(name="b", limit=9, amount="amount").decide(call(amount=value), Facts()))
    allowed(Bounds(tool="pay", argument="amount", min=-5, max=100).decide(call(amount=value), Facts()))


def test_a_missing_amount_is_refused():
    """GATE: a call without the argument is not a call without an amount."""
    rule = Bounds(tool="pay", argument="order.total.amount", max=100)
    for kwargs in ({}, {"order": {}}, {"order": None}, {"order": {"total": 5}}, {"order": '{"total": {"amount": 5}}'}):
        assert "not there" in refused(rule.decide(call(**kwargs), Facts())) or "no argument" in refused(
            rule.decide(call(**kwargs), Facts())
        )


NESTED = {"order": {"items": [{"price": 60}, {"price": "50"}], "total": {"amount": "1e9"}}, "notes": [{"amount": 7}]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("order.items.*.price", [60, "50"]),
        ("kwargs.order.items.1.price", ["50"]),
        ("args.order.total.amount", ["1e9"]),
        ("**.amount", ["1e9", 7]),
        ("order.items.*.*", [60, "50"]),
        ("notes.*.**.amount", [7]),
    ],
)
def test_paths_reach_nested_values_and_lists(path, found):
    """GATE: a path with wildcards leads to every value, and to no fewer."""
    assert sorted(map(str, at_path(NESTED, check_path(path)))) == sorted(map(str, found))


def test_one_bad_amount_among_many_is_enough():
    """GATE: each amount that a wildcard finds is bound, and with total their sum too."""
    each = Bounds(tool="pay", argument="order.items.*.price", max=70)
    total = Bounds(tool="pay", argument="order.items.*.price", max=70, total=True)
    allowed(each.decide(call(**NESTED), Facts()))
    assert "110" in refused(total.decide(call(**NESTED), Facts()))
    refused(each.decide(call(order={"items": [{"price": 1}, {"price": float("nan")}]}), Facts()))
    refused(each.decide(call(order={"items": [{"price": 1}, {"cost": 1}]}), Facts()))
    refused(each.decide(call(order={"items": []}), Facts()))


def test_a_key_that_spells_a_wildcard_hides_nothing():
    """GATE: {"*": 1} beside a large amount does not answer for it."""
    rule = Bounds(tool="pay", argument="items.*", max=10)
    refused(rule.decide(call(items={"*": 1, "real": "1e9"}), Facts()))
    refused(Bounds(tool="pay", argument="**.a", max=10).decide(call(**{"**": {"a": 1}, "x": {"a": 99}}), Facts()))


def test_a_walk_ends():
    """GATE: cyclic and very wide arguments are refused, not walked for ever."""
    cycle = []
    cycle.append(cycle)
    wide = [{"n": n} for n in range(20_000)]
    for argument in (cycle, wide):
        refused(Bounds(tool="pay", argument="**.amount", max=1).decide(call(items=argument), Facts()))


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20))
def test_a_decimal_and_its_text_are_the_same_amount(value):
    """GATE: the amount of a Decimal, of its text and of itself are equal, in any decimal context."""
    try:
        amount = amount_of(value)
    except Unreadable:
        assert value
        assert abs(value.adjusted()) > 60
        return
    with localcontext() as context:
        context.prec = 3
        assert amount_of(str(value)) == amount == value


@given(st.integers(-(10**50), 10**50), st.integers(-(10**50), 10**50), st.integers(0, 20))
@example(90_949_470_177_292_823_791_503_906_245_000_000_001, 90_949_470_177_292_823_791_503_906_245_000_000_001, 0)
def test_bounds_agree_with_arithmetic(value, bound, digits):
    """GATE: a bound lets exactly those amounts pass that are within it, in every spelling."""
    with localcontext() as context:
        context.prec = 200  # scaleb rounds.
        amount = Decimal(value).scaleb(-digits)
    low, high = min(bound, 0), max(bound, 0)
    inside = low <= amount <= high
    rule = Bounds(tool="pay", argument="amount", min=low, max=high)
    spellings = [amount, format(amount, "f"), str(amount)]
    if not digits:
        spellings.append(value)
    for spelled in spellings:
        decision = rule.decide(call(amount=spelled), Facts())
        if inside:
            allowed(decision)
        else:
            refused(decision)


@given(st.floats())
def test_floats_are_what_they_print(value):
    """GATE: a finite float is its shortest repr, another one is refused."""
    try:
        amount = amount_of(value)
    except Unreadable:
        assert math.isnan(value) or abs(value) == float("inf") or abs(Decimal(repr(value)).adjusted()) > 60
    else:
        assert float(amount) == value


@given(st.text(max_size=12))
def test_no_text_is_read_as_what_it_does_not_plainly_say(text):
    """GATE: a text is an amount only if it is made of ASCII digits, a sign, a dot and an exponent."""
    try:
        amount_of(text)
    except Unreadable:
        return
    assert set(text) <= set("0123456789+-.eE")


@given(st.lists(st.decimals(min_value=0, max_value=10**12, places=4), min_size=1, max_size=30))
def test_sums_are_exact(amounts):
    """GATE: a sum loses no digit, whatever the context of the thread says."""
    with localcontext() as context:
        context.prec = 2
        total = total_of(amounts)
    with localcontext() as context:
        context.prec = 200
        assert total == sum(amounts)


def test_a_sum_that_cannot_be_exact_is_refused():
    """GATE: amounts whose sum would be rounded are not added."""
    with pytest.raises(Unreadable):
        total_of([Decimal("1e400"), Decimal("1e-400")])


@pytest.mark.parametrize("path", ["", ".", "a..b", "kwargs", "a.**", None, 5])
def test_a_path_that_is_none_is_refused_where_it_is_written(path):
    """GATE: a path is checked when the rule is made."""
    with pytest.raises(DeclarationError, match="path"):
        Bounds(tool="pay", argument=path, max=1)
