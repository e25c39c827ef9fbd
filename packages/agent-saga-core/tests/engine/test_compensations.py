"""Compensations: attempts, refusals, read-backs, and handlers that are not what they were."""

import asyncio
import itertools
import json

import pytest
from engine_world import (
    WORLD,
    Lost,
    dying,
    names,
    recover,
    tool,
    unmake,
    unmake_idempotent,
    unmake_keyed,
    unmake_sure,
    unmake_verified,
)

from agent_saga import ALREADY_DONE, Conflict, RollbackIncomplete, compensator
from agent_saga.errors import DeclarationError
from agent_saga.runtime import compensate, registry
from agent_saga.store.reader import load


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(compensate, "BACKOFF_S", 0.0)


def fail(kit, handler, undo, *, things="a", **options):
    """Run a saga whose rollback meets scripted answers of its compensator."""
    make = tool(kit, compensate=handler.bind(thing="kwargs.thing"))
    WORLD.script["undo", "a"] = list(undo)
    with pytest.raises((Lost, RollbackIncomplete)), kit.transaction("s", **options) as saga:
        for thing in things:
            make(thing)
        raise Lost
    return saga.report


def test_a_compensation_that_fails_is_tried_again(kit, world):
    """Recorded each time, and then done."""
    report = fail(kit, unmake, [ValueError("busy"), ValueError("busy")])
    assert report.clean
    assert report.compensated[0].attempts == 3


def test_one_that_keeps_failing_stops_nobody_else(kit, world):
    """It stays as a work item with its reason; the others are compensated."""
    report = fail(kit, unmake, [ValueError("down")] * 9, things="xay")
    assert (names(report.failed), names(report.compensated)) == (["a"], ["x", "y"])
    assert "down" in report.failed[0].reason
    assert world.standing == {"a": 1}


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), GeneratorExit(), TimeoutError()])
def test_one_that_ends_in_doubt_stops_nobody_else(kit, world, error):
    """An attempt without a known outcome is not run again unseen, and ends neither the rollback nor the program."""
    report = fail(kit, unmake, [error], things="xay")
    assert (names(report.in_doubt), names(report.compensated)) == (["a"], ["x", "y"])
    assert world.count("undo", "a") == 1


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError()])
def test_the_same_in_an_async_scope(mem, world, error):
    """Whether the compensator is sync or async."""
    from engine_world import aunmake

    async def main(handler):
        make = tool(mem, name=handler.name, compensate=handler.bind(thing="kwargs.thing"))
        world.script["undo", "a"] = [error]
        with pytest.raises(RollbackIncomplete) as caught:
            async with mem.transaction("s"):
                for thing in "xay":
                    make(thing)
                raise Lost
        return caught.value.report

    for handler in (unmake, aunmake):
        report = asyncio.run(main(handler))
        assert (names(report.in_doubt), names(report.compensated)) == (["a"], ["x", "y"])


@pytest.mark.parametrize("handler", [unmake_idempotent, unmake_keyed])
def test_an_attempt_in_doubt_is_run_again_where_that_is_safe(kit, world, handler):
    """Idempotent, or under the key, which is the same for every attempt."""
    report = fail(kit, handler, [TimeoutError()])
    assert report.clean
    keys = {key for operation, _, key in world.attempts if operation == "undo"}
    assert len(keys) == 1


def test_a_conflict_is_reported_and_never_forced(kit, world):
    """Somebody changed the thing since."""
    report = fail(kit, unmake, [Conflict(before="A", ours="B", now="C")])
    assert names(report.conflicted) == ["a"]
    assert "'C'" in report.conflicted[0].reason
    assert world.count("undo") == 1


def test_already_done_counts_as_compensated(kit, world):
    """Somebody was faster."""
    assert fail(kit, unmake, [ALREADY_DONE]).clean


def test_a_read_back_makes_it_verified(kit, world):
    """Clean and verified only where each compensation was confirmed and nothing assumed."""
    assert fail(kit, unmake_verified, []).verified
    report = fail(kit, unmake, [])
    assert (report.clean, report.verified) == (True, False)


@pytest.mark.parametrize("answer", [RuntimeError("down"), None, "yes", 1])
def test_a_read_back_that_cannot_tell_verifies_nothing(kit, world, answer):
    """Compensated, as its compensator said; not verified."""
    world.verdicts["a"] = answer
    report = fail(kit, unmake_verified, [])
    assert (report.clean, report.verified) == (True, False)


