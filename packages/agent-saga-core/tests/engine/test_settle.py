"""Settling a step in doubt: late outcome, probe, compensation from the intent alone; else it stays in doubt."""

import asyncio

import pytest
from engine_world import PROBED, names, tool, unmake, unmake_if_there

from agent_saga import Landed, NotLanded, RollbackIncomplete, Unknowable


def test_any_exception_is_in_doubt_when_there_is_a_way_to_find_out(kit, world):
    """With a probe even a ValueError proves nothing: the probe decides, and finds the effect."""
    make = tool(kit, **PROBED)
    world.script["after", "a"] = [ValueError("after the effect")]
    with pytest.raises(ValueError), kit.transaction("s") as saga:
        make("a")
    assert names(saga.report.compensated) == ["a"]
    assert (saga.report.clean, world.standing) == (True, {})


def test_what_the_probe_did_not_find_is_absent(kit, world):
    """NotLanded is knowledge: nothing to compensate, and nothing assumed."""
    make = tool(kit, **PROBED)
    world.script["before", "a"] = [TimeoutError()]
    with pytest.raises(TimeoutError), kit.transaction("s") as saga:
        make("a")
    assert world.order == ["probe a"]
    assert (saga.report.clean, saga.report.assumed_absent) == (True, ())


@pytest.mark.parametrize(
    "answer",
    [None, True, "landed", Landed, Unknowable("later"), RuntimeError("down"), SystemExit(1), asyncio.CancelledError()],
)
def test_only_three_answers_count(kit, world, answer):
    """Anything else, and an exception of any kind, is unknowable: in doubt, for a human."""
    make = tool(kit, **PROBED)
    world.script["after", "a"] = [TimeoutError()]
    world.answers["a"] = answer
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s"):
        make("a")
    assert names(caught.value.report.in_doubt) == ["a"]
    assert world.standing == {"a": 1}


def test_without_a_probe_a_safe_compensation_settles(kit, world):
    """`safe_if_absent` runs from the intent alone, whether or not there was an effect."""
    make = tool(kit, compensate=unmake_if_there.bind(thing="kwargs.thing"))
    world.script["after", "a"] = [ValueError()]
    world.script["before", "b"] = [ValueError()]
    with pytest.raises(ExceptionGroup), kit.transaction("s") as saga:
        errors = []
        for thing in "ab":
            try:
                make(thing)
            except ValueError as error:
                errors.append(error)
        raise ExceptionGroup("both", errors)
    assert names(saga.report.compensated) == ["a", "b"]
    assert world.standing == {}


def test_the_probe_comes_before_the_compensation(kit, world):
    """The order of settlement."""
    make = tool(kit, compensate=unmake_if_there.bind(thing="kwargs.thing"), probe=PROBED["probe"])
    world.script["after", "a"] = [TimeoutError()]
    with pytest.raises(TimeoutError), kit.transaction("s"):
        make("a")
    assert world.order == ["do a", "probe a", "undo a"]


def test_a_normal_exit_settles_a_direct_call_and_commits(kit, world):
    """Settled by its compensation: the saga commits without it. Settled by its probe: it stays."""
    make = tool(kit, compensate=unmake_if_there.bind(thing="kwargs.thing"))
    found = tool(kit, name="found", **PROBED)
    world.script["after", "a"] = [TimeoutError()]
    world.script["after", "b"] = [TimeoutError()]
    with kit.transaction("s") as saga:
        with pytest.raises(TimeoutError):
            make("a")
        with pytest.raises(TimeoutError):
            found("b")
    assert saga.report.outcome == "committed"
    assert (names(saga.report.compensated), names(saga.report.kept)) == (["a"], ["b"])


def test_not_landed_counts_only_after_settle_s(kit, world, skipping):
    """A request may still travel: it is waited for, and then asked again."""
    make = tool(kit, settle_s=10.0, **PROBED)
    world.script["before", "a"] = [TimeoutError()]
    world.answers["a"] = [NotLanded(), Landed({"id": "a"})]
    world.things["a"] = 1
    before = skipping.now
    with pytest.raises(TimeoutError), kit.transaction("s") as saga:
        make("a")
    assert skipping.now - before >= 10.0
    assert names(saga.report.compensated) == ["a"]


def test_longer_than_the_patience_is_unknowable(kit, world, skipping):
    """Beyond 30 s the question is left to recovery."""
    make = tool(kit, settle_s=100.0, **PROBED)
    world.script["before", "a"] = [TimeoutError()]
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s"):
        make("a")
    assert names(caught.value.report.in_doubt) == ["a"]


def test_a_probe_may_be_async_and_is_given_key_and_arguments(mem, world):
    """Sync or async, in either scope."""
    asked = []

    async def ask(key, kwargs):
        asked.append((key, kwargs))
        return NotLanded()

    with pytest.warns(UserWarning, match="another process"):
        make = tool(mem, name="asked", probe=ask)
    world.script["before", "a"] = [TimeoutError(), TimeoutError()]
    with pytest.raises(TimeoutError), mem.transaction("s") as saga:
        make("a")
    assert asked == [(f"{saga.id}:1", {"thing": "a"})]

    async def main():
        async with mem.transaction("s"):
            make("a")

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert len(asked) == 2


def test_a_probe_in_a_sync_scope_stays_in_its_thread(mem, world, tmp_path):
    """A sqlite3 connection, say, may be used in one thread only."""
    import sqlite3

    rows = sqlite3.connect(tmp_path / "world.db")

    def ask(key, kwargs):
        rows.execute("SELECT 1")
        return NotLanded()

    with pytest.warns(UserWarning, match="another process"):
        make = tool(mem, name="threaded", probe=ask)
    world.script["before", "a"] = [TimeoutError()]
    with pytest.raises(TimeoutError), mem.transaction("s") as saga:
        make("a")
    rows.close()
    assert saga.report.clean


@pytest.mark.parametrize(
    "compensate",
    [unmake.bind(thing="result"), lambda call: unmake.with_(thing=call.result)],
    ids=["path", "callable"],
)
def test_nothing_is_undone_with_a_result_that_nobody_gave(kit, world, compensate):
    """The probe saw the effect and not what the call returned: an orphan that says so, and no undo of None."""
    make = tool(kit, compensate=compensate, probe=PROBED["probe"])
    world.script["after", "a"] = [TimeoutError()]
    world.answers["a"] = Landed()
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s"):
        make("a")
    assert names(caught.value.report.orphaned) == ["a"]
    assert "what the call returned is not known" in caught.value.report.orphaned[0].reason
    assert (world.order, world.standing) == (["do a", "probe a"], {"a": 1})
