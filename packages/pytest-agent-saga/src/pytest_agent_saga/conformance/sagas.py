"""Sagas for the store suite, written the way the engine writes them: each item carries the fold's row."""

from __future__ import annotations

import copy
import itertools
import random
from decimal import Decimal
from typing import Any, Final

from agent_saga.machine.fold import amend, apply, begin
from agent_saga.machine.gate import facts_of
from agent_saga.machine.row import row_of
from agent_saga.model import records as r
from agent_saga.model.ids import make_saga_id, step_id
from agent_saga.model.requirements import Approved, Free, Within
from agent_saga.store import reader
from agent_saga.store.port import Amended, Committed, Draft, FactsChange, Item, Refused


def load(store: Any, saga: str) -> Any:
    """Return a saga that is in the log."""
    return reader.load(store, saga)


Wording = tuple[Any, bytes | None, dict[str, str]]
"""A record, its payload, and its values as texts."""
KINDS: Final[dict[str, Any]] = {
    "decision": r.Decided,
    "approval_requested": r.ApprovalRequested,
    "approval_decided": r.ApprovalDecided,
    "approval_consumed": r.ApprovalConsumed,
    "reserved": r.Reserved,
    "operator_action": r.OperatorAction,
    "intent": r.Intent,
    "outcome": r.Outcome,
    "late_outcome": r.LateOutcome,
    "probed": r.Probed,
    "rollback_started": r.RollbackStarted,
    "compensation_intent": r.CompensationIntent,
    "compensation_outcome": r.CompensationOutcome,
    "suspended": r.Suspended,
    "claimed": r.Claimed,
    "released": r.Released,
    "abandoned": r.Abandoned,
    "settled": r.Settled,
    "waived": r.Waived,
    "scope_opened": r.ScopeOpened,
    "scope_ended": r.ScopeEnded,
    "replayed": r.Replayed,
    "saga_ended": r.SagaEnded,
}
RECIPE = r.Recipe(name="refund", version=1, bind={"charge_id": "result.id"}, idempotent=True)


def saga_id(number: int) -> str:
    return make_saga_id(1_700_000_000_000_000_000 + number * 1_000_000, number.to_bytes(10, "big"))


def facts_in(view: Any) -> frozenset[Any]:
    return frozenset() if view is None else facts_of(view, sealed=row_of(view).sealed)


def change(before: Any, after: Any) -> FactsChange | None:
    return None if before == after else FactsChange(added=after - before, removed=before - after)


