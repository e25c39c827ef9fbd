"""What policies see of a saga's steps, at a cost that does not grow with it. Rule ids: L-n."""

import pytest
from gate_world import Stop, note, refund, world

from agent_saga import GateRefused, compensator
from agent_saga.gates import CircuitBreaker, UndoPath
from agent_saga.runtime import lookback as module


@compensator("gate.restore", idempotent=True, lives_in="/var/backups")
def restore(path):
    note(f"restore {path}")


def with_backup(kit, **options):
    kit.backup = kit.wrap(
        lambda path: note(f"backup {path}"),
        name="backup",
        effect="compensable",
        compensate=options.pop("compensate", restore.bind(path="kwargs.path")),
        **options,
    )
    kit.rm = kit.wrap(
        lambda path: note(f"rm {path}"),
        name="rm",
        effect="compensable",
        compensate=refund.bind(customer="kwargs.path", amount="kwargs.path"),
    )
    return kit


@pytest.mark.parametrize("how", ["bound by paths", "bound by a function"])
def test_a_place_is_needed_while_a_step_needs_it(make, how):
    """L-1: from the intent on until the step is compensated, also where the recipe comes with the result."""
    bound = restore.bind(path="kwargs.path") if "paths" in how else lambda call: restore.with_(path=call.kwargs["path"])
    kit = with_backup(make(UndoPath(tool="rm", destroys="kwargs.path")), compensate=bound)
    with kit.transaction("t") as saga:
        kit.rm("/var/backups/a")
        with pytest.raises(Stop), kit.transaction("inner"):
            kit.backup("x")
            with pytest.raises(GateRefused, match="to be compensated"):
                kit.rm("/var/backups")
            raise Stop
        kit.rm("/var/backups/b")
        kit.backup("y")
        kit.backup("z")
        with pytest.raises(GateRefused, match="step 5"):
            kit.rm("/var")
        assert [place for place, _ in saga.places()] == ["/var/backups"]


def test_a_step_that_runs_again_is_needed_again(make, clock):
    """L-2: a call that failed, was looked past, and is repeated as the same step by its declared retry."""
    kit, tries, between = make(UndoPath(tool="rm", destroys="kwargs.path")), [], []

    def flaky(path, idempotency_key=""):
        tries.append(path)
        if len(tries) == 1:
            raise ConnectionRefusedError

    with_backup(kit)
    kit.flaky = kit.wrap(flaky, effect="compensable", compensate=restore.bind(path="kwargs.path"), retry=1)
    with kit.transaction("t") as saga:
        clock.jitter = lambda: between.append(saga.places()) or 0.0  # Asked for between two attempts.
        kit.flaky("x")
        assert between == [()]
        assert [step.step_id for _, step in saga.places()] == [f"{saga.id}:1"]
        with pytest.raises(GateRefused, match="step 1"):
            kit.rm("/var/backups/a")


def test_a_look_costs_what_is_new(make, monkeypatch):
    """L-3: neither rule looks at a step that it has seen; both go on to see what is new."""
    kit = with_backup(
        make(UndoPath(tool="*", destroys="kwargs.path"), CircuitBreaker(tool="*", failures=2, open_for_s=600))
    )
    reported, bound = [], []
    monkeypatch.setattr("agent_saga.runtime.saga.step_report", _counted(reported))
    monkeypatch.setattr(module.Lookback, "_bind", _counted_bind(bound))
    kit.fails = kit.wrap(
        fails, name="fails", effect="compensable", compensate=refund.bind(customer="kwargs.path", amount="kwargs.path")
    )
    with kit.transaction("t") as saga:
        for number in range(60):
            kit.backup(f"/srv/{number}")
        assert len(reported) <= 4 * 60
        assert len(bound) <= 2 * 60
        assert [step.tool for step in saga.steps(58)] == ["backup", "backup"]
        for number in range(2):
            with pytest.raises(ValueError, match="broken"):
                kit.fails(f"/srv/{number}")
        with pytest.raises(GateRefused, match="failed 2 times"):
            kit.fails("/srv/x")
    assert len(world()) == 60


def fails(path):
    raise ValueError("broken")


def _counted(calls):
    from agent_saga.machine.report import step_report

    return lambda step: calls.append(step.no) or step_report(step)


def _counted_bind(calls):
    bind = module.Lookback._bind
    return lambda self, step: calls.append(step.no) or bind(self, step)
