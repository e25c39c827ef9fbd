"""Budgets and rate limits state what the log must check; here: what they state."""

import inspect
from decimal import Decimal

import pytest
from gate_cases import Facts, allowed, call, refused
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.errors import DeclarationError
from agent_saga.gates import Budget, RateLimit


def only(decision):
    (requirement,) = allowed(decision)
    return requirement


def test_a_budget_requires_its_amount_within_its_limit(moved_clock):
    """GATE: a budget without a window counts what was ever spent."""
    required = only(Budget(name="spend", limit="100.50", amount="amount").decide(call(amount="1e1"), Facts()))
    assert (required.budget, required.amount, required.limit, required.since_ns) == (
        "budget:spend",
        Decimal(10),
        Decimal("100.50"),
        0,
    )


def test_several_amounts_are_one_sum(moved_clock):
    """GATE: a call spends the sum of all amounts at its path."""
    rule = Budget(name="spend", limit=100, amount="items.*.price")
    assert only(rule.decide(call(items=[{"price": "0.1"}, {"price": 0.2}]), Facts())).amount == Decimal("0.3")
    assert "whole budget" in refused(rule.decide(call(items=[{"price": 60}, {"price": 50}]), Facts()))


@pytest.mark.parametrize(
    ("window", "name"),
    [("minute", "2026-12-01T00:00"), ("hour", "2026-12-01T00"), ("day", "2026-12-01"), ("month", "2026-12")],
)
def test_a_fixed_window_is_part_of_the_name(moved_clock, window, name):
    """GATE: calendar windows are UTC and have budgets of their own."""
    rule = Budget(name="spend", limit=5, window=window)
    assert only(rule.decide(call(), Facts())).budget == f"budget:spend@{name}"
    moved_clock.now_s -= 1
    before = only(rule.decide(call(), Facts()))
    assert before.budget.startswith("budget:spend@2026-11")
    assert before.since_ns == 0


def test_a_rolling_window_counts_from_its_start(moved_clock):
    """GATE: a rolling window counts what was reserved since then."""
    required = only(RateLimit(name="calls", calls=5, window=90).decide(call(), Facts()))
    number = moved_clock.time_ns() // (90 * 10**9)
    assert required.budget == f"calls:calls@90s.{number}"
    assert required.also == (f"calls:calls@90s.{number - 1}", f"calls:calls@90s.{number + 1}")
    assert required.since_ns == moved_clock.time_ns() - 90 * 10**9
    assert (required.amount, required.limit) == (1, 5)


def test_each_part_has_its_own_budget(moved_clock):
    """GATE: per tool, per saga and per value of an argument."""
    assert only(Budget(name="b", limit=5, per="tool").decide(call("x"), Facts())).budget == "budget:b/x"
    assert only(Budget(name="b", limit=5, per="saga").decide(call(), Facts(id="s9"))).budget == "budget:b/s9"
    per_customer = Budget(name="b", limit=5, per="kwargs.order.customer")
    assert only(per_customer.decide(call(order={"customer": "c 1"}), Facts())).budget == "budget:b/order.customer=c%201"
    assert only(per_customer.decide(call(order={"customer": 7}), Facts())).budget == "budget:b/order.customer=7"


@pytest.mark.parametrize(
    "value", [None, "", " c1", "c1\u200b", "c1\n", True, 1.0, ["c1"], {"a": 1}, "x" * 300], ids=ascii
)
def test_whose_budget_it_is_must_be_plain(value):
    """GATE: a value that could hide another spelling of the same owner has no budget, so the call is refused."""
    refused(Budget(name="b", limit=5, per="kwargs.customer").decide(call(customer=value), Facts()))


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_no_value_names_the_budget_of_another(one, other):
    """GATE: budgets of different values have different names, whatever is in them."""
    rule = Budget(name="b/x", limit=5, per="kwargs.customer", window="day")
    names = [rule.decide(call(customer=value), Facts()) for value in (one, other)]
    if all(hasattr(decision, "requires") for decision in names) and one != other:
        first, second = (decision.requires[0].budget for decision in names)
        assert first != second
        assert first.count("/") == first.count("@") == 1


def test_a_budget_in_a_unit_takes_no_other(moved_clock):
    """GATE: euros and dollars are not added up."""
    rule = Budget(name="b", limit=100, amount="amount", unit="EUR", unit_argument="currency")
    assert only(rule.decide(call(amount=5, currency="EUR"), Facts())).amount == 5
    refused(rule.decide(call(amount=5, currency="USD"), Facts()))
    refused(rule.decide(call(amount=5), Facts()))
    mass = Budget(name="m", limit=1, amount="dose", unit="g", allowed_units=("mg",))
    required = only(mass.decide(call(dose="250 mg"), Facts()))
    assert required.amount / required.limit == Decimal("0.25")


def test_deciding_twice_changes_nothing(moved_clock):
    """GATE: a policy states, the log reserves: asking again states the same."""
    rule = Budget(name="b", limit=5, amount="amount", per="tool", window="hour")
    assert rule.decide(call(amount=1), Facts()) == rule.decide(call(amount=1), Facts())
    assert not inspect.isawaitable(rule.decide(call(amount=1), Facts()))


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"limit": -1},
        {"limit": "nan"},
        {"limit": True},
        {"window": "week"},
        {"window": 0},
        {"window": float("inf")},
        {"window": True},
        {"unit": "EUR"},
        {"per": ""},
    ],
    ids=repr,
)
def test_budgets_that_cannot_work_are_refused_where_they_are_written(options):
    """GATE: a budget is checked when it is made."""
    with pytest.raises(DeclarationError):
        Budget(**{"name": "b", "limit": 5, **options})


def test_rate_limits_count_whole_calls():
    """GATE: a rate limit is checked when it is made."""
    for calls in (1.5, -1, True, "5"):
        with pytest.raises(DeclarationError):
            RateLimit(name="r", calls=calls)
