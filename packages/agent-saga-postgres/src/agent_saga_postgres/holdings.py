"""What the log holds now of the sagas, keys and facts that some items are about: what the rules judge them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import CorruptLog
from agent_saga.model.records import SagaOpened
from agent_saga.model.requirements import Approved, Free, Undecided, Within
from agent_saga.store.rules import Current, judge, mark_refused, unmet
from agent_saga.store.totals import TOTAL, with_totals
from agent_saga_postgres.batch import restored, stored
from agent_saga_postgres.known_facts import KnownFacts, as_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_saga.machine.row import Row
    from agent_saga.store.port import FactsChange, Item
    from agent_saga_postgres.batch import Sending
    from agent_saga_postgres.link import Link

_CURRENT: Final = "saga, epoch, count, head, amendments, leaf, state, owner, incarnation, amends"
_SAGAS: Final = f"SELECT {_CURRENT} FROM sagas WHERE saga IN (SELECT jsonb_array_elements_text($1::jsonb))"  # noqa: S608
_KEYS: Final = "SELECT key, saga FROM keys WHERE key IN (SELECT jsonb_array_elements_text($1::jsonb))"


class Holdings:
    """See rules.Lookup; it follows the items that are let in, as the log does."""

    def __init__(self, link: Link) -> None:
        self._sagas: dict[str, Current] = {}
        self._keys: dict[str, str] = {}
        self.facts = KnownFacts(link)

    @classmethod
    def read(cls, link: Link, items: Iterable[Item]) -> Holdings:
        """Return what the log holds for these items, as it is in the transaction that is open.

        Raises:
            Gone, Refused: it could not be read.
        """
        items = list(items)
        found = cls(link)
        keys = sorted({first.key for item in items if (first := _opening(item)) is not None and first.key is not None})
        if keys:
            found._keys = {restored(key): restored(saga) for key, saga in link.run(_KEYS, as_json(map(stored, keys)))}
        wanted = {saga_id for item in items for saga_id in _about(item)} | set(found._keys.values())
        for values in link.run(_SAGAS, as_json(map(stored, sorted(wanted)))):
            current = _current(values)
            found._sagas[current.saga_id] = current
        return found

    def read_facts(self, items: Iterable[Item]) -> None:
        """Read at once the facts that judging these items will ask for."""
        items = list(items)
        self.facts.read_names(name for item in items for name in _required(item))
        self.facts.read_sagas(one for item in items for one in _spent(item))

    def saga(self, saga_id: str) -> Current | None:
        """See rules.Lookup.saga."""
        return self._sagas.get(saga_id)

    def newest(self, key: str) -> Current | None:
        """See rules.Lookup.newest."""
        saga_id = self._keys.get(key)
        if saga_id is None:
            return None
        current = self._sagas.get(saga_id)
        if current is None:
            raise CorruptLog(f"key {key!r} names saga {saga_id!r}, which has no row")
        return current

    def weigh(self, sending: Sending, *, again: bool = False) -> None:
        """Judge an item and what it requires, and add what it does to the running totals of budgets.

        Args:
            sending: the item; it is left alone when the rules refuse it, as the database will.
            again: it was in the log already, and only what it does to the totals is to be found out anew.
        """
        item = sending.item
        if judge(item, self) is not None:
            return
        if not again:
            sending.unmark()
            sending.refused = unmet(item, self.facts) if item.requires else None
            if sending.refused is not None:
                mark_refused(item, sending.refused.reason)
        if item.amended is not None:
            sending.amended_facts = self._follow(item.amended.facts)
        sending.facts = self._follow(item.facts) if sending.refused is None else None
        self._apply(item)

    def _follow(self, change: FactsChange | None) -> FactsChange | None:
        if change is None:
            return None
        change = with_totals(change, self.facts)
        self.facts.change(change)
        return change

    def _apply(self, item: Item) -> None:
        row, added = item.row, len(item.drafts)
        current = self._sagas.get(item.saga_id)
        if current is None:
            assert row is not None
            current = self._sagas[item.saga_id] = Current(item.saga_id)
            if row.key is not None:
                self._keys[row.key] = item.saga_id
        current.count += added
        if row is not None:
            _take(current, row)
        target = None if current.amends is None else self._sagas.get(current.amends)
        if target is not None:  # It was not read where no item states what it saw of it.
            target.amendments += added
            if item.amended is not None:
                _take(target, item.amended.row)


def _take(current: Current, row: Row) -> None:
    current.take(row)
    if row.sealed and current.leaf is None:
        current.leaf = -1  # It gets its number from the server; that it has one is all that the rules ask.


def _opening(item: Item) -> SagaOpened | None:
    first = item.drafts[0].body if item.drafts else None
    return first if isinstance(first, SagaOpened) else None


def _about(item: Item) -> Iterator[str]:
    yield item.saga_id
    if item.amended is not None:
        yield item.amended.saga_id
    if item.row is not None and item.row.amends is not None:
        yield item.row.amends


def _required(item: Item) -> Iterator[tuple[str, str]]:
    for requirement in item.requires:
        match requirement:
            case Free(names=names):
                yield from (("resource", name) for name in names)
            case Within(budget=budget, since_ns=since_ns, also=also) if since_ns:
                yield from (("spend", name) for name in (budget, *also))
            case Approved(approval=approval) | Undecided(approval=approval):
                yield "approval", approval


def _spent(item: Item) -> Iterator[tuple[str, str, str]]:
    names = {(requirement.budget, item.saga_id) for requirement in item.requires if isinstance(requirement, Within)}
    changes = (item.facts, None if item.amended is None else item.amended.facts)
    for change in changes:
        if change is not None:
            names |= {(fact.name, fact.saga_id) for fact in (*change.added, *change.removed) if fact.kind == "spend"}
    for name, saga_id in names:
        yield TOTAL, name, ""
        yield "spend", name, saga_id


def _current(values: tuple[Any, ...]) -> Current:
    saga_id, epoch, count, head, amendments, leaf, state, owner, incarnation, amends = values
    return Current(
        restored(saga_id),
        epoch=epoch,
        count=count,
        head=head,
        amendments=amendments,
        leaf=leaf,
        state=state,
        owner=None if owner is None else restored(owner),
        incarnation=incarnation,
        amends=None if amends is None else restored(amends),
    )
