"""A program that charges under a key ring, and what its log must never show."""

import os
import signal
import sys
from pathlib import Path

from agent_saga import AgentKit, compensator
from agent_saga.store.keyring import KeyRing

SECRET = "4000-0012-3456-7899-do-not-show"
RECEIPT = "receipt-do-not-show"
_world = Path("world")


@compensator("sealed.refund", version=1, idempotent=True)
def refund(charge_id: str, card: str) -> None:
    if (refusal := _world.with_name("refuse")).exists():
        raise ValueError(f"refused: {refusal.read_text()} of {card}")
    with _world.open("a") as file:
        file.write(f"refund {charge_id} {card}\n")


def charge(card: str, number: int) -> dict[str, str]:
    return {"id": f"ch_{number}", "receipt": f"{RECEIPT} {number}"}


def kit_for(log, ring, *, world):
    """Return a kit under a key ring, and its tool; refunds go into `world`."""
    global _world
    _world = Path(world)
    kit = AgentKit(log=log, encryption=KeyRing.from_file(ring))
    bound = refund.bind(charge_id="result.id", card="kwargs.card")
    return kit, kit.wrap(charge, effect="compensable", compensate=bound)


def main(log, ring, world):
    kit, pay = kit_for(log, ring, world=world)
    with kit.transaction("killed", key="killed"):
        pay(SECRET, 1)
        pay(SECRET, 2)
        kit.writer().sync()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
