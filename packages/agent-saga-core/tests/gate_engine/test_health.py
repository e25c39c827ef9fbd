"""kit.status(): each signal broken in turn. Rule ids: S-n."""

import json

import apsw
import pytest
from click.testing import CliRunner
from gate_world import make_kit

from agent_saga import GateRefused, SagaSuspended
from agent_saga.cli.app import cli
from agent_saga.errors import LogFailed, SagaRolledBack
from agent_saga.gates import Budget, RateLimit, all_of, policies_from_toml, when
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


@pytest.mark.parametrize(
    "wrap", [lambda rule: rule, lambda rule: when(all_of(rule), tool="charge")], ids=["plain", "inner"]
)
@pytest.mark.parametrize("window", [None, "day", 3600.0])
def test_a_budget_that_is_used_up_blocks(make, clock, window, wrap):
    """S-9: also one inside of other policies; not before, and not in the next window."""
    kit = make(wrap(Budget(name="spend", limit=10, amount="amount", tool="charge", window=window)))
    with kit.transaction("t"):
        kit.charge("ann", "9.5")
        assert kit.status().blockers == ()
        kit.charge("ann", "0.5")
    assert blocker(kit) == "budget 'spend' (10) has nothing left"
    clock.jump(2 * 86_400)
    assert kit.status().ready is (window is not None)


def test_other_limits_that_are_used_up_are_warnings(make):
    """S-10: a rate limit, and the budget of one customer, stop some calls, or for moments only."""
    kit = make(
        RateLimit(name="calls", calls=2, window=60),
        Budget(name="each", limit=5, amount="amount", per="kwargs.customer", window="day"),
        Budget(name="saga", limit=0, per="saga", tool="other"),
    )
    with kit.transaction("t"):
        kit.charge("ann", 5)
        kit.charge("bob", 4)
    status = kit.status()
    assert (status.ready, status.blockers) == (True, ())
    lines = [line for line in status.warnings if "memory" not in line]
    assert lines == [
        "rate limit 'calls' (2) has nothing left",
        "budget 'each' (5) has nothing left for 1 of its parts (customer=ann)",
    ]


def test_a_budget_that_cannot_be_read_blocks(log):
    """S-11: spending that is no amount is a signal that cannot be read."""
    kit = make_kit(log, Budget(name="spend", limit=10))
    with kit.transaction("t"):
        kit.charge("ann", 1)
    db = apsw.Connection(log)
    db.execute("UPDATE facts SET value = 'x' WHERE kind = 'total'")
    db.close()
    assert "budgets cannot be read" in blocker(kit)
    kit.close()


def test_the_command_knows_the_budgets_of_the_settings(log, tmp_path, monkeypatch):
    """S-12: `agent-saga status` reads the policies of ./pyproject.toml; a file that it cannot read blocks."""
    rule = '[[tool.agent-saga.policies]]\nrule = "budget"\nname = "spend"\nlimit = 1\n'
    (tmp_path / "pyproject.toml").write_text(rule)
    kit = make_kit(log, *policies_from_toml(tmp_path / "pyproject.toml"))
    with kit.transaction("t"):
        kit.charge("ann", 1)
    kit.close()
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(cli, ["status", "--log", log])
    assert (run.exit_code, "budget 'spend' (1) has nothing left" in run.output) == (1, True)
    (tmp_path / "pyproject.toml").write_text(rule.replace("limit", "limt"))
    run = CliRunner().invoke(cli, ["status", "--log", log])
    assert (run.exit_code, "write limit = 1" in run.output) == (1, True)
