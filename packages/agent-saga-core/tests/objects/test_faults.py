"""A store that fails, answers late or not at all, and owners that are paused: nothing is lost or written twice."""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from object_server import FAULTS, LOSE_REQUEST, SLOW, ObjectServer

from agent_saga import AgentKit, compensator
from agent_saga.audit.prune import prune
from agent_saga.audit.redact import redact
from agent_saga.errors import CorruptLog, LogFailed, LogMissing, LogUnusable
from agent_saga.store.objects.http import HttpSink
from agent_saga.store.objects.log import ObjectLog
from agent_saga.store.objects.sink import MemorySink
from agent_saga.store.open import open_log
from agent_saga.store.port import Committed, Query
from agent_saga.store.verify import verify
from pytest_agent_saga.conformance.sagas import Scribe, dump, everything, load, saga_id

CARD = b"4000-0012-3456-7899"
WORLD = []


def log_at(server, *, wait_s=20.0, answer_s=0.1):
    return ObjectLog(HttpSink(server.url + "/log", answer_s=answer_s), lease_ttl_s=30, wait_s=wait_s)


def write(log):
    """Two sagas, one of them rolled back, and a reopened log; return all that is in it."""
    Scribe(log, 1, owner="owner-1").open(key="order-1").step().end()
    Scribe(log, 2, owner="owner-1").open().step().roll_back()
    return dump(log)


def paid(store, number):
    scribe = Scribe(store, number).open()
    options = {"step": 1, "tool": "charge", "version": 1, "effect": "irreversible", "key": f"{scribe.id}:1"}
    values = {"kwargs.card": f'"{CARD.decode()}"', "kwargs.name": '"ann-7f3a"'}
    scribe.write(scribe.fact("intent", values, **options), durable=True)
    scribe.write(scribe.fact("outcome", {"result": "1"}, step=1, state="succeeded"), row=False)
    return scribe.end()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_each_request(fault):
    """OB-1: whatever becomes of one request, each in turn, the log holds what it holds without a fault."""
    with ObjectServer() as quiet:
        log = log_at(quiet)
        expected = write(log)
        log.close()
        total = quiet.requests
    for at in range(1, total + 1):
        for later in (1, 3) if fault == SLOW else (0,):

            def decide(number, method, path, at=at, later=later):
                if number == at + later:
                    server.release.set()  # What was slow arrives now: while it is read back, or after it was repeated.
                return fault if number == at else None

            with ObjectServer(decide) as server:
                log = log_at(server)
                assert write(log) == expected
                log.close()
                again = log_at(server)
                assert verify(again).sagas == 2
                again.close()


def test_writers_race_on_a_store_that_fails_at_random():
    """OB-2: three writers, one request in five fails in some way: all is there, once, and in order."""
    chance, lock = random.Random(20261201), threading.Lock()

    def decide(number, method, path):
        with lock:
            return chance.choice([fault for fault in FAULTS if fault != SLOW]) if chance.random() < 0.2 else None

    errors = []
    with ObjectServer(decide) as server:

        def work(first):
            log = log_at(server)
            try:
                for number in range(first, first + 8):
                    Scribe(log, number, owner=f"owner-{first}").open().step().step(2).end()
            except Exception as error:
                errors.append(error)
            log.close()

        threads = [threading.Thread(target=work, args=(first,)) for first in (1, 101, 201)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.decide = lambda *_: None
        log = log_at(server)
        assert errors == []
        assert (verify(log).sagas, verify(log).records) == (24, 24 * 6)
        log.close()


def test_an_owner_that_was_paused_past_its_lease_is_replaced():
    """OB-3: stopped, proved dead, claimed, and woken: its append is stale."""
    with ObjectServer() as server:
        url = f"objects+{server.url}/log?lease_ttl_s=0.5"
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "object_child.py"), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            owner = child.stdout.readline().strip()
            log = open_log(url, create=True)
            assert log.prove_dead(owner) is None
            os.kill(child.pid, signal.SIGSTOP)
            until = time.monotonic() + 20
            while (proof := log.prove_dead(owner)) is None and time.monotonic() < until:
                threading.Event().wait(0.05)  # A lease runs out by itself: there is nothing that would tell us.
            new = Scribe(log, 1, owner=log.owner())
            new.view = load(log, saga_id(1)).view
            assert isinstance(new.put(new.item(new.fact("claimed", owner=new.owner, epoch=2), claims=True)), Committed)
            proof.close()
            os.kill(child.pid, signal.SIGCONT)
            child.stdin.write("go\n")
            child.stdin.flush()
            assert child.stdout.readline().strip() == "Stale"
            assert log.rows(Query(unsealed=True))[0].row.epoch == 2
            verify(log)
            log.close()
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()


def test_a_paused_owner_waits_while_its_death_is_proved():
    """OB-4: a mark on its lease keeps the owner from renewing it; given up, the owner goes on; forgotten, it stops."""
    sink = MemorySink()
    owner, other = (ObjectLog(sink, lease_ttl_s=30, wait_s=0.2) for _ in range(2))
    scribe = Scribe(owner, 1, owner=owner.owner()).open()
    asyncio.run(_outlive(sink, owner.owner()))
    proof = other.prove_dead(owner.owner())
    owner._leases._renewed_at = -1e9  # As after a pause.
    proof.close()
    scribe.step()
    asyncio.run(_outlive(sink, owner.owner()))
    other.prove_dead(owner.owner()).forget()
    owner._leases._renewed_at = -1e9
    with pytest.raises(LogFailed, match="taken it for dead"):
        scribe.step(2)
    owner.close()
    other.close()


