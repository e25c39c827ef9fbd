"""The crash points themselves. Rule ids: P-n."""

import pytest

from agent_saga import AgentKit, compensator
from agent_saga.testing import CRASH_AT, CrashPoints, watch_commits


class Died(BaseException):
    """What happens at the point in these tests, instead of the end of the process."""


def die():
    raise Died


@compensator("crash_points.take_back", idempotent=True)
def take_back(thing: str) -> None: ...


def run(points):
    kit = AgentKit(log="memory:")
    watch_commits(kit.writer(), points)
    put = kit.wrap(put_thing(points), effect="compensable", compensate=take_back.bind(thing="kwargs.thing"))
    with kit.transaction("two"):
        put(thing="a")
        put(thing="b")
    kit.close()


def put_thing(points):
    def put(thing: str) -> None:
        points.reach("effect")

    return put


def test_an_unarmed_run_counts_its_points():
    """P-1: before and after each commit and effect, in order, with names that two runs share."""
    first, second = CrashPoints(), CrashPoints()
    run(first)
    run(second)
    assert first.reached == second.reached
    assert first.reached[:5] == [
        "before commit of saga_opened+intent 1",
        "after commit of saga_opened+intent 1",
        "effect",
        "before commit of outcome 1",
        "after commit of outcome 1",
    ]
    assert first.reached.count("effect") == 2


@pytest.mark.parametrize(
    ("at", "number"), [(1, 1), (4, 4), ("a", 1), ("b", 2), ("a #2", 3), ("c", None), ("a #4", None)]
)
def test_an_armed_run_ends_at_its_point(at, number):
    """P-2: a point is named by its number, by its name (the first time), or by its name and a number."""
    points = CrashPoints(at, crash=die)
    died = None
    for name in ("a", "b", "a", "a"):
        try:
            points.reach(name)
        except Died:
            died = len(points.reached)
            break
    assert died == number


@pytest.mark.parametrize(("text", "armed"), [("", set()), ("7", {7}), ("effect #2", {"effect #2"})])
def test_the_environment_arms_a_point(monkeypatch, text, armed):
    """P-3: `AGENT_SAGA_CRASH_AT` holds a number or a name; unset or empty, nothing is armed."""
    monkeypatch.setenv(CRASH_AT, text)
    assert CrashPoints.from_environment()._crash_at == armed
