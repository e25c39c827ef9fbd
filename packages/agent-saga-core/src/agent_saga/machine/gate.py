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
from agent_saga.model.requirements import is_amount, total
from agent_saga.model.values import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_saga.machine.view import SagaView

HALTING: Final = frozenset({"halt", "drain", "quarantine"})


class Fact(NamedTuple):
    """One row of what holds between sagas.

    Attributes:
        kind: `resource`, `spend`, `approval`, `halt`, `drain`, `quarantine`, `key` or `removed`.
        name: of the resource, budget, approval, scope, principal or saga.
        saga_id: the saga whose fold it is a part of.
        no: the step; of what was removed 1 if that is payloads only; else 0.
        value: the amount, the approval's state, the reason, the key, or the digest of what stays of a saga.
        at: when it was spent, or expires; 0 where time does not matter, or has no end; of what was removed the position
            of the record that had sealed it.
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
    """A part of a budget that an attempt of a step took; what a later attempt takes replaces it."""

    attempt: int
    budget: str
    amount: str
    at: int


@dataclass(slots=True, kw_only=True)
class GateView:
    """What the gate knows of one saga.

    Attributes:
        reservations: by step.
        resources: the attempts (step, number) that took each resource; the saga holds it while there is one.
        action: what an operator did, if the saga is about that.
        removed: what was pruned, if the saga is about that.
    """

    approvals: dict[str, ApprovalView] = field(default_factory=dict)
    reservations: dict[int, list[Reservation]] = field(default_factory=dict)
    resources: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    action: r.OperatorAction | None = None
    lifted: bool = False
    removed: list[Fact] = field(default_factory=list)


def facts_of(view: SagaView, *, sealed: bool) -> frozenset[Fact]:
    """Return the facts of a saga.

    Args:
        view: its fold, amendments included.
        sealed: it has ended without work items, so it holds no resource any more.
    """
    gate = view.gate
    if gate is None:
        return frozenset()
    return besides_spending(view, sealed=sealed).union(*(spent_by(view, step) for step in gate.reservations))


def besides_spending(view: SagaView, *, sealed: bool) -> frozenset[Fact]:
    """Return the facts of a saga that are not about what its steps spent; see `facts_of`."""
    gate = view.gate
    if gate is None:
        return frozenset()
    facts: list[Fact] = []
    if not sealed:
        facts += [Fact("resource", name, view.id, 0, "", 0) for name in gate.resources]
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
    return frozenset([*facts, *gate.removed])


def spent_by(view: SagaView, step: int) -> frozenset[Fact]:
    """Return what a step holds of each budget: what its last attempt that took something took, while it is not gone.

    Compensated spend is not given back, and what is in doubt stays reserved.
    """
    taken = view.gate.reservations.get(step) if view.gate is not None else None
    if not taken or view.steps[step].state is StepState.ABSENT:
        return frozenset()
    last = max(held.attempt for held in taken)
    spent: dict[str, Fact] = {}
    for held in taken:
        if held.attempt == last:
            known = spent.get(held.budget)
            amount = held.amount if known is None else str(total(Decimal(known.value), Decimal(held.amount)))
            spent[held.budget] = Fact("spend", held.budget, view.id, step, amount, held.at)
    return frozenset(spent.values())


def held_by(view: SagaView, names: tuple[str, ...]) -> frozenset[Fact]:
    """Return the facts that say that a saga holds these resources."""
    return frozenset(Fact("resource", name, view.id, 0, "", 0) for name in names)


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
    """Fold a word on a request: enough distinct principals approve, one rejects.

    A word that comes too late changes nothing: the saga's owner and others who give words do not see one another's
    records while they write, so a saga that withdraws a request meets a rejection now and then.
    """
    known = _approval(view, record.approval)
    late = record.refused is not None or known.state not in {"pending", "approved"}
    if late or (record.decision == "approved" and record.by in known.approved_by):
        return
    known.decided.append(record)
    if record.decision != "approved":
        known.state = record.decision
        return
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
    """Fold a reservation: it belongs to the attempt whose intent came before it."""
    step = view.steps.get(record.step)
    if step is None or not amount_in(record.amount):
        raise TransitionError(f"step {record.step} cannot take {record.amount!r} of budget {record.budget!r}")
    if record.refused is None:
        held = Reservation(attempt=step.attempt, budget=record.budget, amount=record.amount, at=record.at)
        gate_of(view).reservations.setdefault(record.step, []).append(held)


def amount_in(text: object) -> bool:
    """Tell whether something is the text of an amount, as records and facts hold them."""
    try:
        return isinstance(text, str) and is_amount(Decimal(text))
    except InvalidOperation:
        return False


def acted(view: SagaView, record: r.OperatorAction, _values: Mapping[str, str]) -> None:
    """Fold an operator's action: the first one is what the saga is about, a later one lifts it."""
    gate = gate_of(view)
    if gate.action is None and record.action in {*HALTING, "key_added"}:
        gate.action = record
    elif gate.action is None:
        raise TransitionError(f"{record.action!r} needs something that it ends")
    elif record.action in {"lift", "key_removed"} and not gate.lifted:
        gate.lifted = True
    else:
        raise TransitionError(f"{record.action!r} cannot follow {gate.action.action!r}")


def pruned(view: SagaView, record: r.Pruned, _values: Mapping[str, str]) -> None:
    """Fold what was removed from the log."""
    no = int(record.payloads_only)
    gate_of(view).removed += [
        Fact("removed", saga_id, view.id, no, digest, sealed_at) for saga_id, sealed_at, digest in record.sagas
    ]


def take_resources(view: SagaView, record: r.Intent) -> None:
    """Fold the resources that an intent takes."""
    if record.resources and record.refused is None:
        held = gate_of(view).resources
        for name in record.resources:
            held.setdefault(name, set()).add((record.step, record.attempt))


def undo_refused(view: SagaView, no: int, approvals: tuple[str, ...]) -> None:
    """Take back what the last attempt of a step brought along, in a view that had assumed that it would pass."""
    gate, attempt = gate_of(view), view.steps[no].attempt
    gate.reservations[no] = [held for held in gate.reservations.get(no, ()) if held.attempt != attempt]
    for name, takers in list(gate.resources.items()):
        takers.discard((no, attempt))
        if not takers:
            del gate.resources[name]
    for approval in approvals:
        gate.approvals[approval].state, gate.approvals[approval].step = "approved", None


def _approval(view: SagaView, approval: str) -> ApprovalView:
    known = view.gate.approvals.get(approval) if view.gate is not None else None
    if known is None:
        raise TransitionError(f"approval {approval!r} was not requested")
    return known
