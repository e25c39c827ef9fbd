"""Real processes on one file: kills, races, forks, lost -wal files. Rule ids: R-n."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_cases import Scribe, saga_id

from agent_saga.errors import CorruptLog
from agent_saga.store.open import open_log
from agent_saga.store.port import Committed, Query, Stale
from agent_saga.store.reader import load
from agent_saga.store.verify import verify

WORKER = Path(__file__).parent / "worker.py"


@pytest.fixture
def start(path):
    running = []

    def begin(task, *arguments):
        command = [sys.executable, str(WORKER), task, str(path), *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def heard(process):
    return process.stdout.readline().split()


def tell(process):
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.fixture
def log(path):
    opened = []

    def reopen():
        opened.append(open_log(str(path), create=False))
        return opened[-1]

    yield reopen
    for one in opened:
        one.close()


@pytest.mark.parametrize("commits", [1, 2, 7, 40, 300])
def test_what_was_committed_survives_a_kill(start, log, commits):
    """R-1: after SIGKILL at any point all that `append` had returned is there, undamaged, with or without `durable`."""
    worker = start("write_until_killed", 1)
    heard(worker)
    count = 0
    for _ in range(commits):
        count = int(heard(worker)[1])
    worker.kill()
    worker.wait()
    store = log()
    assert store.row(saga_id(1)).count >= count
    assert verify(store).records >= count
    assert load(store, saga_id(1)).view.steps[count - 1].state == "in_doubt"


@pytest.fixture
def killed(start, path):
    """A log whose last writer was killed, with some of its records in the -wal only."""
    worker = start("write_until_killed", 1)
    for _ in range(60):
        heard(worker)
    worker.kill()
    worker.wait()
    return path


def test_a_missing_wal_is_noticed(killed, log):
    """R-2: without its -wal the log is behind its mark, and is not read; nothing is un-committed unseen."""
    Path(f"{killed}-wal").unlink()
    with pytest.raises(CorruptLog, match="-wal"):
        log()


def test_a_writer_does_not_continue_a_log_that_lost_its_tail(killed):
    """R-3: neither does a writer continue it, and the damaged files stay as they are."""
    wal = Path(f"{killed}-wal")
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 1
    wal.write_bytes(data)
    store = open_log(str(killed), create=True)
    with pytest.raises(CorruptLog):
        store.append([Scribe(store, 2).open_item()], durable=True)
    store.close()
    assert bytes(data) == wal.read_bytes()


def test_a_damaged_wal_is_noticed_anywhere(killed, tmp_path):
    """R-4: a -wal that is cut or has a flipped bit is noticed wherever the damage is, or changes nothing."""
    wal = Path(f"{killed}-wal").read_bytes()
    before = None
    for kind in ("none", "flip", "cut"):
        for at in range(0, len(wal), max(1, len(wal) // 40)):
            copy = tmp_path / f"{kind}-{at}" / "log.db"
            copy.parent.mkdir()
            for rest in ("", "-mark"):
                shutil.copy(f"{killed}{rest}", f"{copy}{rest}")
            damaged = {"none": wal, "flip": wal[:at] + bytes([wal[at] ^ 1]) + wal[at + 1 :], "cut": wal[:at]}[kind]
            Path(f"{copy}-wal").write_bytes(damaged)
            try:
                store = open_log(str(copy), create=False)
            except CorruptLog:
                assert kind != "none"
                continue
            records = store.tail(limit=100_000)
            before = before or records
            assert before == records, f"{kind} {at}"
            store.close()


def test_a_missing_mark_is_said_and_is_no_damage(killed, log):
    """R-5: without a mark the log is read, and `verify` says that the tail was not checked."""
    Path(f"{killed}-mark").unlink()
    report = verify(log())
    assert any("mark" in line for line in report.unchecked)
    Path(f"{killed}-mark").write_text("garbage")
    assert verify(log()).unchecked


def test_after_another_boot_only_what_was_durable_is_expected(killed, log):
    """R-6: a mark of an earlier boot does not accuse a log of losing what was never called durable."""
    from agent_saga.store.mark import Mark, check_mark, read_mark

    mark = read_mark(Path(f"{killed}-mark"))
    assert mark.written >= mark.durable > 0
    other = Mark(log=mark.log, boot="0" * 36, written=50, durable=40)
    assert "40" in check_mark(other, log=mark.log, last=40)
    with pytest.raises(CorruptLog):
        check_mark(other, log=mark.log, last=39)
    assert check_mark(other, log="another", last=0).startswith("not checked")


@pytest.mark.serial
def test_four_processes_write_one_file(start, log):
    """R-7: four writers of one file lose nothing and disturb nobody; all is in one gap-free order."""
    workers = [start("write_steps", number, 150) for number in range(1, 5)]
    assert [heard(worker) for worker in workers] == [["done"]] * 4
    report = verify(log())
    assert (report.sagas, report.records) == (4, 4 * 302)
    assert sorted(row.leaf for row in log().rows(Query())) == [1, 2, 3, 4]


def test_a_living_owner_cannot_be_proved_dead(start, log):
    """R-8: while its process lives, stopped or not, an owner is not dead; after SIGKILL it is."""
    worker = start("die_holding", 1)
    owner = heard(worker)[1]
    store = log()
    assert store.prove_dead(owner) is None
    worker.send_signal(signal.SIGSTOP)
    assert store.prove_dead(owner) is None
    worker.send_signal(signal.SIGCONT)
    tell(worker)
    worker.wait()
    proof = store.prove_dead(owner)
    assert proof is not None
    assert store.row(saga_id(1)).row.owner == owner
    claimer = Scribe(store, 1, owner=store.owner())
    claimer.view = load(store, saga_id(1)).view
    claimer.write(claimer.fact("claimed", owner=store.owner(), epoch=2), claims=True)
    proof.forget()


def test_of_racing_claimers_one_wins(start, log):
    """R-9: of several processes one at a time holds the proof of a death; it may die, and another gets it."""
    worker = start("die_holding", 1)
    owner = heard(worker)[1]
    tell(worker)
    worker.wait()
    for _ in range(3):
        claimers = [start("claim", owner) for _ in range(4)]
        assert [heard(claimer) for claimer in claimers] == [["ready"]] * 4
        for claimer in claimers:
            tell(claimer)
        results = [heard(claimer)[0] for claimer in claimers]
        assert sorted(results) == ["lost", "lost", "lost", "won"]
        for claimer in claimers:
            claimer.kill()
            claimer.wait()
    proof = log().prove_dead(owner)
    proof.forget()
    assert not (Path(log().location + "-owners") / owner).exists()


def test_a_forked_child_is_an_owner_of_its_own(start, log):
    """R-10: a child opens the log anew, under its own token; the parent's death is provable while the child lives."""
    parent = start("fork_in_the_middle", 1)
    word, childs_token, parents_token = heard(parent)
    assert (word, childs_token != parents_token) == ("child", True)
    store = log()
    assert store.prove_dead(parents_token) is None
    assert store.prove_dead(childs_token) is None
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert store.prove_dead(parents_token) is not None
    assert store.prove_dead(childs_token) is None
    assert verify(store).sagas == 2


