"""Keys, resumes and suspensions across deaths. Rule ids: K-n."""

import pytest
from crash_lab import check_attempts, check_truth, crashes_of, recover_for_good

TRIP = {"kind": "keyed", "mode": "sync", "fails": False}
ROLL_BACK = {"key": "order-42"}
RESUME = {"key": "order-42", "on_crash": "resume"}
ALL_THREE = {"flight", "hotel", "car"}
EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])


def the_sagas(room):
    return [view for view, _ in room.log()[0]]


@EVERY
def test_a_key_after_a_crash_begins_anew(lab, every):
    """K-1: with `on_crash="roll_back"` the next holder of the key finishes the rollback first, wherever it died."""
    for room, _ in crashes_of(lab, "forward", every=every, options=ROLL_BACK, trip="one-", **TRIP):
        told = room.run("forward", options=ROLL_BACK, trip="two-", **TRIP)
        sagas = the_sagas(room)
        if len(sagas) == 1 and sagas[0].incarnation == 1 and room.standing() == {f"one-{thing}" for thing in ALL_THREE}:
            assert told["ended"] == "AlreadyCommitted"  # It died after its end was durable.
        else:
            assert told["ended"] == "normally"
            assert room.standing() == {f"two-{thing}" for thing in ALL_THREE}
        recover_for_good(room)
        check_truth(room, clean=True)


@EVERY
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_resumed_saga_goes_on_where_it_was(lab, mode, every):
    """K-2: the same program with the same key replays what stands, and runs the rest: each effect once."""
    trip = {**TRIP, "mode": mode, "options": RESUME}
    for room, _ in crashes_of(lab, "forward", every=every, **trip):
        before = room.world(), room.log()
        assert {one["action"] for one in room.recover()["sagas"]} <= {"resumable"}
        assert before == (room.world(), room.log())
        assert room.run("forward", **trip)["ended"] == "normally"
        assert room.standing() == ALL_THREE
        assert [view.state for view in the_sagas(room)] == ["committed"]
        assert all(len(keys) == 1 for keys in keys_of(room).values()), "one key per thing, in both processes"
        recover_for_good(room)
        check_truth(room, clean=True)


@EVERY
def test_a_resumed_saga_goes_through_its_inner_scope_again(lab, every):
    """K-10: a nested scope that was rolled back, or was about to be, is entered again and ends as it would have."""
    trip = {**TRIP, "mode": "nested", "options": RESUME}
    for room, _ in crashes_of(lab, "forward", every=every, **trip):
        committed = [view.state for view in the_sagas(room)] == ["committed"]
        # What was compensated stands no more, so a saga that has committed cannot replay it.
        assert room.run("forward", **trip)["ended"] == ("AlreadyCommitted" if committed else "normally")
        assert room.standing() == {"flight", "car"}
        recover_for_good(room)
        assert [view.state for view in the_sagas(room)] == ["committed"]


def keys_of(room):
    keys = {}
    for _, op, thing, key in room.world()[0]:
        if op == "do":
            keys.setdefault(thing, set()).add(key)
    return keys


@pytest.mark.exhaustive
def test_a_resume_that_dies_is_resumed(lab):
    """K-3: killed again while it resumes, at every point; the third process finishes."""
    trip = {**TRIP, "options": RESUME}
    for start, _ in crashes_of(lab, "forward", **trip):
        for room, _ in crashes_of(lab, "forward", start=start, **trip):
            assert room.run("forward", **trip)["ended"] == "normally"
            assert room.standing() == ALL_THREE
            recover_for_good(room)
            check_truth(room, clean=True)


def test_a_resumable_saga_that_is_named_is_rolled_back(lab):
    """K-4: `recover --saga` rolls back what sweeps leave for a resume."""
    room = lab.room()
    assert room.run("forward", crash_at="after the effect on car", options=RESUME, **TRIP) is None
    (view,) = the_sagas(room)
    told = room.recover(saga=view.id)
    assert [one["action"] for one in told["sagas"]] == ["recovered"]
    assert room.standing() == set()
    recover_for_good(room)
    check_truth(room, clean=True)