class Scribe:
    """The owner of one saga."""

    def __init__(self, store: Any, number: int, owner: str = "owner-1", seed: int = 7) -> None:
        self.store, self.id, self.owner = store, saga_id(number), owner
        self.random = random.Random(f"{seed}-{number}")  # noqa: S311 - payload salts of a test.
        self.clock = itertools.count(1_700_000_000_000_000_000 + number * 1_000_000, 1000)
        self.view: Any = None
        self.next: Any = None

    def fact(self, kind: str, values: Any = None, **fields: Any) -> Wording:
        texts = values or {}
        commitments, payload = r.seal_values(texts, self.random.randbytes(16 * len(texts)))
        record = KINDS[kind](v=1, saga=self.id, n=0, pos=0, at=next(self.clock), values=commitments, **fields)
        return record, payload, texts

    def open_item(self, *facts: Any, name: str = "checkout", **fields: Any) -> Item:
        first = r.SagaOpened(
            v=1, saga=self.id, n=0, pos=0, at=next(self.clock), name=name, owner=self.owner, epoch=1, **fields
        )
        return self.item((first, None, {}), *facts)

    def item(self, *facts: Any, claims: Any = False, row: Any = True, amended: Any = None, requires: Any = ()) -> Item:
        view = copy.deepcopy(self.view)
        before = facts_in(view)
        count = 0 if view is None else view.count
        for record, _, values in facts:
            if view is None:
                view = begin(record)
            else:
                apply(view, record, values)
        self.next = view
        drafts = [Draft(body=record, payload=payload) for record, payload, _ in facts]
        return Item(
            saga_id=self.id,
            epoch=view.epoch,
            count=count,
            drafts=drafts,
            row=row_of(view) if row else None,
            claims=claims,
            amended=amended,
            requires=requires,
            facts=change(before, facts_in(view)),
        )

    def amended(self, target_id: str, *facts: Any) -> Amended:
        """The change that facts of this saga bring to another one."""
        loaded = load(self.store, target_id)
        seen, before = loaded.row, facts_in(loaded.view)
        for record, _, values in facts:
            amend(loaded.view, record, values)
        return Amended(
            saga_id=target_id,
            epoch=loaded.view.epoch,
            count=seen.count,
            amendments=seen.amendments,
            row=row_of(loaded.view),
            facts=change(before, facts_in(loaded.view)),
        )

    def put(self, item: Any, *, durable: Any = False) -> Any:
        (verdict,) = self.store.append([item], durable=durable)
        if isinstance(verdict, Committed):
            self.view = self.next
        if isinstance(verdict, Refused):
            self.view = load(self.store, self.id).view
        return verdict

    def open(self, *facts: Any, durable: Any = False, **fields: Any) -> Scribe:
        verdict = self.put(self.open_item(*facts, **fields), durable=durable)
        assert isinstance(verdict, Committed), verdict
        return self

    def write(self, *facts: Any, durable: Any = False, **options: Any) -> Scribe:
        verdict = self.put(self.item(*facts, **options), durable=durable)
        assert isinstance(verdict, Committed), verdict
        return self

    def intent(self, step: int = 1, **fields: Any) -> Wording:
        values = {"kwargs.customer": '"cus_1"', "kwargs.amount": "4200"}
        options = {"effect": "compensable", "recipe": RECIPE, **fields}
        return self.fact("intent", values, step=step, tool="charge", version=1, key=step_id(self.id, step), **options)

    def outcome(self, step: int = 1, state: str = "succeeded", **fields: Any) -> Wording:
        if state != "succeeded":
            return self.fact("outcome", {"error": '"boom"'}, step=step, state=state, error="ValueError", **fields)
        values = {"result": '{"id":"ch_1"}', "compensation.charge_id": '"ch_1"'}
        return self.fact("outcome", values, step=step, state=state, bound=True, **fields)

    def compensation(self, step: int = 1, attempt: int = 1) -> Wording:
        key = f"{self.id}:{step}:c1"
        return self.fact("compensation_intent", step=step, compensator="refund", version=1, key=key, attempt=attempt)

    def compensated(self, step: int = 1, attempt: int = 1, state: str = "compensated", **fields: Any) -> Wording:
        return self.fact("compensation_outcome", step=step, state=state, attempt=attempt, **fields)

    def request(self, number: int = 1, *, quorum: int = 1, **fields: Any) -> Wording:
        values = {"kwargs.customer": '"cus_1"', "nonce": '"n"'}
        options = {"tool": "charge", "version": 1, "effect": "compensable", "digest": "00" * 32, "policy": "Asks"}
        ids = {"approval": f"{self.id}:a{number}", "reason": "big", "expires_at": 1_800_000_000_000_000_000}
        return self.fact("approval_requested", values, quorum=quorum, **options, **ids, **fields)

    def reserve(self, amount: str, step: int = 1, budget: str = "purse") -> Wording:
        return self.fact("reserved", step=step, budget=budget, amount=amount)

    def consume(self, step: int = 1, number: int = 1) -> Wording:
        return self.fact("approval_consumed", approval=f"{self.id}:a{number}", step=step)

    def step(self, step: int = 1, **fields: Any) -> Scribe:
        return self.write(self.intent(step, **fields), durable=True).write(self.outcome(step), row=False)

    def end(self, outcome: str = "committed", **fields: Any) -> Scribe:
        return self.write(self.fact("saga_ended", outcome=outcome, **fields), durable=True)

    def roll_back(self, step: int = 1) -> Scribe:
        self.write(self.fact("rollback_started", cause="ValueError: boom"), self.compensation(step))
        self.write(self.compensated(step, verified=True))
        return self.end("rolled_back", clean=True)


def committed(store: Any, number: int, **fields: Any) -> Scribe:
    return Scribe(store, number).open(**fields).step().end()


def rolled_back(store: Any, number: int, **fields: Any) -> Scribe:
    return Scribe(store, number).open(**fields).step().roll_back()


def partial(store: Any, number: int, **fields: Any) -> Scribe:
    """Ended with a step in doubt, that only a human can settle."""
    scribe = Scribe(store, number).open(**fields).write(Scribe.intent(Scribe(store, number), 1))
    scribe.write(scribe.fact("rollback_started", cause="boom"))
    return scribe.end("rolled_back")