def test_a_child_leaves_the_parents_log_alone(path):
    """R-11: a child that uses, closes and ends leaves the parent's lock, connections and records alone."""
    store = open_log(str(path), create=True)
    scribe = Scribe(store, 1, owner=store.owner()).open()
    token = store.owner()
    for child_uses in (False, True):
        child = os.fork()
        if child == 0:
            if child_uses:
                Scribe(store, 5, owner=store.owner()).open()
            store.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    scribe.step()
    other = open_log(str(path), create=False)
    assert other.prove_dead(token) is None
    assert verify(other).records == 4
    other.close()
    store.close()


def test_a_replaced_owner_is_stale_across_processes(start, log):
    """R-12: two connections agree on epochs: what one process claimed, the other cannot continue."""
    worker = start("write_steps", 1, 1)
    assert heard(worker) == ["done"]
    one, two = log(), log()
    mine = Scribe(one, 2, owner="a").open().step()
    theirs = Scribe(two, 2, owner="b")
    theirs.view = load(two, mine.id).view
    assert isinstance(theirs.put(theirs.item(theirs.fact("claimed", owner="b", epoch=2), claims=True)), Committed)
    assert isinstance(mine.put(mine.item(mine.intent(2))), Stale)
    assert isinstance(theirs.put(theirs.item(theirs.intent(2))), Committed)
