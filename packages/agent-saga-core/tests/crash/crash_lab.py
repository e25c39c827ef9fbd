"""One experiment: a folder with a log and a world, processes that work on them, and the comparison of the two."""

import json
import os
import shutil
import signal
from collections import Counter
from itertools import count
from pathlib import Path

from crash_world import World

from agent_saga.machine.plan import leftovers
from agent_saga.machine.report import bucket_of, report_of
from agent_saga.model.records import CompensationIntent, CompensationOutcome, Intent
from agent_saga.model.values import decode
from agent_saga.store.open import open_log
from agent_saga.store.port import Query
from agent_saga.store.reader import checked_records, load
from agent_saga.store.verify import verify

NAMED_AS_LEFT = {"in_doubt", "failed", "orphaned", "conflicted"}


class Lab:
    """Makes rooms: fresh ones, and copies of what a crash left."""

    def __init__(self, nursery, folder):
        self.nursery, self.folder, self._rooms = nursery, folder, 0

    def room(self):
        room = Room(self.nursery, self._next())
        World.create(room.world_path).close()
        return room

    def copy(self, room):
        """Return a room with the same log and world; nobody may have them open."""
        copied = Room(self.nursery, self._next(make=False))
        shutil.copytree(room.folder, copied.folder)
        return copied

    def _next(self, *, make=True):
        self._rooms += 1
        folder = self.folder / f"room-{self._rooms}"
        if make:
            folder.mkdir()
        return folder


class Room:
    def __init__(self, nursery, folder):
        self.nursery, self.folder = nursery, folder
        self.log_path, self.world_path = folder / "log.db", folder / "world.db"
        self._jobs = 0

    def start(self, do, **job):
        """Start a process; `wait` gives what it returned."""
        self._jobs += 1
        out = self.folder / f"out-{self._jobs}"
        places = {"log": str(self.log_path), "world": str(self.world_path), "out": str(out)}
        return Running(self, self.nursery.start({"do": do, **places, **job}), out)

    def run(self, do, **job):
        """Run a process to its end; None when it was killed at its crash point."""
        return self.start(do, **job).wait()

    def recover(self, **job):
        return self.run("recover", **job)

    def discard(self):
        shutil.rmtree(self.folder)

    # -- what is true afterwards ----------------------------------------------------------------------------------

    def world(self):
        world = World(self.world_path)
        try:
            return world.all()
        finally:
            world.close()

    def standing(self):
        """Return the things that stand."""
        net = Counter()
        for _, op, thing, _ in self.world()[1]:
            net[thing] += 1 if op == "do" else -1
        assert set(net.values()) <= {0, 1}, f"compensated more, or done more, than once: {net}"
        return {thing for thing, count in net.items() if count}

    def log(self):
        """Return every saga as (view, records), amendments apart, and the last position."""
        if not self.log_path.exists():
            return [], 0
        store = open_log(str(self.log_path), create=False)
        try:
            rows = store.rows(Query(limit=10_000))
            sagas = [
                (load(store, row.saga_id).view, [r for _, r, _ in checked_records(store, row.saga_id)]) for row in rows
            ]
            tail = store.tail(limit=100_000)
            return sagas, tail[-1].pos if tail else 0
        finally:
            store.close()

    def verify(self):
        if self.log_path.exists():
            store = open_log(str(self.log_path), create=False)
            try:
                verify(store)
            finally:
                store.close()


def crashes_of(lab, do, *, start=None, first=1, every=1, **job):
    """Yield a room and the crash point for each point of a run; the last room is of the run that was not killed.

    start: a room that each run begins with a copy of.
    first: number or name of the first point.
    every: only each `every`-th point, for quick tests.
    """
    if isinstance(first, str):
        trial = (lab.room() if start is None else lab.copy(start)).run(do, **job)
        first = trial["points"].index(first) + 1
    for point in count(first, every):
        room = lab.room() if start is None else lab.copy(start)
        result = room.run(do, crash_at=point, **job)
        yield room, point
        room.discard()
        if result is not None:
            return


