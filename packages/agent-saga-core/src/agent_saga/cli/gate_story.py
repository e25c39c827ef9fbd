"""What the gate knows of one saga: requests and words, resources, spending, and what stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.cli.terminal import VALUE_LENGTH_MAX, moment, visible
from agent_saga.machine.gate import facts_of
from agent_saga.machine.row import row_of
from agent_saga.runtime.halts import matches
from agent_saga.runtime.operators import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.machine.gate import Fact
    from agent_saga.machine.view import SagaView
    from agent_saga.store.port import LogStore


def gate_story(store: LogStore, view: SagaView) -> dict[str, Any]:
    """Return it as plain data: a part of what `agent-saga show --json` prints."""
    facts = sorted(facts_of(view, sealed=row_of(view).sealed))
    gate = view.gate
    return {
        "approvals": [] if gate is None else [as_json(known) for known in gate.approvals.values()],
        "resources": [fact.name for fact in facts if fact.kind == "resource"],
        "spent": [{"budget": f.name, "step": f.no, "amount": f.value, "at": f.at} for f in facts if f.kind == "spend"],
        "stops": [_stop(fact) for fact in store.halts() if _covers(fact, view)],
        "action": _action(view),
    }


def _covers(fact: Fact, view: SagaView) -> bool:
    """Tell whether a stop is about a saga that has not ended, or about the calls of a tool in it."""
    if view.ended:
        return False
    tags = {*view.tags, *(tag for scope in view.scopes.values() for tag in scope.tags)}
    return fact.name.startswith("tool:") or matches(fact.name, saga_id=view.id, tags=tuple(tags))


def _stop(fact: Fact) -> dict[str, Any]:
    return {"action": fact.kind, "scope": fact.name, "reason": fact.value, "until": fact.at or None}


def _action(view: SagaView) -> dict[str, Any] | None:
    """Return what an operator did, when the saga is about that."""
    action = None if view.gate is None else view.gate.action
    if view.gate is None or action is None:
        return None
    told = {"action": action.action, "scope": action.scope, "by": action.by, "reason": action.reason}
    return {**told, "until": action.expires_at, "lifted": view.gate.lifted}


def gate_lines(story: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield it for people: titles, and the lines below."""
    yield "approvals", [f"  {_approval(known)}" for known in story["approvals"]]
    yield "resources", [f"  {visible(name)}: held until the saga is sealed" for name in story["resources"]]
    yield "budgets", [f"  {_spent(one)}" for one in story["spent"]]
    yield "stopped by", [f"  {_stopped(stop)}" for stop in story["stops"]]
    yield "operator", [f"  {_acted(story['action'])}"] if story["action"] is not None else []


def _approval(known: dict[str, Any]) -> str:
    used = f", used by step {known['step']}" if known["step"] is not None else ""
    words = "".join(f", {word['decision']} by {visible(word['by'])}" for word in known["words"])
    until = f", until {moment(known['expires_at'])}" if known["state"] in {"pending", "approved"} else ""
    reason = visible(known["reason"], length_max=VALUE_LENGTH_MAX)
    return f"{known['approval']} {known['state']}{used}: {visible(known['tool'])}, {reason}{words}{until}"


def _spent(one: dict[str, Any]) -> str:
    return f"{visible(one['budget'])}: {one['amount']} by step {one['step']}, {moment(one['at'])}"


def _stopped(stop: dict[str, Any]) -> str:
    until = f", until {moment(stop['until'])}" if stop["until"] else ""
    return f"{stop['action']} {visible(stop['scope'])}: {visible(stop['reason'] or 'no reason given')}{until}"


def _acted(action: dict[str, Any]) -> str:
    over = "lifted" if action["lifted"] else "in force"
    until = f" until {moment(action['until'])}" if action["until"] and not action["lifted"] else ""
    what = f"{visible(action['action']).replace('_', ' ')} {visible(action['scope'])}"
    return f"{what} by {visible(action['by'])}: {visible(action['reason'] or 'no reason given')}, {over}{until}"
