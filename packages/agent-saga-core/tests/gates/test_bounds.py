"""Bounds with units: devices, batteries, doses."""

from decimal import Decimal

import pytest
from gate_cases import Facts, allowed, asked, call, refused
from hypothesis import given
from hypothesis import strategies as st

from agent_saga.errors import DeclarationError
from agent_saga.gates import Bounds
from agent_saga.model.effects import Ask

DOSE = Bounds(tool="give", argument="dose", min="0.1", max=50, unit="mg", allowed_units=("ug", "g", "mcg"))


@pytest.mark.parametrize(
    "dose",
    ["0.1 mg", "50mg", "100 ug", "100 \u00b5g", "100 mcg", "0.05 g", "5", 5, 0.1, Decimal("0.10"), "5e1 mg"],
    ids=ascii,
)
def test_doses_within_bounds_pass_in_every_unit(dose):
    """GATE: 0.1-50 mg, stated in mg, ug or g, is converted exactly."""
    rule = Bounds(
        tool="give", argument="dose", min="0.1", max=50, unit="mg", allowed_units=("ug", "g", "mcg", "\u00b5g")
    )
    allowed(rule.decide(call("give", dose=dose), Facts()))


@pytest.mark.parametrize(
    "dose",
    ["0.0999999 mg", "51 mg", "50.0000001mg", "99 ug", "0.051 g", "5 g", "1e9 ug", 51, "0", "0.05"],
    ids=ascii,
)
def test_doses_out_of_bounds_are_refused(dose):
    """GATE: a dose out of bounds is refused in every unit."""
    assert "outside 0.1 to 50 mg" in refused(DOSE.decide(call("give", dose=dose), Facts()))


@pytest.mark.parametrize(
    "dose",
    [
        "5 Mg",
        "5 MG",
        "5 kg",
        "5 ml",
        "5 mg/kg",
        "5 m g",
        "mg",
        "5 mg ",
        "5  mg",
        "-5 mg",
        "nan mg",
        "5\u2009mg",
        "5 IU",
        "5 %",
    ],
)
def test_a_unit_that_is_not_allowed_is_refused(dose):
    """GATE: a unit is compared letter by letter; another one, or none that can be read, is refused."""
    refused(DOSE.decide(call("give", dose=dose), Facts()))


def test_the_unit_may_be_an_argument_of_its_own():
    """GATE: with unit_argument a dose is never read in a unit that the call did not state."""
    rule = Bounds(tool="give", argument="dose", max=50, unit="mg", allowed_units=("g",), unit_argument="unit")
    allowed(rule.decide(call("give", dose=50, unit="mg"), Facts()))
    assert "outside" in refused(rule.decide(call("give", dose=1, unit="g"), Facts()))
    for kwargs in ({"dose": 5}, {"dose": 5, "unit": None}, {"dose": 5, "unit": "ug"}, {"dose": "5 mg", "unit": "mg"}):
        refused(rule.decide(call("give", **kwargs), Facts()))


@pytest.mark.parametrize(
    ("rule", "inside", "outside"),
    [
        (
            Bounds(tool="*", argument="x", min=-90, max=90, unit="deg", allowed_units=("turn",)),
            ["-90", "0.25 turn"],
            ["90.1", "0.3 turn"],
        ),
        (
            Bounds(tool="*", argument="x", min="3.0", max="4.2", unit="V", allowed_units=("mV",)),
            [3.7, "3700 mV"],
            [4.3, "4201 mV", 37],
        ),
        (Bounds(tool="*", argument="x", max=1, unit="h", allowed_units=("min", "s")), ["60 min", "3600 s"], ["61 min"]),
        (Bounds(tool="*", argument="x", max=100, unit="EUR"), ["100", "99.99 EUR"], ["100.01 EUR", "5 USD"]),
        (Bounds(tool="*", argument="x", max=80, unit="%"), ["80 %", "80%"], ["81 %"]),
    ],
)
def test_units_of_devices_money_and_time(rule, inside, outside):
    """GATE: angles, voltages, times, currencies and per cent are bound in their own units."""
    for value in inside:
        allowed(rule.decide(call(x=value), Facts()))
    for value in outside:
        refused(rule.decide(call(x=value), Facts()))


@given(
    st.decimals(min_value=0, max_value=10**6, places=6), st.sampled_from([("ug", -3), ("mg", 0), ("g", 3), ("kg", 6)])
)
def test_conversion_never_changes_the_answer(dose, unit):
    """GATE: an amount and its conversion get the same answer."""
    rule = Bounds(tool="give", argument="dose", min="0.1", max=50, unit="mg", allowed_units=("ug", "g", "kg"))
    name, power = unit
    in_mg = dose.scaleb(power)  # At most 18 digits: exact in any context.
    decision = rule.decide(call("give", dose=f"{dose:f} {name}"), Facts())
    assert isinstance(decision, type(rule.decide(call("give", dose=in_mg), Facts())))


def test_an_amount_out_of_bounds_can_be_asked_about():
    """GATE: then= may ask, with a quorum; the template keeps its options and says why."""
    rule = Bounds(
        tool="pay", argument="amount", max=100, then=Ask("finance decides", quorum=2, signed=True, suspend=True)
    )
    question = asked(rule.decide(call(amount="1e9"), Facts()))
    assert (question.quorum, question.signed, question.suspend) == (2, True, True)
    assert question.reason.startswith("finance decides: pay: 'amount' is '1e9'")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min": 5, "max": 4},
        {"max": "nan"},
        {"max": True},
        {"max": "1,000"},
        {"max": 5, "unit": "mg", "allowed_units": ("V",)},
        {"max": 5, "allowed_units": ("mg",)},
        {"max": 5, "unit_argument": "unit"},
        {"max": 5, "then": "maybe"},
        {"max": 5, "then": Ask("", quorum=0)},
        {"max": 5, "tool": ()},
        {"max": 5, "tool": ""},
    ],
)
def test_bounds_that_cannot_work_are_refused_where_they_are_written(options):
    """GATE: a rule is checked when it is made, not at the first call."""
    with pytest.raises(DeclarationError):
        Bounds(**{"tool": "pay", "argument": "amount", **options})
