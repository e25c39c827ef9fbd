"""What every log does when values and records are removed on purpose, as tests. Rule ids: P-n."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.audit.leaves import root
from agent_saga.audit.prune import prune
from agent_saga.audit.redact import redact
from agent_saga.errors import RecordsPruned
from agent_saga.store.port import Removal, Stale
from agent_saga.store.reader import checked_records, load
from agent_saga.store.verify import verify
from pytest_agent_saga.conformance.sagas import Scribe
from pytest_agent_saga.conformance.store_case import StoreCase
from pytest_agent_saga.conformance.suite import Suite, rule

if TYPE_CHECKING:
    from collections.abc import Callable

FOREVER_NS: Final = 2**62
CARD: Final = '"4000-0012-3456-7899"'


def _paid(store: Any, number: int) -> Any:
    """Write a sealed saga whose one step has a value to be removed."""
    scribe = Scribe(store, number).open(key=f"order-{number}")
    options = {"step": 1, "tool": "charge", "version": 1, "effect": "irreversible", "key": f"{scribe.id}:1"}
    scribe.write(scribe.fact("intent", {"kwargs.card": CARD, "kwargs.amount": "7"}, **options), durable=True)
    scribe.write(scribe.fact("outcome", {"result": "1"}, step=1, state="succeeded"), row=False)
    return scribe.end()


def _values(store: Any, saga_id: str) -> dict[str, str]:
    return {name: text for _, _, values in checked_records(store, saga_id) for name, text in values.items()}


class RemovalRules(Suite[StoreCase]):
    """Rules of `LogStoreSuite`: redaction and retention."""

    @rule()
    def test_a_redacted_value_is_gone(self, case: StoreCase) -> None:
        """P-40: a redacted value is in no payload any more; all else is as before, and the log takes more sagas."""
        store = case.store
        sagas = [_paid(store, number) for number in (1, 2)]
        before = [root(store), [record.body for record in store.records(sagas[0].id)]]
        store.owner()  # From here on an append is checked against a lease, where there is one.
        done = redact(store, sagas[0].id, "kwargs.card", by="ann")
        assert [name for _, _, name in done.values] == ["kwargs.card"]
        assert _values(store, sagas[0].id)["kwargs.card"] == '{"$redacted":"builtins.str"}'
        assert _values(store, sagas[0].id)["kwargs.amount"] == "7"
        assert _values(store, sagas[1].id)["kwargs.card"] == CARD
        assert CARD.encode() not in b"".join(record.payload or b"" for record in store.records(sagas[0].id))
        assert before[1] == [record.body for record in store.records(sagas[0].id)]
        assert redact(store, sagas[0].id, "kwargs.card", by="ann").values == ()
        _paid(store, 5)
        verify(store)

    @rule()
    def test_pruned_records_are_gone(self, case: StoreCase) -> None:
        """P-41: of a pruned saga its row, key and leaf stay, in payloads or in all; the tree grows by the pruning."""
        for payloads_only in (True, False):
            store = case.fresh()
            old = _paid(store, 1)
            live = Scribe(store, 2).open().step()
            row = store.row(old.id)
            done = prune(store, before_ns=FOREVER_NS, by="ann", payloads_only=payloads_only)
            assert (done.sagas, done.kept) == (1, 1)
            now = store.row(old.id)
            epochs = 0 if payloads_only else 1
            assert now.row == replace(row.row, epoch=row.row.epoch + epochs)
            assert (now.leaf, now.head, now.count) == (row.leaf, row.head, row.count)
            assert store.row_of_key("order-1").saga_id == old.id
            if payloads_only:
                assert [record.payload for record in store.records(old.id)] == [None] * row.count
            else:
                assert store.records(old.id) == []
                assert _raises(RecordsPruned, functools.partial(load, store, old.id))
            assert old.id not in {record.saga_id for record in store.tail() if record.payload}
            live.end()
            assert verify(store).sagas == 3

    @rule()
    def test_who_removes_must_have_seen_the_newest_row(self, case: StoreCase) -> None:
        """P-42: a removal that was made of an older row is stale, and removes and writes nothing."""
        store = case.store
        saga = _paid(store, 1)
        row, before = store.row(saga.id), store.tail()
        other = Scribe(store, 9)
        older = Removal(row=_with(row, amendments=row.amendments + 1), records=True)
        assert isinstance(store.rewrite(other.open_item(), [older]), Stale)
        unknown = Removal(row=_with(row, saga_id="unknown"), records=True)
        assert isinstance(store.rewrite(other.open_item(), [unknown]), Stale)
        assert store.tail() == before
        verify(store)

    @rule("persists")
    def test_what_was_removed_stays_removed(self, case: StoreCase) -> None:
        """P-105: a log that is opened again knows what was removed, verifies, and goes on."""
        for payloads_only in (True, False):
            store = case.fresh()
            old, other = _paid(store, 1), _paid(store, 2)
            redact(store, other.id, "kwargs.card", by="ann")
            prune(store, before_ns=store_time(store, other.id), by="ann", payloads_only=payloads_only)
            before = [store.tail(), root(store), store.row(old.id)]
            store = case.reopen()
            assert before == [store.tail(), root(store), store.row(old.id)]
            _paid(store, 3)
            verify(store)


def store_time(store: Any, saga_id: str) -> int:
    """Return the time at which a saga was opened: what is older than that was there before it."""
    return int(store.row(saga_id).row.opened_at)


def _with(row: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(row, **changes)


def _raises(error: type[Exception], act: Callable[[], object]) -> bool:
    try:
        act()
    except error:
        return True
    return False