class Running:
    """A process at work. With `stop_at` it stops (SIGSTOP) at the points named there."""

    def __init__(self, room, pid, out):
        self.room, self.pid, self._out = room, pid, out

    def stopped(self):
        """Wait until it has stopped at its next point."""
        assert self.has_stopped(), "it ended instead"
        return self

    def has_stopped(self):
        """Wait until it has stopped or ended; tell which."""
        return self.room.nursery.wait_stopped(self.pid)

    def go_on(self, *signals):
        """Let it go on, with these signals delivered first."""
        for number in (*signals, signal.SIGCONT):
            os.kill(self.pid, number)
        return self

    def kill(self):
        self.strike()
        assert self.wait() is None

    def strike(self):
        """Send SIGKILL, whether it still runs or has ended: it is not waited for here, so its id stays its own."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        """Wait until it has ended; return its result, or None when it was killed."""
        code = self.room.nursery.wait(self.pid)
        if code in {-signal.SIGKILL, -signal.SIGALRM}:
            return None
        if code == 256 - signal.SIGINT:
            return {"ended": "KeyboardInterrupt"}
        assert code == 0, f"exit code {code}"
        return json.loads(Path(self._out).read_text())


# -- the rules ----------------------------------------------------------------------------------------------------


def check_truth(room, *, clean):
    """Compare the log's account with the world, after everything has been recovered.

    clean: nothing may be left, not even in doubt.
    """
    sagas, _ = room.log()
    standing = room.standing()
    known = set()
    for view, records in sagas:
        assert view.ended, view.state
        assert view.owner is None
        report = report_of(view)
        left = {step.no for step in leftovers(view)}
        for step in view.steps.values():
            thing = decode(step.kwargs["thing"])
            known.add(thing)
            bucket = bucket_of(view, step)
            if report.outcome == "rolled_back" and thing in standing:
                assert bucket in NAMED_AS_LEFT, f"{thing} stands and is {bucket}"
                assert step.no in left
            elif report.outcome == "rolled_back":
                assert bucket in {None, "compensated", "in_doubt"}, f"{thing} is gone and {bucket}"
            else:
                assert (bucket, thing in standing) in {("kept", True), ("compensated", False), (None, False)}
        if report.clean or clean:
            assert report.outcome == "committed" or report.clean, report.format_text()
        check_attempts(room, view, records)
    assert standing <= known, "an effect without a saga"


def check_attempts(room, view, records):
    """Every attempt was recorded first; nothing that succeeded ran again; one effect per key."""
    attempts, effects = (Counter((op, thing) for _, op, thing, _ in rows) for rows in room.world())
    per_key = Counter((op, key) for _, op, _, key in room.world()[1] if key)
    assert set(per_key.values()) <= {1}, per_key
    for step in view.steps.values():
        thing = decode(step.kwargs["thing"])
        mine = [record for record in records if getattr(record, "step", None) == step.no]
        assert attempts["do", thing] <= sum(isinstance(record, Intent) for record in mine)
        tried = [record for record in mine if isinstance(record, CompensationIntent)]
        assert attempts["undo", thing] <= len(tried)
        assert effects["do", thing] <= 1
        done = [
            i
            for i, r in enumerate(mine)
            if isinstance(r, CompensationOutcome) and r.state in {"compensated", "already_done"}
        ]
        assert len(done) <= 1
        assert not done or not any(isinstance(record, CompensationIntent) for record in mine[done[0] :])


def recover_for_good(room, **job):
    """Recover twice; the second time nothing happens, in the world or in the log. Returns what the first one said."""
    first = room.recover(**job)
    room.verify()
    world, log = room.world(), room.log()
    second = room.recover(**job)
    assert world == room.world()
    assert log == room.log()
    for told in first["sagas"]:
        (view,) = [view for view, _ in log[0] if view.id == told["saga"]]
        if told["report"] is not None:
            assert told["report"] == report_of(view).to_dict()
            assert {step for step, _, _ in told["left"]} == {step.no for step in leftovers(view)}
    return first, second
