"""The fixtures, replay, chaos and the crash runner. Rule ids: FX-n."""

import asyncio
import os
from pathlib import Path

import pytest

from agent_saga import AgentKit, SagaRolledBack, compensator
from agent_saga.errors import UsageError
from agent_saga.runtime.clock import clock
from agent_saga.runtime.rehearsal import rehearsal
from pytest_agent_saga import ChaosError, ChaosTimeout, FakeClock, chaos

WORLD = set()


@compensator("fixtures.remove", idempotent=True, safe_if_absent=True)
def remove(item):
    WORLD.discard(item)


@compensator("fixtures.plain", idempotent=True)
def plain(item):
    WORLD.discard(item)


@compensator("fixtures.lie", idempotent=True)
def lie(item):
    pass


@pytest.fixture(autouse=True)
def world():
    WORLD.clear()


@pytest.fixture
def add(saga_kit):
    @saga_kit.tool(effect="compensable", compensate=remove.bind(item="kwargs.item"))
    def add(item):
        WORLD.add(item)
        return f"added {item}"

    return add


@pytest.fixture
def aadd(saga_kit):
    @saga_kit.tool(effect="compensable", compensate=remove.bind(item="kwargs.item"), name="aadd")
    async def aadd(item):
        await asyncio.sleep(0)
        WORLD.add(item)
        return f"added {item}"

    return aadd


def test_the_log_is_the_tests_own(saga_log, saga_kit, add):
    """FX-1: log and kit are this test's; a kit without a log uses it too."""
    assert os.environ["AGENT_SAGA_LOG"] == saga_log == saga_kit.log == AgentKit().log
    assert not Path(saga_log).exists()
    with saga_kit.transaction("one"):
        add(item=1)
    assert Path(saga_log).exists()


def test_the_clock_stands_still(saga_clock, saga_kit, add):
    """FX-2: the engine's time is the test's, the same in each run, and given back."""
    with saga_kit.transaction("one") as saga:
        add(item=1)
        saga_clock.advance(90)
        add(item=2)
    first, second = saga.live.view.steps.values()
    assert second.intent_at - first.intent_at == 90 * 10**9
    assert saga.id == _first_id()
    with pytest.raises(ValueError, match="backwards"):
        saga_clock.advance(-1)
    outer = clock()
    with FakeClock().installed() as inner:
        assert clock() is inner
    assert clock() is outer is saga_clock


def _first_id():
    from agent_saga.model.ids import make_saga_id

    with FakeClock().installed() as fake:
        return make_saga_id(fake.time_ns(), fake.entropy(10))


# -- proofs -----------------------------------------------------------------------------------------------------------


def test_a_proof_that_fails_is_readable(assert_rollback_proven, saga_kit):
    """FX-3: the failure is the proof's text, without a traceback of ours."""

    @saga_kit.tool(effect="compensable", compensate=lie.bind(item="kwargs.item"))
    def put(item):
        WORLD.add(item)

    def scenario():
        with saga_kit.transaction("one"):
            put(item=1)

    with pytest.raises(pytest.fail.Exception, match="it succeeded, and the effect stands") as caught:
        assert_rollback_proven(scenario, snapshot=lambda: WORLD, reset=WORLD.clear)
    assert not caught.value.pytrace


def test_strict_proofs_take_no_assumptions(assert_rollback_proven, saga_kit):
    """FX-4: what a report assumes fails a strict proof only; async too."""

    @saga_kit.tool(effect="compensable", compensate=plain.bind(item="kwargs.item"))
    async def put(item):
        WORLD.add(item)

    async def scenario():
        async with saga_kit.transaction("one"):
            await put(item=1)

    given = {"snapshot": lambda: WORLD, "reset": WORLD.clear}
    assert asyncio.run(assert_rollback_proven(scenario, **given)).assumptions
    with pytest.raises(pytest.fail.Exception, match="assumed, and stated by the reports"):
        asyncio.run(assert_rollback_proven(scenario, strict=True, **given))


# -- replay -----------------------------------------------------------------------------------------------------------


def test_a_deterministic_workflow_replays(saga_kit, add, assert_replays):
    """FX-5: resumed after each effect, no effect runs again and the result is the same."""

    def workflow():
        with saga_kit.transaction("one", key="k", on_crash="resume"):
            return [add(item=1), add(item=2), add(item=1)]

    done = assert_replays(workflow, reset=WORLD.clear)
    assert (done.effects, done.resumed) == (("add", "add", "add"), 3)
    assert rehearsal() is None


def test_an_async_workflow_replays(saga_kit, aadd, assert_replays):
    """FX-6: the same, async."""

    async def workflow():
        async with saga_kit.transaction("one", key="k"):
            return [await aadd(item=1), await aadd(item=2)]

    assert asyncio.run(assert_replays(workflow)).resumed == 2


