"""Rules of a log about facts between sagas and what intents require. Rule ids: P-25 to P-32."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from agent_saga.machine.gate import Fact
from agent_saga.model import records as r
from agent_saga.model.requirements import Approved, Free, Undecided, Within
from agent_saga.store.port import Committed, FactsChange, Item, Refused
from agent_saga.store.reader import checked_records
from agent_saga.store.verify import verify
from pytest_agent_saga.conformance.sagas import (
    Scribe,
    act,
    decide,
    everything,
    lift,
    load,
    saga_id,
)
from pytest_agent_saga.conformance.store_case import StoreCase
from pytest_agent_saga.conformance.suite import Suite, rule


def changed(item: Item, **fields: Any) -> Item:
    return Item(**{name: getattr(item, name) for name in item.__struct_fields__} | fields)


class Interrupted(list[Any]):
    """Drafts during which Ctrl-C arrives."""

    def __iter__(self) -> Any:
        raise KeyboardInterrupt


def records_of(store: Any, saga: str) -> list[Any]:
    return [record for _, record, _ in checked_records(store, saga)]


class FactRules(Suite[StoreCase]):
    """Facts between sagas, and requirements."""

    @rule()
    def test_facts_are_put_replaced_and_removed(self, case: StoreCase) -> None:
        """P-25: an added fact replaces that of its kind, name, saga and number; removing none is fine."""
        store = case.store
        one = Fact("spend", "b", "s", 1, "5", 7)
        for change, left in (
            (FactsChange(added=frozenset({one})), [one]),
            (FactsChange(added=frozenset({one._replace(value="6")})), [one._replace(value="6")]),
            (FactsChange(removed=frozenset({one})), []),
            (FactsChange(removed=frozenset({one})), []),
            (FactsChange(added=frozenset({one}), removed=frozenset({one._replace(value="4")})), [one]),
        ):
            scribe = Scribe(store, len(store.tail()) + 1)
            scribe.put(changed(scribe.open_item(), facts=change))
            assert left == store.facts("spend") == store.facts("spend", "b") == store.facts_of("s")
            assert store.count_facts() == len(left)
        assert store.facts("spend", "c") == store.facts("odd") == store.facts_of("t") == []

    @rule()
    def test_halts_are_the_stops_and_nothing_else(self, case: StoreCase) -> None:
        """P-26: `halts` gives halts, drains and quarantines, without those that were lifted, and no other facts."""
        store = case.store
        everything(store)
        assert [(fact.kind, fact.name) for fact in store.halts()] == [
            ("drain", "tag:eu"),
            ("halt", "tool:charge"),
            ("quarantine", f"saga:{saga_id(20)}"),
        ]

    @rule()
    def test_halts_are_never_stale(self, case: StoreCase) -> None:
        """P-27: what was committed before the call is in the answer, lifted or put."""
        store = case.store
        for number in range(3):
            assert store.halts() == []
            act(store, 2 * number + 1, "halt", "*")
            assert [fact.name for fact in store.halts()] == ["*"]
            lift(store, 2 * number + 2, saga_id(2 * number + 1))

    @rule()
    def test_a_refused_item_is_committed_and_marked(self, case: StoreCase) -> None:
        """P-28: what it requires does not hold: its records are there, marked, its facts are not; its saga goes on."""
        store = case.store
        holder, other = Scribe(store, 1).open(), Scribe(store, 2).open()
        free = (Free(names=("box",)),)
        holder.write(holder.intent(resources=["box"]), requires=free)
        verdict = other.put(other.item(other.intent(resources=["box"]), other.reserve("3"), requires=free))
        assert isinstance(verdict, Refused)
        assert (verdict.holder, "'box' is held by saga" in verdict.reason) == (holder.id, True)
        marked = [one.refused for one in records_of(store, other.id) if isinstance(one, r.Intent | r.Reserved)]
        assert marked == [verdict.reason] * 2
        assert [fact.saga_id for fact in store.facts("resource")] == [holder.id]
        assert (other.view.steps[1].state, store.row(other.id).count) == ("absent", 3)
        other.write(other.intent(2)).write(other.outcome(2)).end()

    @rule()
    def test_a_budget_counts_every_saga_and_each_step_once(self, case: StoreCase) -> None:
        """P-29: others' spending counts, in the window; a step's own is replaced; what one intent asks for adds up."""
        store = case.store
        twice = Scribe(store, 1).open()
        both = (Within(budget="purse", amount=Decimal(6), limit=Decimal(10)),) * 2
        refused = twice.put(twice.item(twice.intent(), twice.reserve("6"), twice.reserve("6"), requires=both))
        assert isinstance(refused, Refused)

        def ask(amount: Any, since_ns: int = 0, step: int = 1, **fields: Any) -> Any:
            scribe = Scribe(store, len(store.tail()) + 10).open()
            within = (Within(budget="purse", amount=Decimal(amount), limit=Decimal(10), since_ns=since_ns),)
            return scribe.put(scribe.item(scribe.intent(), scribe.reserve(amount), requires=within)), scribe

        first, scribe = ask("6")
        assert isinstance(first, Committed)
        assert "has 4 left of 10, and 5 was asked" in ask("5")[0].reason
        assert isinstance(ask("5", since_ns=2**62)[0], Committed)
        again = (Within(budget="purse", amount=Decimal("4.5"), limit=Decimal(10)),)
        scribe.write(scribe.outcome(state="in_doubt"), row=False)
        more = scribe.item(scribe.intent(attempt=2), scribe.reserve("4.5"), requires=again)
        assert isinstance(scribe.put(more), Committed)
        assert sorted(fact.value for fact in store.facts("spend")) == ["4.5", "5"]

    @rule()
    def test_items_of_one_batch_see_one_another(self, case: StoreCase) -> None:
        """P-30: two that would take the last of a budget in one transaction: one does."""
        store = case.store
        scribes = [Scribe(store, number).open() for number in (1, 2)]
        within = (Within(budget="purse", amount=Decimal(6), limit=Decimal(10)),)
        items = [scribe.item(scribe.intent(), scribe.reserve("6"), requires=within) for scribe in scribes]
        assert [type(verdict) for verdict in store.append(items, durable=True)] == [Committed, Refused]
        assert verify(store).sagas == 2

    @rule()
    def test_an_approval_is_checked_in_the_transaction(self, case: StoreCase) -> None:
        """P-31: pending, expired, used and unknown approvals are refused; a good one is used."""
        store = case.store
        scribe = Scribe(store, 1).open().write(Scribe(store, 1).request())
        approval = f"{scribe.id}:a1"

        def use(now_ns: Any = 1, name: Any = approval) -> Any:
            step = len(scribe.view.steps) + 1
            good = (Approved(approval=name, now_ns=now_ns),)
            item = scribe.item(scribe.intent(step), requires=good)
            removed = frozenset(fact for fact in store.facts("approval"))
            return scribe.put(changed(item, facts=FactsChange(removed=removed)))

        assert "is pending" in use().reason
        decide(store, 2, approval)
        scribe.view = load(store, scribe.id).view
        assert "has expired" in use(now_ns=2**62).reason
        assert "was used" in use(name="other").reason
        assert isinstance(use(), Committed)
        assert "was used" in use().reason

    @rule()
    def test_a_word_counts_while_its_request_is_open(self, case: StoreCase) -> None:
        """P-32: a word on a request that somebody rejected meanwhile is recorded as refused, and changes nothing."""
        store = case.store
        scribe = Scribe(store, 1).open().write(Scribe(store, 1).request())
        approval = f"{scribe.id}:a1"
        word = scribe.item(
            scribe.fact("approval_decided", approval=approval, decision="approved", by="approver"),
            requires=(Undecided(approval=approval),),
        )
        decide(store, 2, approval, decision="rejected")
        assert isinstance(scribe.put(word), Refused)
        assert load(store, scribe.id).view.gate.approvals[approval].state == "rejected"
        assert (store.facts("approval"), verify(store).sagas) == ([], 2)
