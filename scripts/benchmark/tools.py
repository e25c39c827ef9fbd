"""The tools that the rows call: they return at once, so that what is measured is the engine."""

# ruff: noqa: ARG001 - the arguments are there to be recorded.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga import AgentKit, compensator

if TYPE_CHECKING:
    from collections.abc import Callable


@compensator("bench.refund", version=1, idempotent=True)
def refund(charge_id: str, idempotency_key: str) -> None:
    """Give a charge back."""


def charge(customer: str, amount: int) -> dict[str, Any]:
    """Charge a customer."""
    return {"id": "ch_1", "ok": True}


async def charge_async(customer: str, amount: int) -> dict[str, Any]:
    """Charge a customer."""
    return {"id": "ch_1", "ok": True}


def look_up(customer: str) -> dict[str, Any]:
    """Look a customer up."""
    return {"name": "Ada"}


class Shop:
    """A kit and its tools."""

    def __init__(self, log: str) -> None:
        self.kit = AgentKit(log)
        binding = refund.bind(charge_id="result.id")
        wrap = self.kit.wrap
        self.charge: Callable[..., Any] = wrap(charge, effect="compensable", compensate=binding)
        self.charge_async: Callable[..., Any] = wrap(charge_async, effect="compensable", compensate=binding)
        self.look_up: Callable[..., Any] = wrap(look_up, effect="read_only")