def test_a_read_back_that_denies_is_believed(kit, world):
    """In doubt where it may not run again, failed where it may: never clean."""
    world.verdicts["a"] = False
    assert names(fail(kit, unmake_verified, []).in_doubt) == ["a"]
    report = fail(kit, unmake_sure, [])
    assert not report.clean
    assert names(report.left) == ["a"]


def test_a_wrapped_tool_may_be_a_compensator(mem, world):
    """It runs bare: no step, so nothing compensates the compensation; in nested scopes too."""
    back = tool(mem, name="back", requires_saga=True)
    WORLD.back = back
    make = tool(mem, compensate=go_back.bind(thing="kwargs.thing"))
    with mem.transaction("outer") as saga, pytest.raises(Lost), mem.transaction("inner"):
        make("a")
        raise Lost
    assert world.order == ["do a", "do back of a"]
    assert len(saga.live.view.steps) == 1


@compensator("compensations.go_back")
def go_back(thing):
    WORLD.back(f"back of {thing}")


@pytest.mark.parametrize("change", ["gone", "version", "parameters"])
def test_a_handler_that_does_not_fit_any_more_is_named(mem, world, change, monkeypatch):
    """Recovery refuses to guess, leaves the step, and says what to load."""
    make = tool(mem)
    with dying(mem):
        make("a")
    known = dict(registry._compensators)
    name = unmake.name
    if change == "gone":
        del known[name]
    elif change == "version":
        known[name] = registry.Compensator(fn=unmake.fn, name=name, version=2, key_param=None)
    else:
        known[name] = registry.Compensator(fn=lambda other: None, name=name, version=1, key_param=None)
    with monkeypatch.context() as patch:
        patch.setattr(registry, "_compensators", known)
        (done,) = recover(mem)
    assert not done.report.clean
    assert name in done.left[0].reason
    assert not done.left[0].human
    (done,) = recover(mem)
    assert done.report.clean
    assert world.standing == {}


def test_a_rollback_that_runs_out_of_time_leaves_the_rest_to_recovery(kit, world):
    """No compensation begins after the deadline; what is left is named."""
    report = fail(kit, unmake, [], things="ab", rollback_timeout_s=0.0)
    assert names(report.failed) == ["a", "b"]
    assert world.count("undo") == 0


def test_reports_are_complete_and_plain(kit, world):
    """Each effect in one bucket, JSON all the way down, and a text that says the verdict first."""
    report = fail(kit, unmake, [ValueError("down")] * 9, things="xay")
    data = json.loads(json.dumps(report.to_dict()))
    buckets = ("kept", "compensated", "in_doubt", "conflicted", "failed", "orphaned")
    ids = [step["step_id"] for bucket in buckets for step in data[bucket]]
    assert sorted(ids) == [f"{report.saga_id}:{number}" for number in (1, 2, 3)]
    assert report.format_text().splitlines()[0].endswith("rolled back, partial")
    assert data["cause"] == "Lost"


def test_the_log_and_the_report_agree(kit, world):
    """The live report is what a reader of the log finds."""
    from agent_saga.machine.report import report_of

    report = fail(kit, unmake, [ValueError("down")] * 9, things="xay")
    loaded = load(kit.writer().store, report.saga_id)
    assert report_of(loaded.view) == report


async def agenerator(thing):
    yield thing


def generator(thing):
    yield thing


def nothing(other):
    return True


@pytest.mark.parametrize(
    "make",
    [
        lambda: compensator(unmake.fn),
        lambda: compensator("c.generator")(generator),
        lambda: compensator("c.agenerator")(agenerator),
        lambda: compensator("c.version", version=0)(nothing),
        lambda: compensator("c.version", version="1")(nothing),
        lambda: compensator("\ud800")(nothing),
        lambda: compensator("c.key", key_param="missing")(nothing),
        lambda: compensator("c.verify", verify=generator)(nothing),
        lambda: compensator("c.verify", verify=unmake.fn)(nothing),
        lambda: compensator("world.unmake")(nothing),
        lambda: unmake.bind(thing="results.id"),
        lambda: unmake.bind(thing="result..id"),
        lambda: unmake.bind(thing="kwargs"),
        lambda: unmake.bind(thing=7),
        lambda: unmake.bind(other="result.id"),
        lambda: unmake.bind(),
        lambda: unmake.with_(other=1),
    ],
    ids=itertools.count(),
)
def test_a_compensator_that_cannot_work_is_refused_where_it_is_written(make):
    """Names, paths, parameters, traits."""
    with pytest.raises(DeclarationError):
        make()
