"""The derived row of a saga: what lists and sweeps need without reading chains; `verify` recomputes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_saga.machine.plan import leftovers, needs_human

if TYPE_CHECKING:
    from agent_saga.machine.view import SagaView


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One saga in a list.

    Attributes:
        owner: the process that may append, or None when it was released.
        due_at: a sweep leaves a saga without an owner alone until then (nanoseconds), None means now.
        work: work items: steps that a later recovery or a human must settle.
        human: those of them that no retry can settle.
        sealed: ended without work items: a leaf of the log's tree.
    """

    name: str
    key: str | None
    incarnation: int
    state: str
    owner: str | None
    epoch: int
    on_crash: str
    opened_at: int
    due_at: int | None
    work: int
    human: int
    sealed: bool
    amends: str | None


def row_of(view: SagaView) -> Row:
    """Return the row of a saga, from its fold."""
    left = leftovers(view) if view.ended else []
    human = sum(needs_human(step) for step in left)
    if view.ended:
        waits = [step.next_at for step in left if step.next_at is not None or not needs_human(step)]
        due_at = None if not waits or None in waits else min(at for at in waits if at is not None)
    else:
        due_at = view.expires_at or view.released_until
    return Row(
        name=view.name,
        key=view.key,
        incarnation=view.incarnation,
        state=view.state.value,
        owner=view.owner,
        epoch=view.epoch,
        on_crash=view.on_crash,
        opened_at=view.opened_at,
        due_at=due_at,
        work=len(left),
        human=human,
        sealed=view.ended and not left and view.owner is None,
        amends=view.amends,
    )