def test_an_effect_in_doubt_that_nobody_can_settle_is_not_repeated(lab):
    """K-5: a resume does not run a call again whose effect may have happened; the saga is rolled back and names it."""
    room = lab.room()
    trip = {**TRIP, "kind": "plain", "options": RESUME}
    assert room.run("forward", crash_at="after the effect on hotel", **trip) is None
    assert room.run("forward", **trip)["ended"] == "RollbackIncomplete"
    assert room.standing() == {"hotel"}
    recover_for_good(room)
    check_truth(room, clean=False)


@pytest.mark.parametrize(("on_divergence", "standing"), [("roll_back", set()), ("keep", {"flight", "hotel"})])
def test_a_resume_that_does_something_else(lab, on_divergence, standing):
    """K-6: a resumed run that leaves out what stands is rolled back, unless it may keep it."""
    room = lab.room()
    options = {**RESUME, "on_divergence": on_divergence}
    assert room.run("forward", crash_at="after commit of outcome 2", options=options, **TRIP) is None
    told = room.run("forward", options=options, things=["hotel"], **TRIP)
    assert told["ended"] == ("SagaDiverged" if on_divergence == "roll_back" else "normally")
    assert room.standing() == standing
    recover_for_good(room)
    check_truth(room, clean=True)


@pytest.mark.parametrize("ttl_s", [3600.0, 0.0])
def test_a_suspended_saga_is_left_alone_until_its_time(lab, ttl_s):
    """K-7: killed anywhere around it, a suspension lasts for `suspend_ttl_s`; then the saga is rolled back."""
    trip = {**TRIP, "suspends": True, "options": {"suspend_ttl_s": ttl_s}}
    for room, _ in crashes_of(lab, "forward", first="before commit of outcome 3", **trip):
        suspended = [view.id for view in the_sagas(room) if view.state == "suspended"]
        told = room.recover()
        if suspended and ttl_s:
            assert [one["action"] for one in told["sagas"]] == ["suspended"]
            assert room.standing() == ALL_THREE
            told = room.recover(saga=suspended[0])
        assert [one["action"] for one in told["sagas"]] == ["recovered"]
        assert room.standing() == set()
        recover_for_good(room)
        check_truth(room, clean=True)


@pytest.mark.parametrize(
    ("verdict", "standing"),
    [("happened", set()), ("did-not-happen", {"car"}), ("compensated-by-hand", {"car"}), ("accept", {"car"})],
)
def test_a_human_settles_and_recovery_goes_on(lab, verdict, standing):
    """K-8: after a word about a step in doubt, killed at any point, recovery does the rest."""
    start = lab.room()
    trip = {**TRIP, "kind": "plain"}
    assert start.run("forward", crash_at="after the effect on car", **trip) is None
    told = start.recover()["sagas"][0]
    assert told["left"] == [[3, "in_doubt", True]]
    word = {"saga": told["saga"], "step": 3, "verdict": verdict, "result": '{"thing": "car"}'}
    for room, _ in crashes_of(lab, "settle", start=start, **word):
        if the_sagas(room)[0].steps[3].state == "in_doubt":
            room.run("settle", **word)
        recover_for_good(room)
        assert room.standing() == standing
        ((view, records),) = room.log()[0]
        assert [step.state for step in view.steps.values()][:2] == ["compensated", "compensated"]
        assert view.steps[3].state not in {"in_doubt", "standing"}
        check_attempts(room, view, records)


def test_an_ended_saga_whose_recoverer_died_is_no_resume(lab):
    """K-9: what a recoverer left of an ended saga is finished before its key begins anew, also with "resume"."""
    room = lab.room()
    plain = {**TRIP, "kind": "plain", "options": RESUME}
    assert room.run("forward", crash_at="after the effect on car", **plain) is None
    told = room.recover(saga=the_sagas(room)[0].id)["sagas"][0]
    room.run("settle", saga=told["saga"], step=3, verdict="happened", result='{"thing": "car"}')
    assert room.recover(crash_at="after commit of claimed") is None
    assert room.run("forward", trip="two-", options=RESUME, **TRIP)["ended"] == "normally"
    assert room.standing() == {"two-flight", "two-hotel", "two-car"}
    recover_for_good(room)
    check_truth(room, clean=True)
