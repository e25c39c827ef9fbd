"""kit.status(): each signal broken in turn. Rule ids: S-n."""

import json

import apsw
import pytest
from gate_world import make_kit

from agent_saga import GateRefused, SagaSuspended
from agent_saga.errors import LogFailed, SagaRolledBack
from agent_saga.runtime import operators


@pytest.fixture
def kit(log):
    kit = make_kit(log)
    with kit.transaction("t"):
        kit.charge("ann", 1)
    assert kit.status().to_dict() == {"ready": True, "blockers": [], "warnings": []}
    yield kit
    kit.close()


def blocker(kit):
    status = kit.status()
    assert not status.ready
    json.dumps(status.to_dict())
    (line,) = status.blockers
    return line


@pytest.mark.parametrize(
    ("action", "scope"),
    [("halt", "*"), ("halt", "tool:x"), ("halt", "tag:eu"), ("drain", "*"), ("quarantine", "saga:x")],
)
def test_a_stop_blocks_until_it_is_lifted(kit, action, scope, clock):
    """S-1: every halt, drain and quarantine in force blocks, and names its reason and what lifts it."""
    operators.act(kit.writer(), action, scope, by="ann", reason="fire", ttl_s=60)
    assert f"{scope} is" in blocker(kit)
    assert f"fire (agent-saga lift {scope})" in blocker(kit)
    operators.lift(kit.writer(), scope, by="ann")
    assert kit.status().ready
    operators.act(kit.writer(), action, scope, by="ann", ttl_s=60)
    clock.jump(61)
    assert kit.status().ready


def test_a_step_for_a_human_blocks(kit):
    """S-2: a step in doubt that nobody can settle blocks."""
    with pytest.raises(SagaRolledBack), kit.transaction("t") as saga, pytest.raises(TimeoutError):
        kit.vanish("ann", 1)
    assert f"1 step of 1 saga ({saga.id}) for a human" in blocker(kit)


@pytest.mark.parametrize("signal", ["halts", "rows", "facts"])
@pytest.mark.parametrize("error", [LogFailed("gone"), OSError("gone"), ValueError("gone")], ids=repr)
def test_a_signal_that_cannot_be_read_blocks(kit, monkeypatch, signal, error):
    """S-3: unreadable means not ready, for each signal."""

    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr(kit.writer().store, signal, broken)
    status = kit.status()
    assert not status.ready
    assert all("cannot be read" in line and "gone" in line for line in status.blockers)


def test_a_log_that_failed_blocks(kit):
    """S-4: a process whose log has failed starts no effect, and says so."""
    kit.writer().failed = LogFailed("the disk is gone")
    assert "the disk is gone" in blocker(kit)


def test_a_log_that_cannot_be_opened_blocks(tmp_path):
    """S-5: a place that cannot be a log, or holds none, blocks."""
    (tmp_path / "empty").touch()
    for place in ("empty", "no/such/folder"):
        kit = make_kit(str(tmp_path / place))
        assert "cannot be opened" in blocker(kit)
        kit.close()


def test_a_missing_table_blocks(kit, log):
    """S-6: damage that the signals meet blocks."""
    db = apsw.Connection(log)
    db.execute("DROP TABLE facts")
    db.close()
    assert not kit.status().ready


def test_what_somebody_should_look_at_is_a_warning(kit):
    """S-7: requests that wait, suspended sagas and a log in memory do not block."""
    with pytest.raises(SagaSuspended), kit.transaction("t", key="k"):
        kit.charge("ann", 1)
        with pytest.raises(GateRefused):
            kit.mail("a")
        raise SagaSuspended("later")
    status = kit.status()
    assert status.ready
    assert [line.partition(" (")[0] for line in status.warnings] == ["1 request for approval to answer", "1 saga"]
    in_memory = make_kit("memory:")
    assert in_memory.status().ready
    assert "memory" in in_memory.status().warnings[0]
    in_memory.close()


def test_sagas_of_dead_processes_are_a_warning(start, kit):
    """S-8: what recovery would look after is named."""
    child = start("hold", "ann")
    child.hear("holds")
    assert kit.status().warnings == ()
    child.kill()
    assert "left by dead processes (agent-saga recover)" in kit.status().warnings[0]
