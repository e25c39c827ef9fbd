"""Several processes at one log: recoverers that race, owners that live, sleep or fork. Rule ids: R-n."""

import os
import select
import signal
from itertools import count

import pytest
from crash_lab import check_truth, recover_for_good

from agent_saga.model.records import Claimed

TRIP = {"kind": "keyed", "mode": "sync", "fails": False}
IN_THE_MIDDLE = "after the effect on hotel"


def claims(room):
    return {view.id: sum(isinstance(record, Claimed) for record in records) for view, records in room.log()[0]}


def actions(told):
    return {one["action"] for one in told["sagas"]}


@pytest.mark.parametrize("recoverers", [2, 4])
def test_of_several_recoverers_one_claims(lab, recoverers):
    """R-1: recoverers that start at once claim each saga once, and the world is right."""
    room = lab.room()
    for number in range(5):
        assert room.run("forward", crash_at=6 + 3 * number, trip=f"{number}-", **TRIP) is None
    assert room.run("crowd", kind="keyed", trip="crowd", sagas=8, crash_at=12) is None
    racing = [room.start("recover", stop_at=[1]).stopped() for _ in range(recoverers)]
    told = [one.go_on().wait() for one in racing]
    assert [actions(one) for one in told if not actions(one) <= {"recovered", "raced", "live"}] == [], told
    assert set(claims(room).values()) == {1}
    recover_for_good(room)
    check_truth(room, clean=True)


@pytest.mark.parametrize("point", ["after commit of intent 2", IN_THE_MIDDLE, "before commit of saga_ended"])
def test_a_live_owner_is_left_alone(lab, point):
    """R-2: also an owner that is stopped; it goes on afterwards as if nothing had been."""
    room = lab.room()
    owner = room.start("forward", stop_at=[point], **TRIP).stopped()
    before = room.world(), room.log()
    for job in ({}, {"saga": before[1][0][0][0].id}):
        told = room.recover(**job)
        assert actions(told) == {"live"}
        assert before == (room.world(), room.log())
    assert owner.go_on().wait()["ended"] == "normally"
    assert room.standing() == {"flight", "hotel", "car"}
    check_truth(room, clean=True)


def test_a_recoverer_dies_while_another_waits(lab):
    """R-3: what one recoverer works at, another leaves alone; when the first dies, the other finishes."""
    start = lab.room()
    assert start.run("forward", crash_at=IN_THE_MIDDLE, **TRIP) is None
    for point in count(1):
        room = lab.copy(start)
        first = room.start("recover", stop_at=[point])
        if not first.has_stopped():
            break
        assert actions(room.recover()) <= {"live", "recovered"}
        first.kill()
        recover_for_good(room)
        check_truth(room, clean=True)
        assert room.standing() == set()
    assert point > 10
    assert first.wait() is not None


@pytest.mark.parametrize("child", ["fork", "program"])
def test_a_forked_child_does_not_keep_its_dead_parent_alive(lab, tmp_path, child):
    """R-4: a child of a dead owner, forked or started, holds recovery up for not a moment."""
    room, pid = lab.room(), tmp_path / "child"
    owner = room.start("parent", kind="keyed", child=child, child_pid=str(pid), stop_at=["has a child"]).stopped()
    try:
        assert actions(room.recover()) == {"live"}
        owner.kill()
        recover_for_good(room)
        check_truth(room, clean=True)
        assert room.standing() == set()
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_marks_of_the_dead_go_away(lab):
    """R-9: a process that closes the log removes the files of killed ones, and no others."""
    room = lab.room()
    for trip in ("one-", "two-"):
        assert room.run("forward", crash_at=10, trip=trip, **TRIP) is None
    owner = room.start("forward", trip="three-", stop_at=[10], **TRIP).stopped()
    room.recover()
    marks = [mark.name for mark in room.log_path.with_name("log.db-owners").iterdir() if mark.name[0] != "."]
    assert [f"{owner.pid}"] == [mark.partition("-")[0] for mark in marks]
    assert actions(room.recover()) == {"live"}
    assert owner.go_on().wait()["ended"] == "normally"


def test_a_child_that_dies_does_not_take_its_parent_along(lab, tmp_path):
    """R-5: the end of a forked child does not make its parent look dead."""
    room, pid = lab.room(), tmp_path / "child"
    owner = room.start("parent", kind="keyed", child="fork", child_pid=str(pid), stop_at=["has a child"]).stopped()
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert actions(room.recover()) == {"live"}
    assert owner.go_on().wait()["ended"] == "normally"
    assert room.standing() == {"flight", "hotel"}


def test_a_child_forked_in_c_delays_recovery_and_no_more(lab, tmp_path):
    """R-6: a fork that no hook sees keeps the owner's lock; when that child has gone, recovery goes on."""
    room, pid = lab.room(), tmp_path / "child"
    owner = room.start("parent", kind="keyed", child="fork in C", child_pid=str(pid), stop_at=["has a child"]).stopped()
    owner.kill()
    child = int(pid.read_text())
    try:
        assert actions(room.recover()) == {"live"}
    finally:
        os.kill(child, signal.SIGKILL)
    _gone(child)
    recover_for_good(room)
    check_truth(room, clean=True)


def _gone(pid):
    """Wait until an orphan, which somebody else reaps, holds nothing any more."""
    fd = os.pidfd_open(pid)
    try:
        assert select.select([fd], [], [], 10)[0]
    finally:
        os.close(fd)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    "point", ["after the effect on hotel", "before the effect on hotel", "after commit of intent 2"]
)
def test_ctrl_c_rolls_back(lab, mode, point):
    """R-7: one Ctrl-C: the saga is rolled back, and the interrupt goes on."""
    room = lab.room()
    owner = room.start("forward", **{**TRIP, "mode": mode}, stop_at=[point]).stopped()
    told = owner.go_on(signal.SIGINT).wait()
    assert told["ended"] == "KeyboardInterrupt"
    assert room.standing() == set()
    assert recover_for_good(room)[0]["sagas"] == []
    check_truth(room, clean=True)


@pytest.mark.parametrize("point", ["after commit of claimed", "before the compensation of hotel"])
def test_ctrl_c_in_a_recovery_leaves_the_rest_to_the_next(lab, point):
    """R-10: an interrupted sweep is no failure of the log; the next one goes on."""
    room = lab.room()
    assert room.run("forward", crash_at=IN_THE_MIDDLE, **TRIP) is None
    sweep = room.start("recover", stop_at=[point]).stopped()
    assert sweep.go_on(signal.SIGINT).wait()["ended"] == "KeyboardInterrupt"
    recover_for_good(room)
    check_truth(room, clean=True)
    assert room.standing() == set()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("point", ["before the compensation of flight", "after the compensation of hotel"])
def test_a_second_ctrl_c_leaves_the_rest_to_recovery(lab, mode, point):
    """R-8: a second Ctrl-C ends the rollback where it is; another process finishes it."""
    room = lab.room()
    owner = room.start("forward", **{**TRIP, "mode": mode}, stop_at=[IN_THE_MIDDLE, point]).stopped()
    owner.go_on(signal.SIGINT).stopped()
    told = owner.go_on(signal.SIGINT).wait()
    assert told["ended"] == "KeyboardInterrupt"
    recover_for_good(room)
    check_truth(room, clean=True)
    assert room.standing() == set()
