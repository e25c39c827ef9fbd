"""Verifying together, in several processes, and while others prune. Rule ids: V-n."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from store_cases import Scribe, committed, everything, partial, saga_id, settle

from agent_saga.audit.prune import prune
from agent_saga.store import together
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import verify

PROGRAM = Path(__file__).with_name("shared_verify.py")
NOW = 10**19


def test_processes_find_what_one_finds(tmp_path):
    """V-1: forked processes find the same damage as one, in the same words; one that is killed is made up for."""
    everything(SqliteLog(tmp_path / "log.db", create=True)).close()
    (tmp_path / "copies").mkdir()
    words = [sys.executable, "-W", "error", str(PROGRAM), str(tmp_path / "log.db"), str(tmp_path / "copies")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    told = json.loads(done.stdout)
    assert told["differ"] == []
    assert told["missed"] == ["SELECT 1"]
    assert told["left"] == 0


def test_what_is_checked_together_is_what_is_checked_alone(tmp_path, monkeypatch):
    """V-2: batches of any size give the same sound sagas, with the same folds, and none is sound by itself."""
    log = everything(SqliteLog(tmp_path / "log.db", create=True))
    folds = []
    for size in (1, 2, 7, 1000):
        monkeypatch.setattr(together, "_TOGETHER", size)
        seen = []
        monkeypatch.setattr(Gatherer, "views", seen)
        verify(log, visitor=Gatherer())
        folds.append(seen)
    log.close()
    assert folds[0] == folds[1] == folds[2] == folds[3]


class Gatherer:
    """Keeps what it is given."""

    views = None

    def add(self, stored, view):
        steps = None if view is None else [(step.state, step.attempt, step.landed) for step in view.steps.values()]
        self.views.append((stored, None if view is None else view.state, steps))

    def take(self):
        return b""

    def merge(self, _taken):
        raise AssertionError


class Interrupted(SqliteLog):
    """A log in which something happens right after a page of rows was read."""

    then = None

    def rows(self, query):
        page = super().rows(query)
        then, self.then = self.then, None
        if then is not None:
            then()
        return page


@pytest.mark.parametrize("what", ["old", "amended", "open"])
def test_who_prunes_meanwhile_damages_nothing(tmp_path, what):
    """V-3: a saga that is pruned, or sealed and pruned, after its row was read is no damage to a running verify."""
    path = tmp_path / "log.db"
    other = SqliteLog(path, create=True)
    committed(other, 1)
    if what == "amended":
        partial(other, 2)
        settle(other, 3, saga_id(2))
    late = Scribe(other, 5).open().step() if what == "open" else None
    log = Interrupted(path, create=False)

    def prunes():
        if late is not None:
            late.write(late.fact("saga_ended", outcome="committed"))
        assert prune(other, before_ns=NOW, by="ann").sagas >= 1

    log.then = prunes
    report = verify(log)
    assert report.pruned >= 1
    assert any("sealed and pruned while" in line for line in report.unchecked) == (what == "open")
    assert verify(log).unchecked != report.unchecked or what != "open"
    log.close()
    other.close()
