"""What a process takes the log to hold of the facts of one saga, so that each item states only what changes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from agent_saga.machine.gate import besides_spending, facts_of, held_by, spent_by
from agent_saga.machine.row import row_of
from agent_saga.model import records as r
from agent_saga.model.requirements import Free
from agent_saga.store.port import FactsChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.machine.view import SagaView
    from agent_saga.model.requirements import Requirement
    from agent_saga.store.port import Draft


_ABOUT_STEPS: Final = frozenset({r.Intent, r.Outcome, r.Reserved, r.Decided, r.Waived, r.Replayed, r.ScopeOpened})
"""Kinds that change no approval and no operator's action, and end nothing."""


class KnownFacts:
    """The facts of one saga in the log, as far as this process has put or read them; the caller holds the saga's lock.

    What steps spent is kept by step: a saga of many steps must not compare all of it with every record.
    """

    def __init__(self, view: SagaView) -> None:
        self._spent: dict[int, frozenset[Fact]] = {}
        self._others: set[Fact] = set()
        if view.gate is not None:
            self._spent = {step: spent_by(view, step) for step in view.gate.reservations}
            self._others = set(besides_spending(view, sealed=row_of(view).sealed))

    def change(
        self, view: SagaView, drafts: Sequence[Draft], requires: tuple[Requirement, ...] = ()
    ) -> FactsChange | None:
        """Return how these records, which the view has, change the facts; from here on they count as put.

        The resources that an item requires are stated again although an item before it took them: that one may still
        be refused, and its facts with it.
        """
        if view.gate is None:
            return None
        added, removed = self._change_others(view, drafts)
        for step in {getattr(draft.body, "step", None) for draft in drafts}:
            if step in view.gate.reservations:
                known, spent = self._spent.get(step, frozenset()), spent_by(view, step)
                added, removed, self._spent[step] = added | (spent - known), removed | (known - spent), spent
        added |= held_by(view, tuple(name for one in requires if isinstance(one, Free) for name in one.names))
        return FactsChange(added=added, removed=removed) if added or removed else None

    def _change_others(self, view: SagaView, drafts: Sequence[Draft]) -> tuple[frozenset[Fact], frozenset[Fact]]:
        """Return what these records add to, and take from, the facts that are not about spending.

        A saga that holds much must not compare all of it with every step: what a step's records may change is what its
        intent takes.
        """
        if not view.ended and all(type(draft.body) in _ABOUT_STEPS for draft in drafts):
            taken = [name for draft in drafts if isinstance(draft.body, r.Intent) for name in draft.body.resources]
            held = {} if view.gate is None else view.gate.resources
            new = held_by(view, tuple(name for name in taken if name in held)) - self._others
            self._others |= new
            return new, frozenset()
        now = besides_spending(view, sealed=row_of(view).sealed)
        before, self._others = self._others, set(now)
        return now - before, frozenset(before) - now

    @contextlib.contextmanager
    def corrected(self, view: SagaView) -> Iterator[None]:
        """What changes in the view inside is what the log holds already, and what this process was wrong about.

        So it is with an intent that the log refused, whose facts it left out, and with what others have stated.
        Nothing else is touched: what this process holds back is not in the log yet.
        """
        before = facts_of(view, sealed=False)
        yield
        after = facts_of(view, sealed=False)
        for gone in before - after:
            self._keep(gone.no, remove=gone)
        for there in after - before:
            self._keep(there.no, add=there)

    def _keep(self, step: int, *, add: Fact | None = None, remove: Fact | None = None) -> None:
        changed = add or remove
        if changed is not None and changed.kind == "spend":
            known = self._spent.get(step, frozenset())
            self._spent[step] = (known - {remove}) | ({add} if add is not None else frozenset())
            return
        if remove is not None:
            self._others.discard(remove)
        if add is not None:
            self._others.add(add)
