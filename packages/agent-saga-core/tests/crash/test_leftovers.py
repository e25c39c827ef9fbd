"""What recovery cannot settle now: when it tries again, and when it waits for a human. Rule ids: W-n."""

import subprocess
import sys
from pathlib import Path

from crash_lab import check_truth

VERIFIER = Path(__file__).parents[4] / "scripts" / "verify_independently.py"
TRIP = {"mode": "sync", "fails": False}


def crashed_room(lab, kind, point, **job):
    room = lab.room()
    assert room.run("forward", kind=kind, crash_at=point, **{**TRIP, **job}) is None
    return room


def told(room, **job):
    """Recover; return what was said of the one saga, after both verifiers have read the log."""
    (one,) = room.recover(**job)["sagas"]
    room.verify()
    subprocess.run([sys.executable, str(VERIFIER), str(room.log_path)], check=True, capture_output=True)
    return one


def row(room):
    ((view, _),) = room.log()[0]
    return view


def test_a_probe_that_cannot_tell_is_asked_again_later(lab):
    """W-1: `Unknowable` is a retry with backoff, not a case for a human; a later sweep settles it."""
    room = crashed_room(lab, "moody", "after the effect on car", mood="down")
    first = told(room, mood="down")
    assert (first["action"], first["left"]) == ("recovered", [[3, "in_doubt", False]])
    before = room.world(), room.log()
    assert told(room, mood="down")["action"] == "later"
    assert before == (room.world(), room.log())
    again = told(room, saga=first["saga"], mood="up")
    assert (again["action"], again["left"]) == ("recovered", [])
    check_truth(room, clean=True)


def test_ten_answers_that_say_nothing_are_enough(lab):
    """W-2: after ten of them the step is listed for a human; sweeps still ask, with backoff."""
    room = crashed_room(lab, "moody", "after the effect on car")
    for asked in range(1, 11):
        one = told(room, saga=row(room).id, mood="down")
        assert one["left"] == [[3, "in_doubt", asked >= 10]]
    assert told(room, mood="down")["action"] == "later"


def test_a_settlement_time_still_to_come_is_a_retry(lab):
    """W-3: `NotLanded` before `settle_s` is over is asked again when it is, and says so."""
    room = crashed_room(lab, "slow", "before the effect on car")
    one = told(room)
    assert one["left"] == [[3, "in_doubt", False]]
    assert told(room)["action"] == "later"


def test_a_verifier_that_says_no_leaves_it_to_a_human(lab):
    """W-4: a compensation without an outcome that did not happen, and may not run again unseen, is a human's."""
    room = crashed_room(lab, "verified", "before the compensation of car", fails=True)
    one = told(room)
    assert one["left"] == [[3, "compensating", True]]
    before = room.world(), room.log()
    assert told(room)["action"] == "stuck"
    assert before == (room.world(), room.log())
    named = told(room, saga=one["saga"])
    assert (named["action"], named["left"]) == ("recovered", [[3, "compensating", True]])


def test_a_compensation_that_keeps_failing_keeps_its_backoff(lab):
    """W-5: also after ten attempts, when a human is asked for, sweeps wait for `next_at`."""
    room = crashed_room(lab, "failing", "after commit of outcome 3")
    saga = row(room).id
    while row(room).steps and row(room).steps[3].compensation_attempts < 10:
        told(room, saga=saga)
    assert row(room).steps[3].next_at is not None
    before = room.world(), room.log()
    one = told(room)
    assert (one["action"], [human for _, _, human in one["left"]]) == ("later", [True] * 3)
    assert before == (room.world(), room.log())
