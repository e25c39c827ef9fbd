"""What the README promises, each shown once on the demo's world; other folders show it at every crash point."""

import sqlite3
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent_saga import AgentKit, Allow, GateRefused, Refuse, RollbackIncomplete
from agent_saga.demo import tools
from agent_saga.demo.agent import open_shop
from agent_saga.demo.stage import Stage
from agent_saga.demo.world import World
from agent_saga.errors import UndeclaredTool
from agent_saga.spi import guard, read_records


@pytest.fixture
def kit(stage: Stage) -> Iterator[AgentKit]:
    with closing(AgentKit(log=stage.log)) as kit:
        yield kit


def test_the_intent_is_in_the_log_before_the_effect(stage: Stage) -> None:
    """PROMISE-1: when an effect lands, a reader of the log finds its intent, with the same key, marked as durable."""
    last: list[tuple[str, str]] = []
    durable: list[bool] = []

    def look() -> None:
        *_, record = read_records(str(stage.log))
        last.append((record["kind"], record["key"]))
        *_, durable_to, _checksum = Path(f"{stage.log}-mark").read_text("ascii").split(" ")
        durable.append(int(durable_to) >= record["pos"])

    world = World(stage.world.path, before_answer=look)
    tools.connect(world)
    with closing(AgentKit(log=stage.log)) as kit, kit.transaction("look"):
        tools.wrapped(kit).charge(customer="ann", cents=100)
    assert last == [("intent", str(world.attempts()[0].key))]
    assert durable == [True]


def test_each_effect_is_in_one_bucket(stage: Stage, kit: AgentKit) -> None:
    """PROMISE-2: after a rollback that could not compensate all, each effect is named once, and it is not clean."""
    with closing(sqlite3.connect(stage.world.path)) as db:
        closed = "SELECT RAISE(ABORT, 'the bank is closed')"
        db.execute(f"CREATE TRIGGER closed BEFORE UPDATE OF refunded ON charges BEGIN {closed}; END")
    with pytest.raises(RollbackIncomplete) as raised, kit.transaction("open shop"):
        open_shop(tools.wrapped(kit), "ann")
    report = raised.value.report
    assert report is not None
    assert not report.clean
    assert [step.tool for step in report.failed] == ["charge"]
    assert [step.tool for step in report.compensated] == ["launch_server"]
    assert report.left == report.failed
    assert stage.world.standing("ann") == ["ch_1 paid 42.00"]


class Refuses:
    def decide(self, call: object, saga: object) -> Refuse:
        return Refuse("no charges on Sundays")


class Breaks:
    def decide(self, call: object, saga: object) -> Allow:
        raise KeyError(saga)


class SaysNothing:
    def decide(self, call: object, saga: object) -> None:
        return None


@pytest.mark.parametrize("policy", [Refuses(), Breaks(), SaysNothing()])
def test_a_refused_call_does_not_reach_the_world(stage: Stage, policy: object) -> None:
    """PROMISE-5: a policy that refuses, fails or gives no decision keeps the call from the world."""
    with (
        closing(AgentKit(log=stage.log, policies=[policy])) as kit,
        pytest.raises(GateRefused),
        kit.transaction("no"),
    ):
        tools.wrapped(kit).charge(customer="ann", cents=100)
    assert stage.world.attempts() == []


def test_a_call_that_nobody_approves_does_not_reach_the_world(stage: Stage, kit: AgentKit) -> None:
    """PROMISE-5: an irreversible call without an approver, and a tool that nobody declared, stay out of the world."""
    charge = kit.wrap(tools.charge, effect="irreversible", name="charge for good")
    with kit.transaction("no"):
        with pytest.raises(GateRefused):
            charge(customer="ann", cents=100)
        with pytest.raises(UndeclaredTool):
            guard("unknown", {}, lambda _: tools.charge("ann", 100), adapter="test")
    assert stage.world.attempts() == []


HANDLERS = """
    from pathlib import Path
    from agent_saga import AgentKit, compensator

    Path("loaded").touch()

    @compensator("evil.inverse", idempotent=True)
    def inverse() -> None:
        Path("ran").touch()

    def effect() -> None: ...

    kit = AgentKit(log="agent-saga.db")
    effect = kit.wrap(effect, effect="compensable", compensate=inverse.bind())
"""
DEATH = """
    import os
    from app import effect, kit

    with kit.transaction("die"):
        effect()
        os._exit(9)
"""


def test_reading_a_log_loads_no_code(shell: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """PROMISE-7: neither readers nor a recovery load a module because a log names what is in it."""
    (tmp_path / "app.py").write_text(textwrap.dedent(HANDLERS))
    (tmp_path / "death.py").write_text(textwrap.dedent(DEATH))
    assert shell("python death.py", cwd=tmp_path).returncode == 9
    (tmp_path / "loaded").unlink()
    (record, *_) = (each for each in read_records(str(tmp_path / "agent-saga.db")) if each["kind"] == "intent")
    assert record["recipe"]["name"] == "evil.inverse"
    codes = [
        shell(f"PYTHONPATH=. agent-saga {command}", cwd=tmp_path).returncode
        for command in ("verify", "sagas", f"show {record['saga']}", "recover")
    ]
    assert codes == [0, 0, 0, 1]
    assert {file.name for file in tmp_path.iterdir()} & {"loaded", "ran"} == set()
