"""The demo's agent: three tool calls, the third of which fails. It does not know whether its tools are in a saga."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_saga.demo.tools import Toolbox


def open_shop(toolbox: Toolbox, customer: str) -> None:
    """Do what the agent was asked for.

    Raises:
        DomainTaken: at the third step, in the demo's world.
    """
    toolbox.charge(customer=customer, cents=4200)
    toolbox.launch_server(customer=customer, size="small")
    toolbox.register_domain(customer=customer, name="shop.example")
