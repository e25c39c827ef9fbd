"""`agent-saga halt`, `drain`, `quarantine`, `lift` and `status`: the switch outside of the agent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from agent_saga.cli.session import FINDING, FINE, Session, log_command
from agent_saga.cli.terminal import moment, visible
from agent_saga.errors import DeclarationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga.store.port import LogStore

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TTL: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.ASCII)


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Return a time in seconds, given as seconds or as a number with s, m, h or d."""
    if value is None:
        return None
    found = _TTL.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no time: write seconds, or a number with s, m, h or d, as 30m")
    return float(found[1]) * _UNITS[found[2]]


def _options(fn: Callable[..., Any]) -> Callable[..., Any]:
    command = log_command()(fn)
    command = click.option(
        "--ttl", callback=_seconds, metavar="TIME", help="It ends by itself after this: seconds, or 30m, 12h, 7d."
    )(command)
    command = click.option("--reason", default="", metavar="TEXT", help="Shown to whoever is stopped; recorded.")(
        command
    )
    return click.option("--by", required=True, metavar="NAME", help="Who you are; recorded.")(command)


@click.command(short_help="Stop calls before their effects; their sagas can be resumed.")
@click.argument("scope")
@_options
def halt(session: Session, scope: str, by: str, reason: str, ttl: float | None) -> int:
    """Stop every further call that SCOPE covers, before its effect: '*', tool:NAME, tool:PREFIX.*, saga:ID, tag:NAME.

    It is read before each intent, in every process of the log. A stopped saga is suspended; after `agent-saga lift` it
    is resumed by its key or id. Compensations go on.
    """
    return _act(session, "halt", scope, by, reason, ttl)


@click.command(short_help="Let no new saga open; those that are open go on.")
@click.argument("scope", default="*")
@_options
def drain(session: Session, scope: str, by: str, reason: str, ttl: float | None) -> int:
    """Let no new saga open that SCOPE covers: '*' (the default) or tag:NAME. What is open, or suspended, may end."""
    return _act(session, "drain", scope, by, reason, ttl)


@click.command(short_help="Freeze one saga as it is: no call, no commit, no rollback.")
@click.argument("saga")
@_options
def quarantine(session: Session, saga: str, by: str, reason: str, ttl: float | None) -> int:
    """Freeze SAGA (its id, the beginning of the id, or its key) as it is; recovery leaves it alone.

    No call of it runs, and it is neither committed nor rolled back, until `agent-saga lift saga:ID`.
    """
    return _act(session, "quarantine", f"saga:{saga.removeprefix('saga:')}", by, reason, ttl)


def _act(  # noqa: PLR0917 - private, and called with the options at hand.
    session: Session, action: str, scope: str, by: str, reason: str, ttl: float | None
) -> int:
    from agent_saga.runtime.operators import act

    with session.writing() as writer:
        full = _in_full(writer.store, scope)
        saga_id = act(writer, action, full, by=by, reason=reason, ttl_s=ttl)
    lift_it = session.command_line("lift", full, "--by", by)
    if session.out.as_json:
        fields = {"log": session.place, "action": action, "scope": full, "saga": saga_id, "next": lift_it}
        session.out.document("stop/1", {**fields, "exit": FINE})
        return FINE
    verb = {"halt": "halted", "drain": "drained", "quarantine": "quarantined"}[action]
    session.out.line(session.out.paint(f"{verb}: {visible(full, length_max=None)}", "yellow"))
    session.out.line(f"  to end it: {lift_it}")
    return FINE


def _in_full(store: LogStore, scope: str) -> str:
    """Return a scope with the whole id of its saga."""
    from agent_saga.cli.find import find_saga

    kind, colon, name = scope.partition(":")
    return f"saga:{find_saga(store, name)}" if kind == "saga" and colon and name else scope