def test_arguments_that_vary_are_found(saga_kit, add, assert_replays):
    """FX-7: a workflow whose calls differ from run to run does not replay."""
    runs = []

    def workflow():
        runs.append(1)
        with saga_kit.transaction("one", key="k"):
            return add(item=len(runs))

    with pytest.raises(pytest.fail.Exception, match="the workflow does not replay: run again on its log"):
        assert_replays(workflow)


def test_results_that_vary_are_found(saga_kit, add, assert_replays):
    """FX-8: so does one whose result is made of something that is no tool's."""
    runs = []

    def workflow():
        runs.append(1)
        with saga_kit.transaction("one", key="k"):
            add(item=1)
            return len(runs)

    with pytest.raises(pytest.fail.Exception, match=r"run again on its log, it returns 2, not 1"):
        assert_replays(workflow)


def test_calls_that_vary_after_a_resume_are_found(saga_kit, add, assert_replays):
    """FX-9: a call that the resumed run makes with other arguments is found."""
    runs = []

    def workflow():
        runs.append(1)
        with saga_kit.transaction("one", key="k"):
            add(item=1)
            return add(item="odd" if len(runs) <= 3 else "even")

    with pytest.raises(pytest.fail.Exception, match="does not replay"):
        assert_replays(workflow)


def test_a_workflow_without_a_key_cannot_replay(saga_kit, add, assert_replays):
    """FX-10: without a key there is nothing to resume; said at once."""

    def workflow():
        with saga_kit.transaction("one"):
            add(item=1)

    with pytest.raises(UsageError, match="key="):
        assert_replays(workflow)


def test_a_swallowed_suspension_is_found(saga_kit, add, assert_replays):
    """FX-11: code that catches everything cannot be suspended."""

    def workflow():
        with saga_kit.transaction("one", key="k"):
            try:
                add(item=1)
            except BaseException:
                return

    with pytest.raises(pytest.fail.Exception, match="something caught the suspension"):
        assert_replays(workflow)


# -- chaos ------------------------------------------------------------------------------------------------------------


def _filled(kit, add):
    try:
        with kit.transaction("filling", drain_s=0.01) as saga:
            for item in range(6):
                add(item=item)
    except (ChaosError, ChaosTimeout, SagaRolledBack):
        pass
    return saga


@pytest.mark.parametrize("rates", [{"error": 1.0}, {"lost": 1.0}, {"late": 1.0}], ids=["error", "lost", "late"])
def test_each_chaos_ends_in_a_clean_world(saga_kit, add, saga_chaos, rates):
    """FX-12: whatever a tool does, the world is as before; a late answer is compensated when it comes."""
    with saga_chaos(1, **({"error": 0.0, "lost": 0.0, "late": 0.0} | rates)) as done:
        saga = _filled(saga_kit, add)
    assert [strike.kind for strike in done.strikes] == list(rates)
    assert saga.report.outcome == "rolled_back"
    assert set() == WORLD


def test_chaos_repeats_by_its_seed(saga_kit, add):
    """FX-13: the same seed does the same; another one something else; tools may be chosen."""
    told = []
    for seed in (3, 3, 4, 5):
        with chaos(seed, error=0.3, lost=0.3, late=0.3, tell=lambda done: told.append(done.format_text())):
            _filled(saga_kit, add)
        assert set() == WORLD
    assert told[0] == told[1]
    assert len(set(told)) > 1
    with chaos(3, error=1.0, lost=0, late=0, tools=["other"]) as done:
        assert _filled(saga_kit, add).report.outcome == "committed"
    assert (done.strikes, done.format_text()) == ([], "seed 3: nothing")


def test_chaos_in_a_loop(saga_kit, aadd):
    """FX-14: async tools answer late in their own loop."""

    async def main(seed):
        try:
            async with saga_kit.transaction("filling", drain_s=0.1) as saga:
                for item in range(4):
                    await aadd(item=item)
        except (ChaosError, ChaosTimeout, SagaRolledBack):
            pass
        return saga

    kinds = set()
    for seed in range(8):
        with chaos(seed, error=0.2, lost=0.2, late=0.4) as done:
            saga = asyncio.run(main(seed))
        kinds.update(strike.kind for strike in done.strikes)
        assert (set(range(4)) if saga.report.outcome == "committed" else set()) == WORLD
        WORLD.clear()
    assert kinds == {"error", "lost", "late"}


def test_chaos_is_refused_where_it_cannot_be(saga_kit):
    """FX-15: rates are probabilities; one rehearsal at a time."""
    with pytest.raises(ValueError, match="no probabilities"), chaos(1, error=0.9, lost=0.9):
        pass
    with chaos(1), pytest.raises(UsageError), chaos(2):
        pass
    assert rehearsal() is None


def test_chaos_is_told_when_a_test_fails(inner):
    """FX-16: the seed and what it did are a part of the failure."""
    inner.write(
        "test_it.py",
        "def test_it(saga_chaos):\n    with saga_chaos(77, error=0.5):\n        pass\n    assert False\n",
    )
    code, printed = inner.pytest()
    assert code == 1
    assert "agent-saga chaos" in printed
    assert "seed 77: nothing" in printed
