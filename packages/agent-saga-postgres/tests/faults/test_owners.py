"""Owners that are paused, killed and raced for, in processes of their own."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fault_world import make_kit, recover, seen, take_back, wait_for_death

from agent_saga.store.open import open_log
from agent_saga.store.port import Query
from agent_saga.store.verify import verify


@pytest.fixture
def log(log_url):
    made = open_log(log_url, create=True)
    yield made
    made.close()


def test_an_owner_that_was_paused_past_its_lease_is_replaced(log, log_url, start):
    """PG-5: stopped, recovered by somebody else, woken: it appends nothing, and starts no effect."""
    child = start("hold", log_url, "paused")
    _, saga = child.heard()
    row = log.row(saga)
    assert log.prove_dead(row.row.owner) is None
    os.kill(child.process.pid, signal.SIGSTOP)
    wait_for_death(log, row.row.owner)
    (done,) = recover(log)
    assert (done.saga_id, done.action, done.report.clean) == (saga, "recovered", True)
    os.kill(child.process.pid, signal.SIGCONT)
    child.tell()
    assert child.heard()[0] == "replaced"
    assert seen() == {"do paused-1": 1, "undo paused-1": 1}
    assert log.row(saga).row.epoch == 2
    verify(log)


def test_an_owner_that_was_paused_and_not_replaced_goes_on(log, log_url, start):
    """PG-6: a lease that ran out while nobody claimed anything is taken up again by the next append."""
    child = start("hold", log_url, "woken")
    _, saga = child.heard()
    owner = log.row(saga).row.owner
    os.kill(child.process.pid, signal.SIGSTOP)
    wait_for_death(log, owner)
    os.kill(child.process.pid, signal.SIGCONT)
    child.tell()
    assert child.heard() == ["ended", "committed"]
    assert seen() == {"do woken-1": 1, "do woken-2": 1}
    verify(log)


def test_a_paused_owner_cannot_come_back_while_its_death_is_proved(log, log_url, start):
    """PG-7: the proof is a lock on its lease: the owner's next append waits until the proof is given up."""
    child = start("hold", log_url, "waiting")
    _, saga = child.heard()
    owner, count = log.row(saga).row.owner, log.row(saga).count
    os.kill(child.process.pid, signal.SIGSTOP)
    wait_for_death(log, owner)
    proof = log.prove_dead(owner)
    assert proof is not None
    os.kill(child.process.pid, signal.SIGCONT)
    child.tell()
    threading.Event().wait(0.3)  # A chance to do what it must not do.
    assert log.row(saga).count == count
    assert seen() == {"do waiting-1": 1}
    proof.close()
    assert child.heard() == ["ended", "committed"]


def test_an_owner_that_was_taken_for_dead_for_good_stops(log, log_url, start):
    """PG-8: its lease was removed: every append fails, nothing starts, and the report says why."""
    child = start("hold", log_url, "gone")
    _, saga = child.heard()
    os.kill(child.process.pid, signal.SIGSTOP)
    wait_for_death(log, log.row(saga).row.owner)
    proof = log.prove_dead(log.row(saga).row.owner)
    proof.forget()
    os.kill(child.process.pid, signal.SIGCONT)
    child.tell()
    heard = child.heard()
    assert heard[0] == "failed"
    assert "lease" in heard
    assert seen() == {"do gone-1": 1}


@pytest.mark.slow
def test_two_recoverers_race(log, log_url, start):
    """PG-9: what a killed process left is finished by two other processes at once: each effect is compensated once."""
    child = start("leave", log_url, 20)
    assert child.heard() == ["left"]
    owner = log.rows(Query(unsealed=True))[0].row.owner
    child.end()
    wait_for_death(log, owner)
    words = ["recover", "--log", log_url, "--import", str(Path(__file__).parent / "fault_world.py")]
    command = [sys.executable, "-W", "ignore", "-m", "agent_saga", *words]
    recoverers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    for recoverer in recoverers:
        recoverer.wait(60)
    recover(log)
    happened = seen()
    assert len([line for line in happened if line.startswith("undo ")]) == 40
    assert set(happened.values()) == {1}
    assert log.rows(Query(unsealed=True)) == []
    verify(log)


@pytest.mark.slow
def test_a_blocked_event_loop_loses_no_lease(log, log_url):
    """PG-65: the lease is renewed beside the loop: a tool that blocks it for three leases is not taken for dead."""
    kit, _ = make_kit(log_url)
    seen_dead = []

    async def block(item: str):
        (row,) = log.rows(Query(unsealed=True))
        for _ in range(30):
            threading.Event().wait(0.1)  # Blocks the loop, as a careless tool does.
            proof = log.prove_dead(row.row.owner)
            if proof is not None:
                proof.close()
                seen_dead.append(row.row.owner)
        return {"id": item}

    tool = kit.wrap(block, effect="compensable", compensate=take_back.bind(item="result.id"))

    async def run():
        async with kit.transaction("blocked") as saga:
            await tool(item="a")
        return saga.report.outcome

    assert asyncio.run(run()) == "committed"
    kit.close()
    assert seen_dead == []
    verify(log)
