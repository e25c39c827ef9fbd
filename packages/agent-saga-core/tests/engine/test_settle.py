"""Settling a step in doubt: late outcome, probe, compensation from the intent alone; else it stays in doubt."""

import asyncio

import pytest
from engine_world import PROBED, Lost, cannot_tell, make_remote, names, tool, unmake_if_there

from agent_saga import Landed, NotLanded, RollbackIncomplete, Unknowable
from agent_saga.errors import DeclarationError, StepInDoubt, UsageError
from agent_saga.runtime.clock import SystemClock, use_clock


class Skipping(SystemClock):
    """A clock that stands still but when somebody sleeps."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def time_ns(self):
        return int(self.now * 1e9)

    def monotonic(self):
        return self.now


@pytest.fixture
def skipping(monkeypatch):
    clock = Skipping()
    before = use_clock(clock)
    monkeypatch.setattr("time.sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
    yield clock
    use_clock(before)


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


# -- retries of a call in doubt -------------------------------------------------------------------------------------


def test_a_retry_of_what_landed_replays_its_result(kit, world):
    """The second call gets the first one's result; one effect."""
    make = tool(kit, **PROBED)
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s") as saga:
        with pytest.raises(TimeoutError):
            make("a")
        assert make("a") == {"id": "a"}
        assert make("a") == {"id": "a"}  # Not a retry any more: a new step.
    assert world.count("do", "a") == 2
    assert len(saga.report.kept) == 2


def test_a_retry_of_what_did_not_land_runs_under_the_same_key(kit, world):
    """One step, two attempts, one key."""
    make = tool(kit, make_remote, name="remote", **PROBED)
    world.answers["a"] = NotLanded()
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s") as saga:
        with pytest.raises(TimeoutError):
            make("a")
        result = make("a")
    assert result["key"] == f"{saga.id}:1"
    assert len(saga.report.kept) == 1
    assert {key for op, _, key in world.attempts if op == "do"} == {f"{saga.id}:1"}


def test_an_unknowable_retry_is_refused(kit, world):
    """Never repeated: `retry` says so."""
    make = tool(kit, name="blind", probe=cannot_tell)
    world.script["after", "a"] = [TimeoutError()]
    with pytest.raises(RollbackIncomplete), kit.transaction("s"):
        with pytest.raises(TimeoutError):
            make("a")
        with pytest.raises(StepInDoubt) as refused:
            make("a")
        assert (refused.value.retry, refused.value.effect) == ("never", "unknown")
    assert world.count("do", "a") == 1


def test_a_tool_that_takes_the_key_is_run_again(kit, world):
    """Unknowable, but safe under the same key: at most one effect for each key."""
    make = tool(kit, make_remote, name="remote")
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s") as saga:
        with pytest.raises(TimeoutError):
            make("a")
        make("a")
    assert world.standing == {"a": 1}
    assert len(saga.report.kept) == 1


def test_a_failed_retry_does_not_settle_the_doubt_about_the_first_attempt(kit, world):
    """The first attempt may have landed whatever became of the second: never a false clean."""
    make = tool(kit, make_remote, name="remote")
    world.script["after", "a"] = [TimeoutError(), ConnectionRefusedError()]
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s"):
        for error in (TimeoutError, ConnectionRefusedError):
            with pytest.raises(error):
                make("a")
        raise Lost
    assert names(caught.value.report.in_doubt) == ["a"]
    assert world.standing == {"a": 1}


def test_a_step_settled_by_its_compensation_is_followed_by_a_new_one(kit, world):
    """A new key for the retry, because the old one is spent."""
    make = tool(
        kit,
        make_remote,
        name="remote",
        compensate=unmake_if_there.bind(thing="kwargs.thing"),
        key_param="idempotency_key",
    )
    world.script["after", "a"] = [ValueError()]
    with kit.transaction("s") as saga:
        with pytest.raises(ValueError):
            make("a")
        result = make("a")
    assert result["key"] == f"{saga.id}:2"
    assert (names(saga.report.compensated), names(saga.report.kept)) == (["a"], ["a"])
    assert world.standing == {"a": 1}


def test_parallel_retries_of_one_call_run_it_once(mem, world):
    """Two retries at once: one is the retry, the other a call of its own, and no key has two effects."""
    from engine_world import make_keyed

    async def remote(thing, idempotency_key):
        await asyncio.sleep(0)
        return make_keyed(thing, idempotency_key)

    make = mem.wrap(remote, **PROBED)
    world.answers["a"] = NotLanded()
    world.script["after", "a"] = [TimeoutError()]

    async def main():
        async with mem.transaction("s") as saga:
            with pytest.raises(TimeoutError):
                await make("a")
            world.keys.clear()
            await asyncio.gather(make("a"), make("a"), make("a"))
        return saga

    saga = asyncio.run(main())
    assert max(world.keys.values()) == 1
    assert len(saga.report.kept) == 3


# -- declared retries ------------------------------------------------------------------------------------------------


def test_a_declared_retry_needs_a_way_to_be_safe(mem):
    """Without a key or a probe, repeating a call in doubt may double its effect."""
    with pytest.raises(DeclarationError, match="key"):
        tool(mem, retry=2)


def test_a_declared_retry_runs_under_one_key(kit, world, skipping):
    """Each attempt is recorded, and the remote sees one request."""
    make = tool(kit, make_remote, name="remote", retry=2)
    world.script["after", "a"] = [TimeoutError(), ConnectionResetError()]
    with kit.transaction("s") as saga:
        make("a")
    assert world.standing == {"a": 1}
    assert world.count("do") == 3
    assert len(saga.report.kept) == 1


def test_a_declared_retry_that_finds_the_effect_replays_it(kit, world, skipping):
    """The probe says that it landed, so nothing runs again."""
    make = tool(kit, retry=3, **PROBED)
    world.script["after", "a"] = [TimeoutError()]
    with kit.transaction("s"):
        assert make("a") == {"id": "a"}
    assert world.count("do") == 1


def test_a_refusal_is_not_retried(kit, world):
    """What happened before the effect is no failure of the tool."""
    make = tool(kit, make_remote, name="remote", retry=3)
    with kit.transaction("s") as saga:
        saga.roll_back("stop")
        with pytest.raises(UsageError):
            make("a")
    assert world.attempts == []
