"""Small sagas that say what was removed from a log: opened, one or more facts, ended, committed as one item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.machine.fold import amend, apply, begin
from agent_saga.machine.gate import facts_of
from agent_saga.machine.row import row_of
from agent_saga.model import records as r
from agent_saga.model.ids import make_saga_id
from agent_saga.runtime.clock import clock
from agent_saga.store.port import Amended, Draft, FactsChange, Item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.store.reader import Loaded


def stating(name: str, facts: Sequence[r.Redacted | r.Pruned], *, by: str, target: Loaded | None = None) -> Item:
    """Return the item of a saga that states these facts and has ended.

    Args:
        name: of the saga.
        facts: their `saga`, `n` and `pos` are set here or by the store.
        by: who acts.
        target: the saga that it amends, if any.
    """
    now = clock().time_ns()
    saga_id = make_saga_id(now, clock().entropy(10))
    amends = None if target is None else target.view.id
    opened = r.SagaOpened(
        v=r.FORMAT, saga=saga_id, n=0, pos=0, at=now, name=name, owner="", epoch=1, amends=amends, by=by
    )
    ended = r.SagaEnded(v=r.FORMAT, saga=saga_id, n=0, pos=0, at=now, outcome="committed")
    view = begin(opened)
    for record in facts:
        record.saga, record.at = saga_id, now
    for stated in (*facts, ended):
        apply(view, stated, {})
    row = row_of(view)
    changed = facts_of(view, sealed=row.sealed)
    drafts = [Draft(body=record) for record in (opened, *facts, ended)]
    return Item(
        saga_id=saga_id,
        epoch=1,
        count=0,
        drafts=drafts,
        row=row,
        amended=None if target is None else _amended(target, drafts),
        facts=FactsChange(added=changed) if changed else None,
    )


def _amended(target: Loaded, drafts: Sequence[Draft]) -> Amended:
    view, stored = target.view, target.row
    for draft in drafts:
        amend(view, draft.body, {})
    return Amended(
        saga_id=view.id, epoch=stored.row.epoch, count=stored.count, amendments=stored.amendments, row=row_of(view)
    )
