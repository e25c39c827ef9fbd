"""One saga on the installed packages; check_wheels.py runs it with `python -I` in an empty folder."""

from contextlib import suppress
from importlib.metadata import entry_points, packages_distributions

from agent_saga import AgentKit, compensator

assert packages_distributions()["agent_saga"] == ["agent-saga-core"]
for adapter in entry_points(group="agent_saga.adapters"):
    adapter.load()

charges: set[str] = set()


@compensator("smoke.refund", version=1, idempotent=True)
def refund(charge_id: str) -> None:
    charges.discard(charge_id)


def charge(customer: str) -> dict[str, str]:
    charges.add(f"charge of {customer}")
    return {"id": f"charge of {customer}"}


kit = AgentKit(log="smoke.db")
wrapped = kit.wrap(charge, effect="compensable", compensate=refund.bind(charge_id="result.id"))
with suppress(LookupError), kit.transaction("smoke") as saga:
    wrapped(customer="cus_1")
    assert charges == {"charge of cus_1"}
    raise LookupError

assert charges == set()
assert saga.report is not None
assert saga.report.clean