@click.command(short_help="End the halts, drains and quarantines of a scope.")
@click.argument("scope")
@click.option("--by", required=True, metavar="NAME", help="Who you are; recorded.")
@click.option("--reason", default="", metavar="TEXT", help="Recorded.")
@log_command()
def lift(session: Session, scope: str, by: str, reason: str) -> int:
    """End every halt, drain and quarantine of exactly this SCOPE. Stopped sagas are not resumed by this."""
    from agent_saga.runtime import operators

    with session.writing() as writer:
        full = scope if any(fact.name == scope for fact in writer.store.halts()) else _in_full(writer.store, scope)
        lifted = operators.lift(writer, full, by=by, reason=reason)
    if not lifted:
        raise UsageError(f"nothing stops {visible(full, length_max=None)!r}; see: agent-saga status")
    if session.out.as_json:
        session.out.document("lift/1", {"log": session.place, "scope": full, "lifted": lifted, "exit": FINE})
    else:
        session.out.line(f"lifted: {visible(full, length_max=None)} ({lifted})")
    return FINE


@click.command(short_help="Tell whether agents may go on, and what stops them.")
@log_command()
def status(session: Session) -> int:
    """Tell whether agents may go on. Exit code 1: something stops them, needs a human, or cannot be read.

    Shows what is halted, drained and quarantined, what each budget has spent, and which saga holds which resource. A
    budget of [tool.agent-saga] policies in ./pyproject.toml of which nothing is left stops agents, too.
    """
    from agent_saga.runtime.health import status_of_log

    blockers: list[str] = []
    policies = _policies(blockers)
    with session.reading() as store:
        found = status_of_log(store, policies, blockers=blockers)
        told = {"stops": _stops(store), "resources": _held(store), "spent": _spent(store)}
    code = FINE if found.ready else FINDING
    if session.out.as_json:
        session.out.document("status/1", {"log": session.place, **found.to_dict(), **told, "exit": code})
        return code
    out = session.out
    out.line(out.paint("ready", "green") if found.ready else out.paint("not ready", "red"))
    for line in found.blockers:
        out.line(f"  blocked: {visible(line, length_max=None)}")
    for line in found.warnings:
        out.line(f"  warning: {visible(line, length_max=None)}")
    for line in _details(told):
        out.line(line)
    return code


def _policies(blockers: list[str]) -> tuple[Any, ...]:
    """Return the policies of ./pyproject.toml; those that cannot be read are a blocker."""
    from agent_saga.cli.imports import load_handlers, settings
    from agent_saga.gates import policies_from_toml

    try:
        stated = settings()
        if "policies" not in stated:
            return ()
        load_handlers(())  # Policies may name functions of the operator's modules.
        return policies_from_toml(stated)
    except (UsageError, DeclarationError) as error:
        blockers.append(f"the policies of pyproject.toml cannot be read: {error}")
        return ()


def _details(told: dict[str, Any]) -> Iterator[str]:
    for stop in told["stops"]:
        until = f" until {moment(stop['until'])}" if stop["until"] else ""
        over = ", over" if stop["over"] else ""
        what = f"{stop['action']} {visible(stop['scope'], length_max=None)}"
        yield f"{what}: by {visible(stop['by'])}, {moment(stop['at'])}{until}{over}"
    for name, saga_id in told["resources"].items():
        yield f"resource {visible(name)} is held by saga {saga_id}"
    for name, amount in told["spent"].items():
        yield f"budget {visible(name)} has {amount} spent or reserved"


def _stops(store: LogStore) -> list[dict[str, Any]]:
    from agent_saga.runtime.clock import clock
    from agent_saga.store.reader import load

    now_ns, found = clock().time_ns(), []
    for fact in store.halts():
        loaded = load(store, fact.saga_id)
        gate = None if loaded is None else loaded.view.gate
        action = None if gate is None else gate.action
        by, at = (action.by, action.at) if action is not None else ("?", None)
        when = {"by": by, "at": at, "until": fact.at or None, "over": 0 < fact.at <= now_ns}
        found.append({"action": fact.kind, "scope": fact.name, "reason": fact.value, "saga": fact.saga_id, **when})
    return found


def _held(store: LogStore) -> dict[str, str]:
    return {fact.name: fact.saga_id for fact in store.facts("resource")}


def _spent(store: LogStore) -> dict[str, str]:
    from decimal import Decimal

    from agent_saga.machine.gate import amount_in
    from agent_saga.model.requirements import total

    spent: dict[str, Decimal | None] = {}
    for fact in store.facts("spend"):
        known = spent.get(fact.name, Decimal(0))
        good = known is not None and amount_in(fact.value)
        spent[fact.name] = total(known, Decimal(fact.value)) if good and known is not None else None
    return {name: "an unreadable amount" if amount is None else f"{amount:f}" for name, amount in spent.items()}
