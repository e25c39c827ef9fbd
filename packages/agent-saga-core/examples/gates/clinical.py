"""Doses: 0.1 to 50 mg in any unit, two signatures for opioids, and nothing that cannot be stopped for long enough."""

from agent_saga import AgentKit, GateRefused, compensator
from agent_saga.gates import (
    AllowValues,
    Bounds,
    CompensationWindow,
    DenyValues,
    Quorum,
    UIConfirmationArtifact,
    when,
)
from agent_saga.model.call import ProposedCall
from agent_saga.model.effects import Ask

chart: list[str] = []


@compensator("pump.stop", idempotent=True, valid_for_s=900)
def stop_pump(drug: str) -> None:
    chart.append(f"stopped {drug}")


def give(drug: str, dose: object, route: str = "oral") -> None:
    chart.append(f"gave {dose} of {drug}, {route}")


UNITS = ("ug", "mcg", "g")
POLICIES = [
    AllowValues(tool="give", argument="route", values=("oral", "iv")),
    Bounds(tool="give", argument="dose", min="0.1", max=50, unit="mg", allowed_units=UNITS),
    CompensationWindow(tool="give", at_least_s=600),
    DenyValues(
        tool="give",
        argument="drug",
        values=("morphine", "fentanyl*"),
        then=Ask("an opioid needs two signatures", quorum=2, signed=True),
    ),
    when(
        Quorum(tool="give", needed=1, reason="a large dose"),
        argument="dose",
        at_least=20,
        unit="mg",
        allowed_units=UNITS,
    ),
]


def confirm(call: ProposedCall) -> bool:
    """Show the card, and have somebody decide; here nobody is in a hurry, and large doses of iron are fine."""
    card = UIConfirmationArtifact.of(call, "a large dose")
    print(f"  {card.sentence}")
    for row in card.arguments:
        print(f"    {row.path}: {row.value}")
    print(f"    {card.compensation.sentence}")
    return call.kwargs["drug"] == "iron"


def main() -> None:
    kit = AgentKit("memory:", policies=POLICIES, approver=confirm)
    administer = kit.wrap(give, effect="compensable", compensate=stop_pump.bind(drug="kwargs.drug"))

    def attempt(drug: str, dose: object, route: str = "oral") -> None:
        try:
            administer(drug, dose, route)
            print(f"gave {dose} of {drug}")
        except GateRefused as error:
            print(f"refused: {str(error).rpartition('effect: ')[2]}")

    with kit.transaction("round"):
        attempt("ibuprofen", "250 ug")
        attempt("ibuprofen", "5 g")
        attempt("ibuprofen", "5 Mg")
        attempt("ibuprofen", "0.05 mg")
        attempt("ibuprofen", 5, "epidural")
        attempt("iron", "0.03 g")
        attempt("M0rphine", "2 mg")
    print(chart)
    kit.close()