def settle(store: Any, number: int, target: Any, verdict: str = "did-not-happen") -> Scribe:
    """A human settles step 1 of `target`."""
    scribe = Scribe(store, number, owner="human-1")
    settled = scribe.fact("settled", {"evidence": '"looked"'}, step=1, verdict=verdict, by="ann")
    ended = scribe.fact("saga_ended", outcome="committed")
    item = scribe.open_item(settled, ended, name="settle", amends=target, by="ann")
    opening: Wording = (item.drafts[0].body, None, {})
    amended = scribe.amended(target, opening, settled, ended)
    item = Item(**{name: getattr(item, name) for name in item.__struct_fields__} | {"amended": amended})
    assert isinstance(scribe.put(item), Committed)
    return scribe


def small(store: Any, number: int, target: Any, *facts_of_kind: Any, **opening: Any) -> Scribe:
    """A small saga that states facts about `target`, or, without one, is about itself."""
    scribe = Scribe(store, number, owner="human-1")
    facts = [scribe.fact(kind, **fields) for kind, fields in facts_of_kind]
    facts.append(scribe.fact("saga_ended", outcome="committed"))
    item = scribe.open_item(*facts, amends=target, by="ann", **opening)
    if target is not None:
        amended = scribe.amended(target, (item.drafts[0].body, None, {}), *facts)
        item = Item(**{name: getattr(item, name) for name in item.__struct_fields__} | {"amended": amended})
    assert isinstance(scribe.put(item), Committed)
    return scribe


def decide(store: Any, number: int, request: str, decision: str = "approved", by: str = "ann") -> Scribe:
    word = ("approval_decided", {"approval": request, "decision": decision, "by": by})
    return small(store, number, request.partition(":")[0], word, name="approval")


def act(store: Any, number: int, action: str, scope: str, **fields: Any) -> Scribe:
    return small(store, number, None, ("operator_action", {"action": action, "scope": scope, "by": "ann", **fields}))


def lift(store: Any, number: int, target: Any, action: str = "lift", scope: str = "*") -> Scribe:
    return small(store, number, target, ("operator_action", {"action": action, "scope": scope, "by": "bob"}))


def gated(store: Any, first: int) -> Any:
    """Sagas that asked, spent, took and were refused; operators' actions in force and lifted."""
    until = 1_900_000_000_000_000_000
    asked = Scribe(store, first).open().write(Scribe(store, first).request(quorum=2))
    decide(store, first + 1, f"{asked.id}:a1")
    decide(store, first + 2, f"{asked.id}:a1", by="bob")
    asked.view = load(store, asked.id).view
    intent = asked.intent(resources=["box:1", "box:2"])
    good: tuple[Any, ...] = (
        Free(names=("box:1", "box:2")),
        Within(budget="purse", amount=Decimal("1.50"), limit=Decimal(10)),
    )
    good += (Approved(approval=f"{asked.id}:a1", now_ns=until - 10**18),)
    asked.write(intent, asked.reserve("1.50"), asked.consume(), requires=good).write(asked.outcome(), row=False)
    too_much = (Within(budget="purse", amount=Decimal(9), limit=Decimal(10)),)
    assert isinstance(asked.put(asked.item(asked.intent(2), asked.reserve("9", 2), requires=too_much)), Refused)
    asked.write(asked.request(2), asked.request(3))
    asked.write(asked.fact("approval_decided", approval=f"{asked.id}:a2", decision="expired", by="clock"))
    decide(store, first + 3, f"{asked.id}:a3", decision="rejected")
    tried = Scribe(store, first + 4).open()
    tried.write(tried.intent(), tried.reserve("2"), tried.reserve("0.5")).write(tried.outcome(state="failed"))
    again = tried.intent(attempt=2)
    tried.write(again, tried.reserve("3"), tried.reserve("4", budget="other")).write(tried.outcome(attempt=2)).end()
    freed = Scribe(store, first + 5).open()
    freed.write(freed.intent(resources=["box:3"]), freed.reserve("5")).write(freed.outcome(state="failed"))
    freed.write(freed.request()).write(freed.fact("rollback_started", cause="x"))
    freed.write(freed.fact("approval_decided", approval=f"{freed.id}:a1", decision="withdrawn", by="saga"))
    freed.end("rolled_back", clean=True)
    doubted = Scribe(store, first + 6).open()
    doubted.write(doubted.intent(takes_key=True), doubted.reserve("7", budget="third"))
    doubted.write(doubted.outcome(state="in_doubt"), doubted.intent(attempt=2, takes_key=True))
    doubted.write(doubted.outcome(attempt=2, state="failed"), row=False)
    act(store, first + 7, "halt", "*", reason="fire", expires_at=until)
    lift(store, first + 8, saga_id(first + 7))
    act(store, first + 9, "halt", "tool:charge")
    act(store, first + 10, "quarantine", f"saga:{asked.id}", reason="odd")
    act(store, first + 11, "drain", "tag:eu", reason="deploy")
    act(store, first + 12, "key_added", "ann", data="ab" * 32)
    act(store, first + 13, "key_added", "bob", data="cd" * 32)
    lift(store, first + 14, saga_id(first + 13), "key_removed", "bob")
    waits = Scribe(store, first + 15).open()
    waits.write(waits.request(quorum=2))
    decide(store, first + 16, f"{waits.id}:a1")


