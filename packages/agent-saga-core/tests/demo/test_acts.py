"""The acts against the world and the log: a demo that shows something else than what happened must stop."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from agent_saga import RollbackIncomplete
from agent_saga.demo import tools
from agent_saga.demo.acts import with_saga, without_saga
from agent_saga.demo.death import killed_in_the_middle
from agent_saga.demo.stage import DemoFailed, Stage
from agent_saga.demo.worker import LANDED
from agent_saga.spi import read_records

TRIGGERS = {
    "the bank refunds nothing": "BEFORE UPDATE OF refunded ON charges BEGIN SELECT RAISE(ABORT, 'closed'); END",
    "the bank forgets keys": "AFTER INSERT ON charges BEGIN UPDATE charges SET key = 'lost' WHERE id = NEW.id; END",
    "the bank keeps nothing": "AFTER INSERT ON charges BEGIN DELETE FROM charges WHERE id = NEW.id; END",
    "servers do not stop": "AFTER UPDATE OF running ON servers BEGIN UPDATE servers SET running = 1; END",
}


def break_world(stage: Stage, how: str) -> None:
    with closing(sqlite3.connect(stage.world.path)) as db:
        db.execute(f"CREATE TRIGGER broken {TRIGGERS[how]}")


def kinds(stage: Stage) -> list[str]:
    return [record["kind"] for record in read_records(str(stage.log))]


def test_without_a_saga_the_effects_stay(stage: Stage) -> None:
    """DEMO-A1: Act I leaves a charge and a server, and no log."""
    played = without_saga(stage)
    assert played.standing == stage.world.standing("ann") == ["ch_1 paid 42.00", "srv_1 running"]
    assert played.attempts == stage.world.attempts()
    assert played.report is None
    assert not stage.log.exists()


def test_with_a_saga_the_effects_are_compensated_backwards(stage: Stage) -> None:
    """DEMO-A2: Act II leaves nothing, its report is the saga's, and the log tells the same story as the world."""
    played = with_saga(stage)
    assert stage.world.standing("ben") == []
    assert played.report is not None
    assert (played.report.clean, played.report.verified) == (True, True)
    assert [step.tool for step in played.report.compensated] == ["charge", "launch_server"]
    received = [attempt.tool for attempt in stage.world.attempts()]
    assert received == ["charge", "launch_server", "register_domain", "stop_server", "refund"]
    assert kinds(stage).count("intent") == 3
    assert kinds(stage).count("compensation_outcome") == 2


def test_keys_of_the_log_reach_the_world(stage: Stage) -> None:
    """DEMO-A3: the world is given the keys that the log recorded, another one for each call."""
    with_saga(stage)
    recorded = [record["key"] for record in read_records(str(stage.log)) if record["kind"].endswith("intent")]
    given = [attempt.key for attempt in stage.world.attempts() if attempt.key is not None]
    assert len(given) == len(set(given)) == 3
    assert set(given) <= set(recorded)


def test_what_a_killed_process_left_is_recovered_once(stage: Stage) -> None:
    """DEMO-A4: a charge without an outcome is found and refunded by one recovery; the next one does nothing."""
    act = killed_in_the_middle(stage)
    assert (act.killed.signal, act.killed.records) == (9, ["saga_opened", "intent"])
    assert (act.killed.lock_before, act.killed.lock_after) == ("held", "free")
    charge, refund = stage.world.attempts()
    assert (charge.tool, charge.effect, charge.key) == ("charge", True, act.key)
    assert (refund.tool, refund.effect, refund.subject) == ("refund", True, charge.answer)
    assert (act.probed["answer"], act.probed["values"]["result"]) == ("landed", {"id": "ch_1"})
    assert stage.world.standing("cat") == []
    assert act.played.report is not None
    assert (act.played.report.clean, act.played.report.verified) == (True, True)
    first, again = act.recoveries
    assert kinds(stage) == [*act.killed.records, *first.records]
    assert (first.records.count("compensation_intent"), again.records, again.attempts) == (1, [], [])
    assert "outcome" not in kinds(stage)


def test_a_rollback_that_leaves_something_stops_the_demo(stage: Stage) -> None:
    """DEMO-F1: when a compensation fails, Act II ends with the engine's own error."""
    break_world(stage, "the bank refunds nothing")
    with pytest.raises(RollbackIncomplete):
        with_saga(stage)
    assert stage.world.standing("ben") == ["ch_1 paid 42.00"]


def test_a_compensation_that_lies_stops_the_demo(stage: Stage) -> None:
    """DEMO-F2: a server that runs on after it was stopped is found by the read-back."""
    break_world(stage, "servers do not stop")
    with pytest.raises(RollbackIncomplete):
        with_saga(stage)


def test_an_effect_that_does_not_stay_stops_the_demo(stage: Stage) -> None:
    """DEMO-F3: Act I says what is left only if it is left."""
    break_world(stage, "the bank keeps nothing")
    with pytest.raises(DemoFailed, match="Act I should leave a charge and a server"):
        without_saga(stage)


@pytest.mark.parametrize(
    ("how", "message"),
    [("the bank forgets keys", "the probe should find"), ("the bank keeps nothing", "should be in the world")],
)
def test_a_world_that_loses_the_charge_stops_the_demo(stage: Stage, how: str, message: str) -> None:
    """DEMO-F4: Act III claims nothing about a charge that the probe cannot find."""
    break_world(stage, how)
    with pytest.raises(DemoFailed, match=message):
        killed_in_the_middle(stage)


def test_a_worker_without_a_parent_ends_itself(stage: Stage) -> None:
    """DEMO-F5: when the demo dies before it kills its worker, no process stays behind."""
    command = [sys.executable, "-m", "agent_saga.demo.worker", str(stage.log), "cat"]
    with subprocess.Popen(
        command,
        env={tools.WORLD: str(stage.world.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdin is not None
        assert worker.stdout.readline().strip() == LANDED
        worker.stdin.close()
        assert worker.wait(timeout=60) == 1
    assert kinds(stage) == ["saga_opened", "intent"]
