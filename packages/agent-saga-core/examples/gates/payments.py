"""Transfers: policies from TOML, 3 of 3 verifiers before a large one, a daily budget per sender."""

from pathlib import Path
from typing import Any

from agent_saga import AgentKit, GateRefused, compensator
from agent_saga.gates import policies_from_toml
from agent_saga.model.call import ProposedCall

bank: list[tuple[str, str]] = []


def is_known(call: ProposedCall) -> bool:
    return call.kwargs["order"]["recipient"] in {"alice", "bob"}


async def is_expected(call: ProposedCall) -> bool:
    return call.kwargs["order"].get("invoice") is not None


def is_sane(call: ProposedCall) -> bool:
    return call.kwargs["order"]["sender"] != call.kwargs["order"]["recipient"]


@compensator("bank.reverse", idempotent=True)
def reverse(recipient: str, amount: str) -> None:
    bank.remove((recipient, amount))


def transfer(order: dict[str, Any]) -> dict[str, str]:
    entry = (order["recipient"], str(order["total"]["amount"]))
    bank.append(entry)
    return {"recipient": entry[0], "amount": entry[1]}


def order_of(amount: object, recipient: str = "alice", **more: object) -> dict[str, Any]:
    return {"sender": "me", "recipient": recipient, "total": {"amount": amount, "currency": "EUR"}, **more}


def main() -> None:
    policies = policies_from_toml(Path(__file__).with_name("payments.toml"))
    kit = AgentKit("memory:", policies=policies)
    pay = kit.wrap(
        transfer, effect="compensable", compensate=reverse.bind(recipient="result.recipient", amount="result.amount")
    )

    def attempt(order: dict[str, Any]) -> None:
        try:
            print(f"paid {pay(order)['amount']}")
        except GateRefused as error:
            print(f"refused: {str(error).rpartition('effect: ')[2]}")

    with kit.transaction("bills"):
        attempt(order_of("400.50"))
        attempt(order_of("1e9"))
        attempt(order_of(-5))
        attempt(order_of("4,000"))
        attempt(order_of(10, "Mal1ory"))
        attempt(order_of(4000))
        attempt(order_of(4000, invoice="2026-17"))
        attempt(order_of(4000, invoice="2026-18"))
    print(f"the bank has {bank}")
    kit.close()
