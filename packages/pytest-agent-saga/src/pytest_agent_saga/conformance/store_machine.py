"""Any sequence of items, crashes and restarts: a log says and shows what a small model of the contract says.

The model below knows the contract in words only: it shares no code with any store, nor with the rules by which they
judge. Subclass `LogMachine`, open your log in `open_log`, and give pytest the subclass's `TestCase`. Needs hypothesis.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from agent_saga.model.requirements import Free, Within
from agent_saga.store.port import Item, Query
from agent_saga.store.verify import verify
from pytest_agent_saga.conformance.sagas import Scribe, load

if TYPE_CHECKING:
    from agent_saga.store.port import LogStore

HANDLES: Final = 2
"""How many processes seem to have the log open."""
LIMIT: Final = Decimal(5)


@dataclass(slots=True)
class Known:
    """What the contract says of one saga."""

    owner: str | None
    key: str | None = None
    incarnation: int = 1
    state: str = "open"
    epoch: int = 1
    count: int = 1
    amendments: int = 0
    leaf: int | None = None
    steps: dict[int, str] = field(default_factory=dict)
    resources: set[str] = field(default_factory=set)
    spent: dict[int, Decimal] = field(default_factory=dict)

    @property
    def work(self) -> int:
        """Steps that are left, once it has ended."""
        left = {"open": (), "committed": ("in_doubt",), "rolled_back": ("in_doubt", "standing")}[self.state]
        return sum(state in left for state in self.steps.values())

    @property
    def sealed(self) -> bool:
        """Whether nothing is left of it."""
        return self.state != "open" and self.owner is None and not self.work


class LogMachine(RuleBasedStateMachine):
    """See the module."""

    scribes: Bundle[Any] = Bundle("scribes")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="agent-saga-log-"))
        self.logs = [self.open_log(self.folder) for _ in range(HANDLES)]
        self.lost: list[Any] = []
        self.sagas: dict[str, Known] = {}
        self.keys: dict[str, str] = {}
        self.records = self.leaves = self.number = 0

    def open_log(self, folder: Path) -> LogStore:
        """Open the log of this folder; the first call makes it, later ones see what the earlier ones wrote."""
        raise NotImplementedError

    # -- how items are put and judged -----------------------------------------------------------------------------

    def _put(self, which: int, item: Item, expected: str, *, durable: bool = False) -> bool:
        """Append an item; compare the verdict, and return whether records were written."""
        (verdict,) = self.logs[which].append([item], durable=durable)
        assert (expected, item.saga_id) == (type(verdict).__name__, item.saga_id), verdict
        written = expected in {"Committed", "Refused"}
        self.records += len(item.drafts) if written else 0
        return written

    def _seal(self, known: Known) -> None:
        if known.sealed:
            known.resources.clear()
            if known.leaf is None:
                self.leaves += 1
                known.leaf = self.leaves

    def _fresh(self, scribe: Scribe, which: int) -> Known | None:
        """Let a scribe see the saga as it is; None when it takes no records."""
        scribe.store = self.logs[which]
        known = self.sagas[scribe.id]
        if known.leaf is not None:
            return None
        scribe.view = load(scribe.store, scribe.id).view
        return known

    # -- rules ----------------------------------------------------------------------------------------------------

    @rule(target=scribes, key=st.sampled_from([None, "a", "b"]), which=st.integers(0, 1), skip=st.integers(0, 1))
    def open_saga(self, key: str | None, which: int, skip: int) -> Scribe:
        """A key belongs to one saga at a time; the next incarnation comes after the one before was rolled back."""
        self.number += 1
        scribe = Scribe(self.logs[which], self.number)
        newest = self.sagas[self.keys[key]] if key in self.keys else None
        incarnation = (newest.incarnation if newest else 0) + 1 + (skip if key else 0)
        expected = "Stale" if key and skip else "Committed"
        if newest is not None and (newest.state != "rolled_back" or newest.owner is not None):
            expected = "Taken"
        item = scribe.open_item(key=key, incarnation=incarnation)
        if self._put(which, item, expected):
            scribe.view = scribe.next
            self.sagas[scribe.id] = Known(owner=scribe.owner, key=key, incarnation=incarnation)
            if key is not None:
                self.keys[key] = scribe.id
        return scribe

    @rule(
        scribe=scribes,
        which=st.integers(0, 1),
        durable=st.booleans(),
        answered=st.booleans(),
        box=st.sampled_from([None, "box:1", "box:2"]),
        amount=st.sampled_from([None, "1.5", "3"]),
    )
    def step(
        self, *, scribe: Scribe, which: int, durable: bool, answered: bool, box: str | None, amount: str | None
    ) -> None:
        """An intent gets what it requires, or is written as refused; an outcome follows."""
        known = self._fresh(scribe, which) if scribe.id in self.sagas else None
        if known is None or known.state != "open" or known.owner is None:
            return
        no = len(known.steps) + 1
        facts: list[Any] = [scribe.intent(no, resources=[box] if box else [])]
        requires: list[Any] = [Free(names=(box,))] if box else []
        if amount is not None:
            facts.append(scribe.reserve(amount, no))
            requires.append(Within(budget="purse", amount=Decimal(amount), limit=LIMIT))
        taken = any(box in other.resources for saga, other in self.sagas.items() if saga != scribe.id)
        spent = sum((one for other in self.sagas.values() for one in other.spent.values()), Decimal(0))
        refused = taken or (amount is not None and spent + Decimal(amount) > LIMIT)
        item = scribe.item(*facts, requires=tuple(requires))
        self._put(which, item, "Refused" if refused else "Committed", durable=durable)
        known.count += len(facts)
        known.steps[no] = "absent" if refused else "in_doubt"
        if refused:
            return
        known.resources |= {box} if box else set()
        if amount is not None:
            known.spent[no] = Decimal(amount)
        if answered:
            scribe.view = scribe.next
            self._put(which, scribe.item(scribe.outcome(no), row=False), "Committed")
            known.count, known.steps[no] = known.count + 1, "standing"

    @rule(scribe=scribes, which=st.integers(0, 1), back=st.booleans())
    def end(self, *, scribe: Scribe, which: int, back: bool) -> None:
        """A saga that ends without work items is sealed and gets the next leaf."""
        known = self._fresh(scribe, which) if scribe.id in self.sagas else None
        if known is None or known.owner is None:
            return
        if known.state != "open":  # Claimed after its end: it ends again as it was.
            facts = [scribe.fact("saga_ended", outcome=known.state)]
        elif back:
            facts = [scribe.fact("rollback_started"), scribe.fact("saga_ended", outcome="rolled_back")]
            known.state = "rolled_back"
        else:
            facts, known.state = [scribe.fact("saga_ended", outcome="committed")], "committed"
        self._put(which, scribe.item(*facts), "Committed", durable=True)
        known.count, known.owner = known.count + len(facts), None
        self._seal(known)
        if known.state == "rolled_back" and known.key is not None and self.keys[known.key] == scribe.id:
            self.number += 1
            later = Scribe(self.logs[which], self.number)
            self._put(which, later.open_item(key=known.key, incarnation=known.incarnation + 2), "Stale")

    @rule(
        target=scribes,
        key=st.sampled_from([None, "a"]),
        which=st.integers(0, 1),
        back=st.booleans(),
        answered=st.booleans(),
        box=st.sampled_from([None, "box:1", "box:2"]),
        amount=st.sampled_from([None, "1.5"]),
    )
    def whole(
        self, *, key: str | None, which: int, back: bool, answered: bool, box: str | None, amount: str | None
    ) -> Scribe:
        """A saga of one step from its beginning to its end: what comes after an end is rarely drawn otherwise."""
        scribe: Any = self.open_saga(key=key, which=which, skip=0)
        self.step(scribe=scribe, which=which, durable=True, answered=answered, box=box, amount=amount)
        self.end(scribe=scribe, which=which, back=back)
        return scribe  # type: ignore[no-any-return]

    @rule(scribe=scribes, which=st.integers(0, 1), owner=st.sampled_from(["owner-2", "owner-3"]))
    def claim(self, scribe: Scribe, which: int, owner: str) -> None:
        """Another owner takes over; of two that saw the same, one."""
        known = self._fresh(scribe, which) if scribe.id in self.sagas else None
        if known is None:
            return
        claimed = scribe.fact("claimed", owner=owner, epoch=known.epoch + 1)
        item = scribe.item(claimed, claims=True)
        again = copy.deepcopy(item)
        self._put(which, item, "Committed", durable=True)
        self._put(1 - which, again, "Stale")
        known.epoch, known.owner, known.count = known.epoch + 1, owner, known.count + 1

    @rule(scribe=scribes, which=st.integers(0, 1), behind=st.sampled_from(["epoch", "count", "both", "ahead"]))
    def stale(self, scribe: Scribe, which: int, behind: str) -> None:
        """Who has not seen the last record, or was replaced, writes nothing."""
        known = self._fresh(scribe, which) if scribe.id in self.sagas else None
        if known is None or known.state != "open" or known.owner is None or known.count < 2:
            return
        item = scribe.item(scribe.intent(len(known.steps) + 1), row=False)
        fields = {name: getattr(item, name) for name in item.__struct_fields__}
        fields["epoch"] -= behind in {"epoch", "both"}
        fields["count"] += {"epoch": 0, "ahead": 1}.get(behind, -1)
        self._put(which, Item(**fields), "Stale")

    @rule(scribe=scribes, which=st.integers(0, 1), late=st.booleans())
    def settle(self, *, scribe: Scribe, which: int, late: bool) -> None:
        """A human's word about a step of an ended saga is a saga of its own, and may seal the other one."""
        known = self.sagas.get(scribe.id)
        doubtful = [] if known is None else [no for no, state in known.steps.items() if state == "in_doubt"]
        if known is None or known.state == "open" or not doubtful:
            return
        self.number += 1
        human = Scribe(self.logs[which], self.number, owner="human")
        settled = human.fact("settled", step=doubtful[0], verdict="did-not-happen", by="ann")
        item = human.open_item(settled, human.fact("saga_ended", outcome="committed"), amends=scribe.id)
        amended = human.amended(scribe.id, *((draft.body, None, {}) for draft in item.drafts))
        fields = {name: getattr(item, name) for name in item.__struct_fields__} | {"amended": amended}
        self._put(which, Item(**fields), "Committed")
        known.amendments += len(item.drafts)
        known.steps[doubtful[0]] = "absent"
        known.spent.pop(doubtful[0], None)
        self._seal(known)
        mine = self.sagas[human.id] = Known(owner=None, state="committed", count=len(item.drafts))
        self._seal(mine)
        if late:  # The same word again, by who has not seen the first one.
            self.number += 1
            other = Scribe(self.logs[which], self.number, owner="human")
            again = other.open_item(other.fact("saga_ended", outcome="committed"), amends=scribe.id)
            fields = {name: getattr(again, name) for name in again.__struct_fields__} | {"amended": amended}
            self._put(which, Item(**fields), "Stale")

    @rule(first=scribes, second=scribes, which=st.integers(0, 1))
    def together(self, first: Scribe, second: Scribe, which: int) -> None:
        """Of items that share a commit, a stale one does not keep the others out."""
        ready = [self._fresh(one, which) if one.id in self.sagas else None for one in (first, second)]
        if first.id == second.id or any(one is None or one.state != "open" or one.owner is None for one in ready):
            return
        items = [
            one.item(one.fact("decision", tool="t", decision="allow", policy="p"), row=False) for one in (first, second)
        ]
        stale = Item(**{name: getattr(items[0], name) for name in items[0].__struct_fields__} | {"count": 999})
        verdicts = self.logs[which].append([stale, *items], durable=False)
        assert [type(verdict).__name__ for verdict in verdicts] == ["Stale", "Committed", "Committed"]
        self.records += 2
        for known in ready:
            assert known is not None
            known.count += 1

    @rule(which=st.integers(0, 1))
    def crash(self, which: int) -> None:
        """A process dies: nothing is closed, another one opens the log."""
        self.lost.append(self.logs[which])
        self.logs[which] = self.open_log(self.folder)

    @rule(which=st.integers(0, 1))
    def restart(self, which: int) -> None:
        """A process ends in order, and another one opens the log."""
        self.logs[which].close()
        self.logs[which] = self.open_log(self.folder)

    @rule(which=st.integers(0, 1))
    def sync(self, which: int) -> None:
        """Everything is made durable."""
        self.logs[which].sync()

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def the_log_shows_what_the_model_says(self) -> None:
        """Every handle lists the same sagas, records, keys and facts."""
        for log in self.logs:
            rows = {stored.saga_id: stored for stored in log.rows(Query(amendments=True, limit=1000))}
            assert rows.keys() == self.sagas.keys()
            for saga, known in self.sagas.items():
                row, stored = rows[saga].row, rows[saga]
                shown = (row.state, row.owner, row.epoch, row.key, row.incarnation, row.work, row.sealed)
                said = (known.state, known.owner, known.epoch, known.key, known.incarnation, known.work, known.sealed)
                assert (saga, said) == (saga, shown)
                assert (known.count, known.amendments, known.leaf) == (stored.count, stored.amendments, stored.leaf)
            assert [record.pos for record in log.tail(limit=100_000)] == list(range(1, self.records + 1))
            for key, saga in self.keys.items():
                newest = log.row_of_key(key)
                assert newest is not None
                assert newest.saga_id == saga
            held = {(fact.name, fact.saga_id) for fact in log.facts("resource")}
            assert held == {(name, saga) for saga, known in self.sagas.items() for name in known.resources}
            spent = {(fact.saga_id, fact.no): Decimal(fact.value) for fact in log.facts("spend", "purse")}
            assert spent == {(saga, no): one for saga, known in self.sagas.items() for no, one in known.spent.items()}

    def teardown(self) -> None:
        """Verify the log as a reader that comes later does."""
        try:
            for log in (*self.logs, *self.lost):
                log.close()
            last = self.open_log(self.folder)
            assert verify(last).records == self.records
            last.close()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
