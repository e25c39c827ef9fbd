"""Any sequence of items, crashes and reopenings: the SQLite log does what the memory log does. Rule ids: M-n."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from store_cases import Scribe, dump

from agent_saga.audit.leaves import root
from agent_saga.machine.states import ENDED, StepState
from agent_saga.store.memory import MemoryLog
from agent_saga.store.port import Committed, Item
from agent_saga.store.reader import load
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import verify


def changed(item, **fields):
    return Item(**{name: getattr(item, name) for name in item.__slots__} | fields)


class Logs(RuleBasedStateMachine):
    """Both logs get the same items; they must give the same verdicts and show the same."""

    open_sagas = Bundle("open_sagas")

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "log.db"
        self.memory = MemoryLog()
        self.others = [SqliteLog(self.path, create=True), SqliteLog(self.path, create=True)]
        self.abandoned = []
        self.number = 0

    def put(self, items, which, durable):
        expected = self.memory.append(items, durable=durable)
        found = self.others[which].append(items, durable=durable)
        assert expected == found
        return expected

    def put_one(self, scribe, item, which=0, *, durable=False):
        (verdict,) = self.put([item], which, durable)
        if isinstance(verdict, Committed):
            scribe.view = scribe.next
        return verdict

    @rule(target=open_sagas, key=st.sampled_from([None, "a", "b"]), which=st.integers(0, 1), bump=st.integers(0, 1))
    def open_saga(self, key, which, bump):
        self.number += 1
        scribe = Scribe(self.memory, self.number)
        newest = None if key is None else self.memory.row_of_key(key)
        incarnation = 1 if newest is None else newest.row.incarnation + bump
        self.put_one(scribe, scribe.open_item(key=key, incarnation=max(1, incarnation)), which)
        return scribe

    @precondition(lambda self: self.number)
    @rule(scribe=open_sagas, which=st.integers(0, 1), durable=st.booleans(), outcome=st.booleans())
    def step(self, scribe, which, durable, outcome):
        view = scribe.view
        if view is None or view.state.value != "open":
            return
        step = len(view.steps) + 1
        self.put_one(scribe, scribe.item(scribe.intent(step)), which, durable=durable)
        if outcome and scribe.view is not view:
            self.put_one(scribe, scribe.item(scribe.outcome(step), row=False), which)

    @rule(scribe=open_sagas, which=st.integers(0, 1), back=st.booleans())
    def end(self, scribe, which, back):
        view = scribe.view
        if view is None or view.state.value != "open":
            return
        facts = [scribe.fact("saga_ended", outcome="committed")]
        if back:
            facts = [scribe.fact("rollback_started"), scribe.fact("saga_ended", outcome="rolled_back")]
        self.put_one(scribe, scribe.item(*facts), which)

    @rule(scribe=open_sagas, which=st.integers(0, 1))
    def claim(self, scribe, which):
        loaded = load(self.memory, scribe.id)
        if loaded is None or loaded.row.leaf is not None:
            return
        scribe.view = loaded.view
        claimed = scribe.fact("claimed", owner="other", epoch=scribe.view.epoch + 1)
        self.put_one(scribe, scribe.item(claimed, claims=True), which)

    @rule(scribe=open_sagas, which=st.integers(0, 1), back=st.integers(0, 2), epoch=st.integers(0, 3))
    def stale(self, scribe, which, back, epoch):
        if scribe.view is None or scribe.view.state in ENDED or scribe.view.count <= back:
            return
        step = len(scribe.view.steps) + 1
        if scribe.view.state.value == "open":
            item = scribe.item(scribe.intent(step), row=False)
            self.put([changed(item, count=max(1, item.count - back), epoch=epoch)], which, durable=False)
            scribe.view = load(self.memory, scribe.id).view

    @rule(scribe=consumes(open_sagas), which=st.integers(0, 1))
    def settle(self, scribe, which):
        loaded = load(self.memory, scribe.id)
        if loaded is None:
            return
        doubtful = [step.no for step in loaded.view.steps.values() if step.state is StepState.IN_DOUBT]
        if not doubtful:
            return
        self.number += 1
        human = Scribe(self.memory, self.number, owner="human")
        settled = human.fact("settled", step=doubtful[0], verdict="did-not-happen", by="ann")
        ended = human.fact("saga_ended", outcome="committed")
        item = human.open_item(settled, ended, amends=scribe.id)
        amended = human.amended(scribe.id, (item.drafts[0].body, None, {}), settled, ended)
        if which:
            amended = dataclasses.replace(amended, amendments=amended.amendments + 1)
        self.put_one(human, changed(item, amended=amended), which)

    @rule(which=st.integers(0, 1))
    def crash(self, which):
        """The process of one connection dies: nothing is closed, another one opens the file."""
        self.abandoned.append(self.others[which])
        self.others[which] = SqliteLog(self.path, create=True)

    @rule(which=st.integers(0, 1))
    def reopen(self, which):
        self.others[which].close()
        self.others[which] = SqliteLog(self.path, create=True)

    @rule(which=st.integers(0, 1))
    def sync(self, which):
        self.others[which].sync()

    @invariant()
    def both_show_the_same(self):
        assert dump(self.memory) == dump(self.others[0])

    def teardown(self):
        for log in (*self.others, *self.abandoned):
            log.close()
        with_file = SqliteLog(self.path, create=True)
        assert (verify(self.memory).records, root(self.memory)) == (verify(with_file).records, root(with_file))
        with_file.close()
        shutil.rmtree(self.folder)


TestLogs = Logs.TestCase
TestLogs.__doc__ = "M-1: verdicts, records, rows, amendments and tree are equal after every operation."
TestLogs.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
