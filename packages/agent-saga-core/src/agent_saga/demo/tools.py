"""The demo's tools, compensators and probe; another process loads them with `--import agent_saga.demo.tools`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_saga import AgentKit, Landed, NotLanded, compensator
from agent_saga.demo.world import DomainTaken, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WORLD: Final = "AGENT_SAGA_DEMO_WORLD"
"""The environment variable that tells another process where the world is."""

_connected: list[World] = []


def connect(world: World) -> None:
    """Make `world` the one that the tools of this process act on."""
    _connected[:] = [world]


def the_world() -> World:
    """Return the world of `connect`, else the one that the environment names."""
    return _connected[0] if _connected else World(Path(os.environ[WORLD]))


def charge(customer: str, cents: int, idempotency_key: str | None = None) -> dict[str, str]:
    """Charge a customer's card."""
    return {"id": the_world().charge(customer, cents, idempotency_key)}


def find_charge(key: str, kwargs: Mapping[str, object]) -> Landed | NotLanded:  # noqa: ARG001 - all probes get both.
    """Ask the bank whether a charge was made under this key."""
    charge_id = the_world().charge_of(key)
    return NotLanded() if charge_id is None else Landed({"id": charge_id})


def is_refunded(charge_id: str) -> bool:
    """Read back whether a charge was given back."""
    return the_world().is_refunded(charge_id)


@compensator("demo.refund", idempotent=True, verify=is_refunded)
def refund(charge_id: str, idempotency_key: str) -> None:
    """Give a charge back."""
    the_world().refund(charge_id, idempotency_key)


def launch_server(customer: str, size: str, idempotency_key: str | None = None) -> dict[str, str]:
    """Start a server."""
    return {"id": the_world().launch_server(customer, size, idempotency_key)}


def is_stopped(server_id: str) -> bool:
    """Read back whether a server was stopped."""
    return the_world().is_stopped(server_id)


@compensator("demo.stop_server", idempotent=True, verify=is_stopped)
def stop_server(server_id: str) -> None:
    """Stop a server."""
    the_world().stop_server(server_id)


def register_domain(customer: str, name: str) -> dict[str, str]:
    """Register a name; it fails here, because the name is taken."""
    return {"name": the_world().register_domain(customer, name)}


def is_free(name: str) -> bool:
    """Read back whether a name belongs to nobody."""
    return the_world().is_free(name)


@compensator("demo.release_domain", idempotent=True, verify=is_free)
def release_domain(name: str) -> None:
    """Give a name back."""
    the_world().release_domain(name)


# -- what the agent is given ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """What the agent may call."""

    charge: Callable[..., dict[str, str]]
    launch_server: Callable[..., dict[str, str]]
    register_domain: Callable[..., dict[str, str]]


BARE: Final = Toolbox(charge=charge, launch_server=launch_server, register_domain=register_domain)
"""The functions as they are."""


def wrapped(kit: AgentKit) -> Toolbox:
    """Return the same functions as tools of `kit`."""
    return Toolbox(
        charge=kit.wrap(
            charge,
            effect="compensable",
            compensate=refund.bind(charge_id="result.id"),
            probe=find_charge,
        ),
        launch_server=kit.wrap(
            launch_server,
            effect="compensable",
            compensate=stop_server.bind(server_id="result.id"),
        ),
        register_domain=kit.wrap(
            register_domain,
            effect="reversible",
            compensate=release_domain.bind(name="result.name"),
            no_effect_on=[DomainTaken],
        ),
    )


wrapped(AgentKit(log="memory:"))  # So that a process that only recovers has the probe too; no log is opened.
