"""Rules of a log about chains, rows, keys and owners. Rule ids: P-1 to P-24."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agent_saga.audit.leaves import root
from agent_saga.errors import InvariantViolation
from agent_saga.machine.row import row_of
from agent_saga.store.memory import MemoryLog
from agent_saga.store.port import Committed, Item, Query, Stale, Taken
from agent_saga.store.reader import checked_records
from agent_saga.store.verify import verify
from pytest_agent_saga.conformance.sagas import (
    Scribe,
    committed,
    dump,
    everything,
    late_landing,
    load,
    partial,
    rolled_back,
    saga_id,
    settle,
    varied,
)
from pytest_agent_saga.conformance.store_case import StoreCase, pages
from pytest_agent_saga.conformance.suite import Suite, rule


def changed(item: Item, **fields: Any) -> Item:
    return Item(**{name: getattr(item, name) for name in item.__struct_fields__} | fields)


class Interrupted(list[Any]):
    """Drafts during which Ctrl-C arrives."""

    def __iter__(self) -> Any:
        raise KeyboardInterrupt


def records_of(store: Any, saga: str) -> list[Any]:
    return [record for _, record, _ in checked_records(store, saga)]


class ChainRules(Suite[StoreCase]):
    """Chains, rows, keys and owners."""

    @rule()
    def test_positions_are_gap_free_and_equal_to_bodies(self, case: StoreCase) -> None:
        """P-1: positions count from 1 over the whole log, which has an id; numbers from 1 within each saga."""
        store = case.store
        first, second = Scribe(store, 1).open(), Scribe(store, 2).open()
        assert len(bytes.fromhex(store.log_id())) == 16
        first.step()
        second.step()
        assert list(range(1, 7)) == [record.pos for record in store.tail()]
        seen = [(record.saga, record.n, record.pos) for _, record, _ in checked_records(store, second.id)]
        assert [(second.id, 1, 2), (second.id, 2, 5), (second.id, 3, 6)] == seen

    @rule()
    def test_verdict_names_position_and_head(self, case: StoreCase) -> None:
        """P-2: `Committed` carries the position and the hash of the last record."""
        store = case.store
        scribe = Scribe(store, 1)
        verdict = scribe.put(scribe.open_item(scribe.intent()))
        last = store.tail()[-1]
        assert Committed(last.pos, last.hash) == verdict
        assert (last.hash, 2) == (store.row(scribe.id).head, store.row(scribe.id).count)

    @rule()
    def test_an_item_that_saw_something_else_is_stale(self, case: StoreCase) -> None:
        """P-3: epoch and number of records must be what the writer saw; nothing of a stale item is written."""
        for fields in [{"count": 1}, {"count": 9}, {"epoch": 2}, {"epoch": 0}]:
            store = case.fresh()
            scribe = Scribe(store, 1).open().write(Scribe(store, 1).intent())
            before = dump(store)
            item = changed(scribe.item(scribe.outcome(), row=False), **fields)
            assert isinstance(store.append([item], durable=True)[0], Stale)
            assert before == dump(store)

    @rule()
    def test_items_of_one_batch_are_judged_one_by_one(self, case: StoreCase) -> None:
        """P-4: a stale item does not fail the others of its transaction; later ones see earlier ones."""
        store = case.store
        one, two = Scribe(store, 1).open(), Scribe(store, 2).open()
        good = one.item(one.intent())
        one.view = one.next
        next_of_it = one.item(one.outcome(), row=False)
        stale = changed(two.item(two.intent()), count=5)
        verdicts = store.append([good, stale, next_of_it], durable=True)
        assert [Committed, Stale, Committed] == [type(verdict) for verdict in verdicts]
        assert (store.row(one.id).count, store.row(two.id).count) == (3, 1)

    @rule()
    def test_a_batch_of_refusals_writes_nothing(self, case: StoreCase) -> None:
        """P-5: when every item is refused, the log is as before, and works on."""
        store = case.store
        scribe = Scribe(store, 1).open()
        assert isinstance(store.append([changed(scribe.item(scribe.intent()), count=4)], durable=True)[0], Stale)
        scribe.step()
        assert verify(store).records == 3

    @rule()
    def test_a_claim_replaces_the_owner(self, case: StoreCase) -> None:
        """P-6: a claim takes the next epoch; the replaced owner is stale from then on; of two claims one wins."""
        store = case.store
        old = Scribe(store, 1).open().step()
        new, late = Scribe(store, 1, owner="owner-2"), Scribe(store, 1, owner="owner-3")
        new.view, late.view = load(store, old.id).view, load(store, old.id).view
        new.write(new.fact("claimed", owner="owner-2", epoch=2), claims=True)
        assert isinstance(late.put(late.item(late.fact("claimed", owner="owner-3", epoch=2), claims=True)), Stale)
        assert isinstance(old.put(old.item(old.intent(2))), Stale)
        assert (store.row(old.id).row.owner, store.row(old.id).row.epoch) == ("owner-2", 2)

    @rule()
    def test_a_saga_opens_once(self, case: StoreCase) -> None:
        """P-7: an id that is in the log cannot be opened again; one that is not cannot be appended to."""
        store = case.store
        scribe = Scribe(store, 1).open()
        again = Scribe(store, 1)
        assert isinstance(again.put(again.open_item()), Stale)
        other = Scribe(store, 2)
        other.view = scribe.view
        assert isinstance(
            store.append([changed(other.item(other.intent()), saga_id=saga_id(2))], durable=False)[0], Stale
        )

    @rule()
    def test_a_contradictory_item_is_our_bug(self, case: StoreCase) -> None:
        """P-8: an item that contradicts itself raises, and nothing is written."""
        store = case.store
        scribe = Scribe(store, 1)
        with pytest.raises(InvariantViolation):
            store.append([changed(scribe.open_item(), row=None)], durable=False)
        scribe.open()
        with pytest.raises(InvariantViolation):
            store.append([changed(scribe.item(scribe.intent()), claims=True, epoch=2)], durable=False)
        with pytest.raises(InvariantViolation):
            store.append([changed(scribe.item(scribe.intent()), drafts=[])], durable=False)
        assert verify(store).records == 1

    @rule()
    def test_a_held_key_is_taken(self, case: StoreCase) -> None:
        """P-9: a key is taken while its newest saga is anything but rolled back without owner."""
        for ending in ["open", "committed", "suspended", "owned"]:
            store = case.fresh()
            first = Scribe(store, 1).open(key="k").step()
            if ending == "committed":
                first.end()
            elif ending == "suspended":
                first.write(first.fact("suspended", reason="x", expires_at=5))
            elif ending == "owned":
                first.write(first.fact("rollback_started"), first.compensation())
                first.write(first.compensated(state="failed")).end("rolled_back")
                first.write(first.fact("claimed", owner="owner-2", epoch=2), claims=True)
            second = Scribe(store, 2)
            assert Taken(first.id) == second.put(second.open_item(key="k", incarnation=2))
            assert first.id == store.row_of_key("k").saga_id

    @rule()
    def test_the_next_incarnation_follows_a_rollback(self, case: StoreCase) -> None:
        """P-10: after a rollback exactly the next incarnation opens; in one batch or two, one of two racers wins."""
        store = case.store
        first = rolled_back(store, 1, key="k")
        skipped = Scribe(store, 2)
        assert isinstance(skipped.put(skipped.open_item(key="k", incarnation=3)), Stale)
        assert isinstance(skipped.put(skipped.open_item(key="k", incarnation=1)), Stale)
        second, third = Scribe(store, 3), Scribe(store, 4)
        items = [second.open_item(key="k", incarnation=2), third.open_item(key="k", incarnation=2)]
        verdicts = store.append(items, durable=True)
        assert [Committed, Taken] == [type(verdict) for verdict in verdicts]
        assert verdicts[1] == Taken(second.id)
        assert second.id == store.row_of_key("k").saga_id
        assert store.row_of_key("other") is None
        assert first.id in {row.saga_id for row in store.rows(Query(states=("rolled_back",)))}

    @rule()
    def test_sealing_gives_the_next_leaf_and_closes_the_chain(self, case: StoreCase) -> None:
        """P-11: leaves number the sealed sagas in order; a sealed chain takes no more records."""
        store = case.store
        one, two, three = committed(store, 1), partial(store, 2), committed(store, 3)
        assert [store.row(scribe.id).leaf for scribe in (one, two, three)] == [1, None, 2]
        late = one.fact("late_outcome", {"result": "1"}, step=1, state="succeeded")
        assert isinstance(one.put(one.item(late)), Stale)
        assert root(store)[0] == 2

    @rule()
    def test_a_settlement_seals_in_the_same_transaction(self, case: StoreCase) -> None:
        """P-12: an amendment writes the row of the saga that it amends; the last work item seals that saga first."""
        store = case.store
        target = partial(store, 1)
        assert [target.id] == [row.saga_id for row in store.rows(Query(needs_human=True))]
        human = settle(store, 2, target.id)
        row = store.row(target.id)
        assert (row.leaf, row.amendments, row.row.work, row.row.sealed) == (1, 3, 0, True)
        assert store.row(human.id).leaf == 2
        assert [human.id] == store.amendments(target.id)
        assert verify(store).sagas == 2

    @rule()
    def test_an_amendment_that_missed_another_is_stale(self, case: StoreCase) -> None:
        """P-13: an amendment states what it saw of the other saga, amendments included, even of later items."""
        store = case.store
        target = partial(store, 1)
        scribe = Scribe(store, 2, owner="human-1")
        probe = scribe.fact("probed", step=1, answer="unknowable")
        item = scribe.open_item(probe, name="look", amends=target.id)
        seen_before = scribe.amended(target.id, (item.drafts[0].body, None, {}), probe)
        settle(store, 3, target.id)
        before = dump(store)
        assert isinstance(store.append([changed(item, amended=seen_before)], durable=True)[0], Stale)
        assert before == dump(store)

    @rule()
    def test_a_landing_after_sealing_keeps_the_leaf(self, case: StoreCase) -> None:
        """P-14: a landing that becomes known after sealing is an amendment; the leaf stays, the row says the rest."""
        store = case.store
        target = Scribe(store, 1).open()
        target.write(target.intent()).write(target.outcome(state="failed", assumed=True), row=False)
        target.write(target.fact("rollback_started")).end("rolled_back", clean=True)
        leaf, head = store.row(target.id).leaf, store.row(target.id).head
        late_landing(store, 2, target.id)
        row = store.row(target.id)
        assert (leaf, head, True, 5) == (row.leaf, row.head, row.row.sealed, row.amendments)
        assert load(store, target.id).view.steps[1].state == "compensated"
        verify(store)

    @rule()
    def test_load_folds_what_the_row_counts(self, case: StoreCase) -> None:
        """P-15: `load` returns the fold of the chain and amendments, equal to the row; None without a saga."""
        store = case.store
        varied(store)
        for row in store.rows(Query(amendments=True)):
            assert row_of(load(store, row.saga_id).view) == row.row
        assert load(store, saga_id(99)) is None
        assert list(checked_records(store, saga_id(99))) == []

    @rule()
    def test_pages(self, case: StoreCase) -> None:
        """P-16: rows page newest first (unsealed: oldest first), records by number, the tail by position."""
        store = case.store
        varied(store)
        everything = [row.saga_id for row in store.rows(Query(amendments=True))]
        assert sorted(everything, reverse=True) == everything
        paged = [row.saga_id for page in pages(store, 2) for row in page]
        assert everything == paged
        sweep = store.rows(Query(unsealed=True, amendments=True))
        assert sorted(row.saga_id for row in sweep) == [row.saga_id for row in sweep]
        assert all(not row.row.sealed for row in sweep)
        rest = store.rows(Query(unsealed=True, amendments=True, after=sweep[1].saga_id))
        assert sweep[2:] == rest
        assert store.rows(Query(name="settle")) == []
        assert [saga_id(5)] == [row.saga_id for row in store.rows(Query(name="settle", amendments=True))]
        assert [record.n for record in store.records(saga_id(2), after_n=2, limit=2)] == [3, 4]
        assert [record.pos for record in store.tail(after_pos=7, limit=2)] == [8, 9]

    @rule()
    def test_both_logs_hold_the_same(self, case: StoreCase) -> None:
        """P-17: the same items give the same records, rows, verdicts and tree in every store."""
        store = case.store
        reference = everything(MemoryLog())
        everything(store)
        assert dump(reference) == dump(store)
        assert root(reference) == root(store)
        assert verify(store).records == 136

    @rule()
    def test_an_owner_lives(self, case: StoreCase) -> None:
        """P-18: this process's token stays the same and is not provably dead; another token is, for one prover."""
        store = case.store
        assert store.owner() == store.owner()
        assert store.prove_dead(store.owner()) is None
        proof = store.prove_dead("123-dead")
        assert proof is not None
        assert store.prove_dead("123-dead") is None
        proof.close()
        again = store.prove_dead("123-dead")
        again.forget()
        again.close()

    @rule()
    def test_an_empty_log(self, case: StoreCase) -> None:
        """P-19: an empty log reads as empty and verifies."""
        store = case.store
        assert dump(store) == ([], [], {}, {}, [])
        assert store.row("x") is None
        report = verify(store)
        assert (report.sagas, report.records) == (0, 0)
        store.sync()

    @rule()
    def test_payload_and_body_are_stored_as_given(self, case: StoreCase) -> None:
        """P-20: values come back after their commitments were checked."""
        store = case.store
        scribe = Scribe(store, 1).open().step()
        ((_, _, values),) = [found for found in checked_records(store, scribe.id) if found[0].n == 2]
        assert values == {"kwargs.customer": '"cus_1"', "kwargs.amount": "4200"}

    @rule()
    def test_progress_and_long_chains(self, case: StoreCase) -> None:
        """P-21: chains longer than a page are read whole; progress ends at the total."""
        store = case.store
        scribe = Scribe(store, 1).open()
        for _ in range(12):
            view, facts = scribe.view, [scribe.fact("waived", step=1) for _ in range(100)]
            if 1 not in view.steps:
                facts[0] = scribe.intent()
            scribe.write(*facts)
        seen: list[Any] = []
        report = verify(store, progress=lambda done, total: seen.append((done, total)))
        assert (report.records, load(store, scribe.id).row.count) == (1201, 1201)
        assert seen[-1] == (1201, 1201)

    @rule()
    def test_threads_share_a_log(self, case: StoreCase) -> None:
        """P-22: any thread may append and read; each saga's chain stays in order."""
        store = case.store
        errors: list[Any] = []

        def work(number: int) -> None:
            try:
                scribe = Scribe(store, number).open()
                for step in range(1, 30):
                    scribe.step(step)
                    assert store.row(scribe.id).count >= scribe.view.count
                scribe.end()
            except Exception as error:  # noqa: BLE001 - told below.
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            verify(store)
        for thread in threads:
            thread.join()
        assert errors == []
        assert verify(store).records == 4 * 60

    @rule()
    def test_an_interrupted_append_writes_nothing(self, case: StoreCase) -> None:
        """P-23: Ctrl-C before the commit leaves the log as it was; it works on."""
        store = case.store
        scribe = Scribe(store, 1).open()
        before = dump(store)
        item = scribe.item(scribe.intent())
        with pytest.raises(KeyboardInterrupt):
            store.append([changed(item, drafts=Interrupted(item.drafts))], durable=True)
        assert before == dump(store)
        scribe.step()
        assert verify(store).records == 3

    @rule()
    def test_a_record_that_cannot_be_encoded_is_our_bug(self, case: StoreCase) -> None:
        """P-24: text that is no UTF-8 in a body raises; nothing of the item is written and the log works on."""
        store = case.store
        scribe = Scribe(store, 1).open()
        with pytest.raises(InvariantViolation):
            store.append([scribe.item(scribe.fact("abandoned", reason="\ud800"))], durable=True)
        scribe.step()
        assert verify(store).records == 3
