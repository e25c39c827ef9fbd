"""What a process takes the log to hold of the facts of one saga, so that each item states only what changes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from agent_saga.machine.gate import besides_spending, facts_of, held_by, spent_by
from agent_saga.machine.row import row_of
from agent_saga.model.requirements import Free
from agent_saga.store.port import FactsChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_saga.machine.gate import Fact
    from agent_saga.machine.view import SagaView
    from agent_saga.model.requirements import Requirement
    from agent_saga.store.port import Draft


class KnownFacts:
    """The facts of one saga in the log, as far as this process has put or read them; the caller holds the saga's lock.

    What steps spent is kept by step: a saga of many steps must not compare all of it with every record.
    """

    def __init__(self, view: SagaView) -> None:
        self._spent: dict[int, frozenset[Fact]] = {}
        self._others: frozenset[Fact] = frozenset()
        if view.gate is not None:
            self._spent = {step: spent_by(view, step) for step in view.gate.reservations}
            self._others = besides_spending(view, sealed=row_of(view).sealed)

    def change(
        self, view: SagaView, drafts: Sequence[Draft], requires: tuple[Requirement, ...] = ()
    ) -> FactsChange | None:
        """Return how these records, which the view has, change the facts; from here on they count as put.

        The resources that an item requires are stated again although an item before it took them: that one may still
        be refused, and its facts with it.
        """
        if view.gate is None:
            return None
        before, now = self._others, besides_spending(view, sealed=row_of(view).sealed)
        self._others = now
        for step in {getattr(draft.body, "step", None) for draft in drafts}:
            if step in view.gate.reservations:
                known, spent = self._spent.get(step, frozenset()), spent_by(view, step)
                before, now, self._spent[step] = before | known, now | spent, spent
        again = held_by(view, tuple(name for one in requires if isinstance(one, Free) for name in one.names))
        if before == now and not again:
            return None
        return FactsChange(added=(now - before) | again, removed=before - now)

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
        spends = changed is not None and changed.kind == "spend"
        known = self._spent.get(step, frozenset()) if spends else self._others
        known = (known - {remove}) | ({add} if add is not None else set())
        if spends:
            self._spent[step] = known
        else:
            self._others = known