async def _outlive(sink, owner):
    data, etag, written = sink._objects[f"owners/{owner}"]
    sink._objects[f"owners/{owner}"] = (data, etag, written - 100)


def test_a_store_that_does_not_come_back_fails_closed():
    """OB-5: when the wait is over the append fails, and the log takes nothing more in this process."""
    gone = []
    with ObjectServer(lambda number, method, path: LOSE_REQUEST if gone else None) as server:
        log = log_at(server, wait_s=0.3)
        scribe = Scribe(log, 1).open()
        gone.append(True)
        with pytest.raises(LogFailed, match="does not answer|cannot be read"):
            scribe.step()
        gone.clear()
        with pytest.raises(LogFailed, match="takes no records"):
            Scribe(log, 2).open()
        log.close()
        again = log_at(server)
        assert verify(again).records == 1
        again.close()


def test_nothing_of_what_was_removed_is_in_any_object():
    """OB-6: redacted twice and pruned, after a scrub that failed and was repeated, no object holds the bytes."""
    broken = []

    def decide(number, method, path):
        return "503 before" if broken and method == "PUT" and path.endswith("0001") else None

    with ObjectServer(decide) as server:
        log = log_at(server, wait_s=0.3)
        saga = paid(log, 800)
        everything(log)

        def there(text):
            return any(text in data for data, _ in server.objects.values())

        assert there(CARD)
        redact(log, saga.id, "kwargs.card", by="ann")
        assert (there(CARD), there(b"ann-7f3a")) == (False, True)
        redact(log, saga.id, "kwargs.name", by="ann")
        assert not there(b"ann-7f3a")
        late = paid(log, 900)
        broken.append(True)
        with pytest.raises(LogUnusable, match="give the same command again"):
            prune(log, before_ns=2**62, by="ann")
        broken.clear()
        log.close()
        log = log_at(server)
        assert any("still hold" in line for line in verify(log).unchecked)
        prune(log, before_ns=2**62, by="ann", payloads_only=True)
        assert not there(CARD)
        assert log.records(late.id) == []
        assert not any("still hold" in line for line in verify(log).unchecked)
        log.close()


def test_each_change_of_an_object_is_found():
    """OB-7: a commit that is missing, changed, swapped or of another log is damage, for who opens and who verifies."""
    with ObjectServer() as server:
        log = log_at(server)
        write(log)
        log.close()
        names = sorted(name for name in server.objects if "/commits/" in name)
        sound = dict(server.objects)
        changes = [{name: None} for name in names[:-1]]
        changes += [{name: sound[name][0].replace(b"owner-1", b"owner-2")} for name in names[:1]]
        changes += [{name: sound[name][0].replace(b'"saga_', b'"sagb_')} for name in (names[0], names[-1])]
        changes += [{one: sound[two][0], two: sound[one][0]} for one, two in itertools.pairwise(names)]
        changes += [{name: b"{}"} for name in names]
        for change in changes:
            server.objects = dict(sound)
            for name, data in change.items():
                server.objects.pop(name) if data is None else server.objects.update({name: (data, 0.0)})
            log = log_at(server)
            with pytest.raises(CorruptLog):
                verify(log)
            log.close()


def test_places_that_are_no_log(monkeypatch):
    """OB-8: no log, no server, a URL that is none: each is said, and nothing is written."""
    with ObjectServer() as server:
        with pytest.raises(LogMissing):
            open_log(f"objects+{server.url}/none", create=False)
        assert server.objects == {}
    for url in (
        "objects+http://127.0.0.1:1/x?wait_s=0.1",
        "objects+http://a:b@h/x",
        "objects+http://h/x?lease_ttl_s=x",
    ):
        with pytest.raises(LogUnusable):
            open_log(url, create=False)
    with pytest.raises(LogUnusable):
        open_log("objects+http://h/x?other=1", create=False)


def test_a_host_without_threads_brings_its_own_way_to_wait():
    """OB-9: with `drive=` no loop and no thread of ours waits for the sink."""
    before = threading.active_count()
    log = ObjectLog(MemorySink(), drive=asyncio.run)
    write(log)
    assert verify(log).sagas == 2
    assert threading.active_count() == before
    log.close()


def test_commands_find_the_log_by_its_url():
    """OB-10: verify and sagas work on a log in an object store."""
    with ObjectServer() as server:
        log = log_at(server)
        write(log)
        log.close()
        for words in (("verify",), ("sagas", "--json"), ("certify",), ("recover",)):
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "agent_saga", *words, "--log", f"objects+{server.url}/log"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (words, done.stderr)


@compensator("objects.take_back", idempotent=True)
def take_back(item: str):
    WORLD.append(f"undo {item}")


def test_the_engine_on_this_log():
    """OB-11: a kit that names it by its URL commits a saga and rolls another one back."""
    WORLD.clear()
    with ObjectServer() as server:
        kit = AgentKit(f"objects+{server.url}/kit/")

        def put(item: str):
            WORLD.append(f"do {item}")
            return {"id": item}

        tool = kit.wrap(put, effect="compensable", compensate=take_back.bind(item="result.id"))
        with kit.transaction("good", key="order-1"):
            tool(item="a")
        with pytest.raises(ZeroDivisionError), kit.transaction("bad") as saga:
            tool(item="b")
            raise ZeroDivisionError
        assert saga.report.clean
        kit.close()
        assert WORLD == ["do a", "do b", "undo b"]
        log = open_log(f"objects+{server.url}/kit/", create=False)
        assert verify(log).sagas == 2
        log.close()
