"""All that is known of one saga, as plain data: what `agent-saga show --json` prints, and the text is made from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from agent_saga.cli.gate_story import gate_story
from agent_saga.cli.next_steps import recover_command, work_items
from agent_saga.machine.report import bucket_of, report_of, step_reason
from agent_saga.model import records as r
from agent_saga.store.reader import history

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.model.records import AnyRecord
    from agent_saga.store.port import LogStore, StoredRow
    from agent_saga.store.reader import Checked

_DECISIONS: Final = (
    r.Decided,
    r.ApprovalRequested,
    r.ApprovalDecided,
    r.ApprovalConsumed,
    r.Reserved,
    r.OperatorAction,
)
_ENVELOPE: Final = frozenset({"v", "saga", "n", "pos", "at", "kind", "values"})


def story_of(store: LogStore, row: StoredRow, command_line: Callable[..., str]) -> tuple[SagaView, dict[str, Any]]:
    """Return a saga's view, and its story.

    Args:
        store: the log.
        row: the saga's row.
        command_line: makes a command for this log.

    Raises:
        CorruptLog: a record, the chain or the row is damaged.
    """
    events = _Events(row.saga_id)
    view: SagaView | None = None
    for checked, view in history(store, row):  # noqa: B007 - the last one is the view.
        events.take(checked)
    assert view is not None  # `history` raises for a saga without records.
    lives = _lives(store, view)
    return view, {
        "saga": _saga(view),
        "owner_lives": lives,
        "report": _report(view),
        "steps": [_step(view, step, events.compensations.get(step.no, [])) for step in view.steps.values()],
        "scopes": [
            {"scope": s.no, "parent": s.parent, "name": s.name, "outcome": s.outcome} for s in view.scopes.values()
        ],
        "decisions": events.decisions,
        **gate_story(store, view),
        "settlements": events.settlements,
        "amendments": list(events.amendments.values()),
        "owners": events.owners,
        "work": [item.to_dict() for item in work_items(view, command_line)],
        "next": None if view.ended or lives else recover_command(view.id, command_line),
    }


class _Events:
    """What the view does not keep: who decided, who settled and on what evidence, what amended, every attempt."""

    def __init__(self, saga_id: str) -> None:
        self._saga_id = saga_id
        self.decisions: list[dict[str, Any]] = []
        self.settlements: list[dict[str, Any]] = []
        self.amendments: dict[str, dict[str, Any]] = {}
        self.owners: list[dict[str, Any]] = []
        self.compensations: dict[int, list[dict[str, Any]]] = {}

    def take(self, checked: Checked) -> None:
        _, record, values = checked
        if record.saga != self._saga_id:
            self._amended(record)
        if isinstance(record, _DECISIONS):
            self.decisions.append(_plain(record, values))
        elif isinstance(record, r.Settled):
            self.settlements.append(_plain(record, values) | {"amendment": record.saga})
        elif isinstance(record, r.CompensationIntent):
            attempt = {"attempt": record.attempt, "at": record.at, "key": record.key, "state": None}
            self.compensations.setdefault(record.step, []).append(attempt)
        elif isinstance(record, r.CompensationOutcome):
            outcome = {"state": record.state, "verified": record.verified, "reason": record.reason}
            for last in self.compensations.get(record.step, [])[-1:]:
                last.update(outcome)
        elif isinstance(record, r.SagaOpened | r.Claimed) and record.saga == self._saga_id:
            purpose = "open" if isinstance(record, r.SagaOpened) else record.purpose
            self.owners.append({"owner": record.owner, "epoch": record.epoch, "at": record.at, "purpose": purpose})

    def _amended(self, record: AnyRecord) -> None:
        if isinstance(record, r.SagaOpened):
            names = {"saga": record.saga, "name": record.name, "by": record.by, "at": record.at}
            self.amendments[record.saga] = {**names, "records": 0}
        self.amendments[record.saga]["records"] += 1


def _plain(record: AnyRecord, values: Mapping[str, str]) -> dict[str, Any]:
    fields = {name: value for name, value in r.fields_of(record).items() if name not in _ENVELOPE and value is not None}
    told = {name: _value(text) for name, text in values.items()}
    return {"at": record.at, "kind": r.kind_of(record), **fields, **({"values": told} if told else {})}


def _value(text: str | None) -> Any:
    """Return a value in the log's own JSON form, tagged where JSON has no form for it (docs/log-format.md)."""
    return None if text is None else json.loads(text)


def _saga(view: SagaView) -> dict[str, Any]:
    names = (
        *("id", "name", "key", "incarnation", "owner", "epoch", "on_crash", "on_divergence", "tags", "amends", "by"),
        *("opened_at", "changed_at", "ended_at", "deadline_at", "expires_at", "cause"),
    )
    fields = {name: getattr(view, name) for name in names}
    return {**fields, "state": view.state.value, "records": view.count}


def _report(view: SagaView) -> dict[str, Any] | None:
    if not view.ended:
        return None
    report = report_of(view)
    return {"outcome": report.outcome, "clean": report.clean, "verified": report.verified, "cause": report.cause}


def _lives(store: LogStore, view: SagaView) -> bool | None:
    """Tell whether the saga's owner lives; None without an owner, or where that cannot be seen."""
    if view.owner is None:
        return None
    try:
        dead = store.prove_dead(view.owner)
    except OSError:  # The owners' directory cannot be written here.
        return None
    if dead is None:
        return True
    dead.close()
    return False


def _step(view: SagaView, step: StepView, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    recipe = step.recipe
    compensation = None
    if recipe is not None:
        bound = step.compensation
        compensation = {
            "name": recipe.name,
            "version": recipe.version,
            "bind": recipe.bind,
            "kwargs": None if bound is None else {name: _value(text) for name, text in bound.items()},
            "attempts": attempts,
            "verified": step.verified,
        }
    names = (
        *("no", "id", "tool", "version", "effect", "scope", "key", "attempt", "adapter", "call_id", "probe"),
        *("intent_at", "outcome_at", "landed", "assumed", "partial", "replayed", "waived", "settled_by", "next_at"),
    )
    return {
        **{name: getattr(step, name) for name in names},
        "state": step.state.value,
        "bucket": bucket_of(view, step),
        "kwargs": {name: _value(text) for name, text in step.kwargs.items()},
        "result": _value(step.result),
        "error_type": step.error_type,
        "error": _value(step.error),
        "reason": step_reason(step),
        "compensation": compensation,
    }
