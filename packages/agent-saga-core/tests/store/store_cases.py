"""Sagas for the store tests, written the way the engine writes them: each item carries the fold's row."""

import copy
import itertools
import random

from agent_saga.machine.fold import amend, apply, begin
from agent_saga.machine.row import row_of
from agent_saga.model import records as r
from agent_saga.model.ids import make_saga_id, step_id
from agent_saga.store.port import Amended, Committed, Draft, Item
from agent_saga.store.reader import load

KINDS = {
    "decision": r.Decided,
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


def saga_id(number):
    return make_saga_id(1_700_000_000_000_000_000 + number * 1_000_000, number.to_bytes(10, "big"))


class Scribe:
    """The owner of one saga."""

    def __init__(self, store, number, owner="owner-1", seed=7):
        self.store, self.id, self.owner = store, saga_id(number), owner
        self.random = random.Random(f"{seed}-{number}")
        self.clock = itertools.count(1_700_000_000_000_000_000 + number * 1_000_000, 1000)
        self.view = None
        self.target = None

    def fact(self, kind, values=None, **fields):
        texts = values or {}
        commitments, payload = r.seal_values(texts, self.random.randbytes(16 * len(texts)))
        record = KINDS[kind](v=1, saga=self.id, n=0, pos=0, at=next(self.clock), values=commitments, **fields)
        return record, payload, texts

    def open_item(self, *facts, name="checkout", **fields):
        first = r.SagaOpened(
            v=1, saga=self.id, n=0, pos=0, at=next(self.clock), name=name, owner=self.owner, epoch=1, **fields
        )
        return self.item((first, None, {}), *facts)

    def item(self, *facts, claims=False, row=True, amended=None):
        view = copy.deepcopy(self.view)
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
        )

    def amended(self, target_id, *facts):
        """The change that facts of this saga bring to another one."""
        loaded = load(self.store, target_id)
        seen = loaded.row
        for record, _, values in facts:
            amend(loaded.view, record, values)
        return Amended(
            saga_id=target_id,
            epoch=loaded.view.epoch,
            count=seen.count,
            amendments=seen.amendments,
            row=row_of(loaded.view),
        )

    def put(self, item, *, durable=False):
        (verdict,) = self.store.append([item], durable=durable)
        if isinstance(verdict, Committed):
            self.view = self.next
        return verdict

    def open(self, *facts, durable=False, **fields):
        verdict = self.put(self.open_item(*facts, **fields), durable=durable)
        assert isinstance(verdict, Committed), verdict
        return self

    def write(self, *facts, durable=False, **options):
        verdict = self.put(self.item(*facts, **options), durable=durable)
        assert isinstance(verdict, Committed), verdict
        return self

    def intent(self, step=1, **fields):
        values = {"kwargs.customer": '"cus_1"', "kwargs.amount": "4200"}
        options = {"effect": "compensable", "recipe": RECIPE, **fields}
        return self.fact("intent", values, step=step, tool="charge", version=1, key=step_id(self.id, step), **options)

    def outcome(self, step=1, state="succeeded", **fields):
        if state != "succeeded":
            return self.fact("outcome", {"error": '"boom"'}, step=step, state=state, error="ValueError", **fields)
        values = {"result": '{"id":"ch_1"}', "compensation.charge_id": '"ch_1"'}
        return self.fact("outcome", values, step=step, state=state, bound=True, **fields)

    def compensation(self, step=1, attempt=1):
        key = f"{self.id}:{step}:c1"
        return self.fact("compensation_intent", step=step, compensator="refund", version=1, key=key, attempt=attempt)

    def compensated(self, step=1, attempt=1, state="compensated", **fields):
        return self.fact("compensation_outcome", step=step, state=state, attempt=attempt, **fields)

    def step(self, step=1, **fields):
        return self.write(self.intent(step, **fields), durable=True).write(self.outcome(step), row=False)

    def end(self, outcome="committed", **fields):
        return self.write(self.fact("saga_ended", outcome=outcome, **fields), durable=True)

    def roll_back(self, step=1):
        self.write(self.fact("rollback_started", cause="ValueError: boom"), self.compensation(step))
        self.write(self.compensated(step, verified=True))
        return self.end("rolled_back", clean=True)


def committed(store, number, **fields):
    return Scribe(store, number).open(**fields).step().end()


def rolled_back(store, number, **fields):
    return Scribe(store, number).open(**fields).step().roll_back()


def partial(store, number, **fields):
    """Ended with a step in doubt, that only a human can settle."""
    scribe = Scribe(store, number).open(**fields).write(Scribe.intent(Scribe(store, number), 1))
    scribe.write(scribe.fact("rollback_started", cause="boom"))
    return scribe.end("rolled_back")


def settle(store, number, target, verdict="did-not-happen"):
    """A human settles step 1 of `target`."""
    scribe = Scribe(store, number, owner="human-1")
    settled = scribe.fact("settled", {"evidence": '"looked"'}, step=1, verdict=verdict, by="ann")
    ended = scribe.fact("saga_ended", outcome="committed")
    item = scribe.open_item(settled, ended, name="settle", amends=target, by="ann")
    opening = (item.drafts[0].body, None, {})
    amended = scribe.amended(target, opening, settled, ended)
    item = Item(**{name: getattr(item, name) for name in item.__slots__} | {"amended": amended})
    assert isinstance(scribe.put(item), Committed)
    return scribe


def late_landing(store, number, target):
    """A landing becomes known after `target` was sealed, and is compensated in two items."""
    scribe = Scribe(store, number, owner="owner-9")
    values = {"result": '{"id":"ch_2"}', "compensation.charge_id": '"ch_2"'}
    late = scribe.fact("late_outcome", values, step=1, state="succeeded", bound=True)
    intent = scribe.compensation()
    item = scribe.open_item(late, intent, name="late", amends=target)
    amended = scribe.amended(target, (item.drafts[0].body, None, {}), late, intent)
    item = Item(**{name: getattr(item, name) for name in item.__slots__} | {"amended": amended})
    assert isinstance(scribe.put(item), Committed)
    facts = (scribe.compensated(), scribe.fact("saga_ended", outcome="committed"))
    return scribe.write(*facts, amended=scribe.amended(target, *facts))


def varied(store):
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


def dump(store):
    """Everything that a reader can see, for comparisons."""
    from agent_saga.store.verify import all_rows

    rows = list(all_rows(store))
    return rows, store.tail(limit=100_000), {row.saga_id: store.amendments(row.saga_id) for row in rows}
