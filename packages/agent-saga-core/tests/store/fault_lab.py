"""What a log's process does, on a file system that fails, and a world apart from the log to compare with."""

import atexit
import contextlib
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from store_cases import Scribe, dump, everything, partial, saga_id

from agent_saga import AgentKit, Landed, NotLanded, compensator, current_step
from agent_saga.errors import SagaError
from agent_saga.machine.report import report_of
from agent_saga.model.records import Recipe
from agent_saga.runtime.ops import drive
from agent_saga.runtime.process import _process
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.verdict import settle_by_hand
from agent_saga.runtime.writer import Writer
from agent_saga.store.open import open_log
from agent_saga.store.reader import load
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import all_rows, verify


class Ledger:
    """The world: what stands, and every attempt."""

    @classmethod
    def clear(cls):
        cls.attempts, cls.standing = [], {}


Ledger.clear()


class Planned(Exception):
    """The saga is to fail here."""


def look(key, kwargs):
    return Landed({"thing": kwargs["thing"]}) if kwargs["thing"] in Ledger.standing else NotLanded()


@compensator("fault.put_back", idempotent=True)
def put_back(thing: str) -> None:
    Ledger.attempts.append(("undo", thing))
    Ledger.standing.pop(thing, None)


def take(thing: str) -> dict:
    Ledger.attempts.append(("do", thing))
    assert thing not in Ledger.standing, "twice"
    Ledger.standing[thing] = current_step().key
    return {"thing": thing}


def make_tool(kit):
    return kit.wrap(take, effect="compensable", compensate=put_back.bind(thing="kwargs.thing"), probe=look)


make_tool(AgentKit("memory:"))  # A recovery finds the probe by its name, in whatever order the tests run.


class Place:
    """A log in a folder, and what was said to be in it."""

    def __init__(self, path, vfs=None):
        self.path, self.vfs = path, vfs
        self.said = {}  # saga -> the number of records that were said to be committed
        self.reports = []  # what was said of ended sagas

    def log(self, *, create=True):
        return SqliteLog(self.path, create=create, vfs=self.vfs, wait_s=0.02)

    @contextlib.contextmanager
    def kit(self):
        kit = AgentKit("memory:")
        writer = Writer(self.log(), kit.writer()._executor)
        _process.writers[f"fault:{id(writer)}"] = writer
        kit._writer = writer
        try:
            yield kit
        finally:
            with contextlib.suppress(SagaError):
                kit.close()

    @contextlib.contextmanager
    def writer(self):
        with ThreadPoolExecutor(1) as executor:
            writer = Writer(self.log(create=False), executor)
            try:
                yield writer
            finally:
                with contextlib.suppress(SagaError):
                    writer.close()

    def committed(self, scribe):
        self.said[scribe.id] = scribe.view.count


# -- what is tried ------------------------------------------------------------------------------------------------


def opens(place):
    """Make a log with its first record."""
    with contextlib.closing(place.log()) as log:
        place.committed(Scribe(log, 1).open(durable=True))


def appends(place):
    """Write a saga's life, with and without waiting for the device."""
    with contextlib.closing(place.log()) as log:
        scribe = Scribe(log, 2).open()
        place.committed(scribe)
        for step in (1, 2):
            place.committed(scribe.step(step))
        log.sync()
        place.committed(scribe.roll_back(2))


def reads(place):
    """Open, list, load and verify."""
    with contextlib.closing(place.log(create=False)) as log:
        log.open_now()
        shown = dump(log)
        assert shown == place.before
        for row in all_rows(log):
            load(log, row.saga_id)
        verify(log)


def lives(place):
    """Run two sagas: one commits, one fails and is rolled back."""
    with place.kit() as kit:
        book = make_tool(kit)
        with kit.transaction("good") as saga:
            book("flight")
        place.reports.append(saga.report)
        with contextlib.suppress(Planned), kit.transaction("bad") as saga:
            book("hotel")
            book("car")
            raise Planned
        place.reports.append(saga.report)


def recovers(place):
    """Finish what a dead process left: a standing step, one in doubt that landed, one in doubt that did not."""
    with place.writer() as writer:
        for one in drive(sweep(writer)):
            if one.report is not None:
                place.reports.append(one.report)