def late_landing(store: Any, number: int, target: Any) -> Scribe:
    """A landing becomes known after `target` was sealed, and is compensated in two items."""
    scribe = Scribe(store, number, owner="owner-9")
    values = {"result": '{"id":"ch_2"}', "compensation.charge_id": '"ch_2"'}
    late = scribe.fact("late_outcome", values, step=1, state="succeeded", bound=True)
    intent = scribe.compensation()
    item = scribe.open_item(late, intent, name="late", amends=target)
    amended = scribe.amended(target, (item.drafts[0].body, None, {}), late, intent)
    item = Item(**{name: getattr(item, name) for name in item.__struct_fields__} | {"amended": amended})
    assert isinstance(scribe.put(item), Committed)
    facts = (scribe.compensated(), scribe.fact("saga_ended", outcome="committed"))
    return scribe.write(*facts, amended=scribe.amended(target, *facts))


def varied(store: Any) -> Any:
    """One saga of every sort."""
    committed(store, 1, name="a/b\n" + "x" * 100, tags=["one", "zwei ü"])
    rolled_back(store, 2, key="order-1")
    committed(store, 3, key="order-1", incarnation=2)
    partial(store, 4, key="order-2")
    settle(store, 5, saga_id(4))
    partial(store, 6)
    Scribe(store, 7).open(on_crash="resume").step()
    waiting = Scribe(store, 8).open(suspend_ttl_s=60.0).step()
    waiting.write(waiting.fact("suspended", reason="approval", expires_at=1_800_000_000_000_000_000))
    nested = Scribe(store, 9).open().write(Scribe(store, 9).fact("scope_opened", scope=1, parent=0, name="inner"))
    nested.write(nested.intent(1, scope=1)).write(nested.outcome(1), row=False)
    nested.write(nested.fact("outcome", {"result": "1"}, step=2, state="succeeded", tool="look"), row=False)
    nested.write(nested.fact("decision", tool="charge", decision="refuse", policy="limit", reason="too much"))
    nested.write(nested.fact("scope_ended", scope=1, outcome="committed")).end()
    claimed = Scribe(store, 10).open().step()
    claimed.write(claimed.fact("claimed", owner="owner-2", epoch=2), claims=True)
    claimed.write(claimed.fact("rollback_started", cause="the owner died"), claimed.compensation())
    claimed.write(claimed.compensated(state="failed", reason="HTTP 503", next_at=1_700_000_100_000_000_000))
    claimed.end("rolled_back")
    failed = Scribe(store, 11).open()
    failed.write(failed.intent()).write(failed.outcome(state="failed", assumed=True), row=False)
    failed.write(failed.fact("rollback_started", cause="x")).end("rolled_back", clean=True)
    late_landing(store, 12, failed.id)
    partial(store, 13)
    return store


def everything(store: Any) -> Any:
    """The same, and what the gate leaves."""
    gated(varied(store), 20)
    return store


def dump(store: Any) -> tuple[Any, ...]:
    """Everything that a reader can see, for comparisons."""
    from agent_saga.store.verify import all_rows

    rows = list(all_rows(store))
    facts = {row.saga_id: store.facts_of(row.saga_id) for row in rows}
    amending = {row.saga_id: store.amendments(row.saga_id) for row in rows}
    return rows, store.tail(limit=100_000), amending, facts, store.halts()
