"""What the gate knows of a saga: approvals, reservations, resources and operators' actions; and the facts they leave.

A fact is one row of the log's table of what holds *between* sagas: a resource held, a part of a budget spent, an
approval that waits or is good, a halt. The facts of a saga are a function of its fold, so `verify` recomputes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_saga.machine.states import StepState, TransitionError
from agent_saga.model import records as r
from agent_saga.model.values import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_saga.machine.view import SagaView

HALTING: Final = frozenset({"halt", "drain", "quarantine"})


class Fact(NamedTuple):
    """One row of what holds between sagas.

    Attributes:
        kind: `resource`, `spend`, `approval`, `halt`, `drain`, `quarantine` or `key`.
        name: of the resource, budget, approval, scope or principal.
        saga_id: the saga whose fold it is a part of.
        no: the step, or 0.
        value: the amount, the approval's state, the reason or the key.
        at: when it was spent, or expires; 0 where time does not matter.
    """

    kind: str
    name: str
    saga_id: str
    no: int
    value: str
    at: int


@dataclass(slots=True, kw_only=True)
class ApprovalView:
    """What is known of one request for approval.

    Attributes:
        state: `pending`, `approved`, `rejected`, `expired`, `withdrawn` or `consumed`.
        approved_by: the principals that approved, in order.
        kwargs: the arguments as recorded (texts).
        nonce: what makes the digest unguessable once the arguments are redacted.
    """

    id: str
    request: r.ApprovalRequested
    kwargs: dict[str, str]
    nonce: str = ""
    state: str = "pending"
    approved_by: list[str] = field(default_factory=list)
    decided: list[r.ApprovalDecided] = field(default_factory=list)
    step: int | None = None


@dataclass(slots=True, kw_only=True)
class Reservation:
    """A part of a budget that a step holds."""

    step: int
    budget: str
    amount: str
    at: int


@dataclass(slots=True, kw_only=True)
class GateView:
    """What the gate knows of one saga."""

    approvals: dict[str, ApprovalView] = field(default_factory=dict)
    reservations: list[Reservation] = field(default_factory=list)
    resources: dict[str, int] = field(default_factory=dict)
    action: r.OperatorAction | None = None
    lifted: bool = False


def facts_of(view: SagaView, *, sealed: bool) -> frozenset[Fact]:
    """Return the facts of a saga.

    Args:
        view: its fold, amendments included.
        sealed: it has ended without work items, so it holds no resource any more.
    """
    gate = view.gate
    if gate is None:
        return frozenset()
    facts = [
        Fact("spend", held.budget, view.id, held.step, held.amount, held.at)
        for held in gate.reservations
        if view.steps[held.step].state is not StepState.ABSENT
    ]
    if not sealed:
        facts += [Fact("resource", name, view.id, 0, "", at) for name, at in gate.resources.items()]
    facts += [
        Fact("approval", known.id, view.id, 0, known.state, known.request.expires_at)
        for known in gate.approvals.values()
        if known.state in {"pending", "approved"}
    ]
    action = gate.action
    if action is not None and not gate.lifted:
        kind = "key" if action.action.startswith("key_") else action.action
        value = action.data or "" if kind == "key" else action.reason
        facts.append(Fact(kind, action.scope, view.id, 0, value, action.expires_at or 0))
    return frozenset(_merged(facts))


def _merged(facts: list[Fact]) -> list[Fact]:
    """Add up what one step takes from one budget: facts are told apart by kind, name, saga and step."""
    spent: dict[tuple[str, int], Fact] = {}
    others = []
    for fact in facts:
        if fact.kind != "spend":
            others.append(fact)
            continue
        known = spent.get((fact.name, fact.no))
        amount = Decimal(fact.value) + (Decimal(known.value) if known else 0)
        spent[fact.name, fact.no] = fact._replace(value=str(amount))
    return others + list(spent.values())


# -- the fold ------------------------------------------------------------------------------------------------------


def gate_of(view: SagaView) -> GateView:
    """Return the gate's part of a view, made on first use."""
    if view.gate is None:
        view.gate = GateView()
    return view.gate


def requested(view: SagaView, record: r.ApprovalRequested, values: Mapping[str, str]) -> None:
    """Fold a request for approval."""
    approvals = gate_of(view).approvals
    if record.approval in approvals:
        raise TransitionError(f"approval {record.approval!r} was requested already")
    kwargs = {name.removeprefix("kwargs."): text for name, text in values.items() if name.startswith("kwargs.")}
    nonce = str(decode(values["nonce"])) if "nonce" in values else ""
    approvals[record.approval] = ApprovalView(id=record.approval, request=record, kwargs=kwargs, nonce=nonce)


def decided(view: SagaView, record: r.ApprovalDecided, _values: Mapping[str, str]) -> None:
    """Fold a word on a request: enough distinct principals approve, one rejects."""
    known = _approval(view, record.approval)
    if known.state not in {"pending", "approved"}:
        raise TransitionError(f"approval {record.approval!r} is {known.state} already")
    known.decided.append(record)
    if record.decision != "approved":
        known.state = record.decision
    elif record.by in known.approved_by:
        raise TransitionError(f"{record.by!r} has approved {record.approval!r} already")
    else:
        known.approved_by.append(record.by)
        if len(known.approved_by) >= known.request.quorum:
            known.state = "approved"


def consumed(view: SagaView, record: r.ApprovalConsumed, _values: Mapping[str, str]) -> None:
    """Fold the use of an approval."""
    known = _approval(view, record.approval)
    if record.refused is not None:
        return
    if known.state != "approved":
        raise TransitionError(f"approval {record.approval!r} is {known.state} and cannot be used")
    known.state, known.step = "consumed", record.step


def reserved(view: SagaView, record: r.Reserved, _values: Mapping[str, str]) -> None:
    """Fold a reservation."""
    try:
        Decimal(record.amount)
    except InvalidOperation:
        raise TransitionError(f"{record.amount!r} is no amount") from None
    if record.refused is None:
        held = Reservation(step=record.step, budget=record.budget, amount=record.amount, at=record.at)
        gate_of(view).reservations.append(held)


def acted(view: SagaView, record: r.OperatorAction, _values: Mapping[str, str]) -> None:
    """Fold an operator's action: the first one is what the saga is about, a later one lifts it."""
    gate = gate_of(view)
    if gate.action is None:
        gate.action = record
    elif record.action in {"lift", "key_removed"} and not gate.lifted:
        gate.lifted = True
    else:
        raise TransitionError(f"{record.action!r} cannot follow {gate.action.action!r}")


def take_resources(view: SagaView, record: r.Intent) -> None:
    """Fold the resources that an intent takes."""
    if record.resources and record.refused is None:
        held = gate_of(view).resources
        for name in record.resources:
            held.setdefault(name, record.at)


def undo_refused(view: SagaView, no: int, approvals: tuple[str, ...], resources: tuple[str, ...]) -> None:
    """Take back what an intent that the log refused brought along, in the view that had assumed that it would pass."""
    gate = gate_of(view)
    gate.reservations = [held for held in gate.reservations if held.step != no]
    for name in resources:
        gate.resources.pop(name, None)
    for approval in approvals:
        gate.approvals[approval].state, gate.approvals[approval].step = "approved", None


def _approval(view: SagaView, approval: str) -> ApprovalView:
    known = view.gate.approvals.get(approval) if view.gate is not None else None
    if known is None:
        raise TransitionError(f"approval {approval!r} was not requested")
    return known