def _finish_what_waits(place):
    """What could not read whether it was halted is suspended: recovery rolls it back when it is named."""
    with place.writer() as writer:
        for row in list(all_rows(writer.store)):
            if row.leaf is None:
                drive(sweep(writer, saga_id=row.saga_id))


def settles(place):
    """Record a human's word."""
    with place.writer() as writer:
        settle_by_hand(writer, saga_id(4), 1, "did-not-happen", evidence="looked", by="ann")
    place.said[saga_id(4)] = 3


ACTS = {act.__name__: act for act in (opens, appends, reads, lives, recovers, settles)}


# -- what was there before ----------------------------------------------------------------------------------------


_made: dict = {}


def prepare(name, folder):
    """Return a place without faults that holds what an act needs, in a folder that is not there yet."""
    Ledger.clear()
    if name not in _made:
        first = Path(tempfile.mkdtemp(prefix="agent-saga-faults-"))
        atexit.register(shutil.rmtree, first, ignore_errors=True)
        place = _prepared(name, first / "log.db")
        _made[name] = first, getattr(place, "before", None), Ledger.standing
    first, before, standing = _made[name]
    shutil.copytree(first, folder)
    place = Place(folder / "log.db")
    place.before, Ledger.standing = before, dict(standing)
    return place


def _prepared(name, path):
    place = Place(path)
    if name in {"reads", "settles"}:
        log = place.log()
        everything(log) if name == "reads" else partial(log, 4)
        place.before = dump(log)
        log.close()
    elif name in {"appends", "lives"}:
        with contextlib.closing(place.log()) as log:
            Scribe(log, 1).open().step().end()
    elif name == "recovers":
        _leave_a_dead_saga(place)
    return place


def _leave_a_dead_saga(place):
    with contextlib.closing(place.log()) as log:
        scribe = Scribe(log, 3, owner="gone").open()
        recipe = Recipe(name="fault.put_back", version=1, bind={"thing": "kwargs.thing"}, idempotent=True)
        for step, thing in enumerate(("flight", "hotel", "car"), start=1):
            kwargs = {"kwargs.thing": f'"{thing}"'}
            options = {"effect": "compensable", "recipe": recipe, "probe": "take:probe", "tool": "take"}
            scribe.write(scribe.fact("intent", kwargs, step=step, version=1, key=f"{scribe.id}:{step}", **options))
            if thing != "car":
                Ledger.standing[thing] = f"{scribe.id}:{step}"
            if step == 1:
                values = {"result": "1", "compensation.thing": '"flight"'}
                scribe.write(scribe.fact("outcome", values, step=1, state="succeeded", bound=True))


# -- what is true afterwards --------------------------------------------------------------------------------------


def check(place):
    """With a good disk again: what was said is so, and a recovery leaves nothing."""
    if not place.path.exists():
        assert place.said == {}
        assert place.reports == []
        assert Ledger.attempts == []
        return
    good = Place(place.path)
    with contextlib.closing(open_log(str(place.path), create=False)) as log:
        verify(log)
        for saga, count in place.said.items():
            assert log.row(saga).count >= count, "what was said to be committed is gone"
    for report in place.reports:
        if report.clean:
            assert {step.kwargs["thing"] for step in report.compensated} & Ledger.standing.keys() == set(), (
                "false clean"
            )
        if report.outcome == "committed":
            assert {step.kwargs["thing"] for step in report.kept} <= Ledger.standing.keys()
    recovers(good)
    _finish_what_waits(good)
    kept = set()
    with contextlib.closing(open_log(str(place.path), create=False)) as log:
        verify(log)
        known = set()
        for row in all_rows(log):
            view = load(log, row.saga_id).view
            report = report_of(view)
            things = {step.kwargs["thing"] for step in report.kept if "thing" in step.kwargs}
            known |= {str(text) for step in view.steps.values() for text in step.kwargs.values()}
            if report.outcome == "committed":
                kept |= things
            elif "take" in {step.tool for step in view.steps.values()}:
                assert report.clean, report.format_text()
            for said in place.reports:
                if said.saga_id == row.saga_id:
                    assert said.outcome == report.outcome, "the end that was told is not the one in the log"
    assert {f'"{thing}"' for op, thing in Ledger.attempts if op == "do"} <= known, "an effect without an intent"
    assert set(Ledger.standing) == kept, "an effect was lost"
