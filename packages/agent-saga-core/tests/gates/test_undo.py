"""The way back: places where compensations live, and times for which they work."""

import datetime as dt

import pytest
from gate_cases import Facts, allowed, asked, call, decide, refused, step

from agent_saga.errors import DeclarationError
from agent_saga.gates import CompensationWindow, FreezeWindow, UndoPath, WeeklyFreeze


def saga(place, state="standing"):
    return Facts(known=[step(1, "archive", state)], live_in={"saga-1:1": place})


RULE = UndoPath(tool="rm", destroys="kwargs.path")


@pytest.mark.parametrize(
    "path",
    [
        "/var/backups",
        "/var/backups/",
        "/var",
        "/",
        "/var/backups/today/db.dump",
        "/var/./backups",
        "/var/log/../backups",
        "/VAR/Backups",
        "file:///var/backups",
        "/var/*",
        "/var/back*",
        "/*/backups",
        "/var/backups/*",
        "/var/backups/**",
        "/v?r",
        "/[a-z]ar/backups",
        "/*/backups/today",
        "/**/today",
        "/v*s",
    ],
)
def test_no_spelling_of_the_place_is_destroyed(path):
    """GATE: a call that would destroy the place of a needed compensation, above, below or by pattern, is refused."""
    reason = refused(decide(RULE, call("rm", path=path), saga("/var/backups")))
    assert "step 1 (archive) needs '/var/backups'" in reason


@pytest.mark.parametrize(
    "path", ["/var/log", "/var/backups2", "/var/back", "/tmp/*", "/var/*.log", "/*/log", "s3://var/backups"]
)
def test_other_places_may_be_destroyed(path):
    """GATE: what is elsewhere is none of the rule's business."""
    allowed(decide(RULE, call("rm", path=path), saga("/var/backups")))


def test_links_lead_where_they_lead(tmp_path):
    """GATE: a symbolic link to the place is the place."""
    (tmp_path / "backups").mkdir()
    (tmp_path / "innocent").symlink_to(tmp_path / "backups")
    refused(decide(RULE, call("rm", path=str(tmp_path / "innocent" / "x")), saga(str(tmp_path / "backups"))))
    refused(decide(RULE, call("rm", path=tmp_path / "innocent"), saga(str(tmp_path / "backups"))))


@pytest.mark.parametrize("state", ["standing", "in_doubt", "compensating", "compensation_failed", "conflicted"])
def test_a_compensation_is_needed_while_its_effect_may_stand(state):
    """GATE: every state in which a compensation may still run keeps its place safe."""
    refused(decide(RULE, call("rm", path="/b"), saga("/b", state)))


@pytest.mark.parametrize("state", ["absent", "compensated", "accepted"])
def test_what_is_settled_needs_no_place(state):
    """GATE: a step without an effect left needs nothing any more."""
    allowed(decide(RULE, call("rm", path="/b"), saga("/b", state)))


def test_a_call_may_not_destroy_its_own_way_back():
    """GATE: the place of the call's own compensation counts too."""
    assert "the call itself" in refused(decide(RULE, call("rm", path="/trash", lives_in="/trash/x")))


@pytest.mark.parametrize("value", [None, "", 5, b"/b", "/b\0", ["/b"], {"path": "/b"}], ids=repr)
def test_a_place_that_cannot_be_read_is_refused(value):
    """GATE: what a call destroys must be plain to see."""
    refused(decide(RULE, call("rm", path=value), saga("/elsewhere")))


def test_several_places_and_missing_ones():
    """GATE: each of several paths counts, and a missing one is refused."""
    rule = UndoPath(tool="rm", destroys="paths.*")
    refused(decide(rule, call("rm", paths=["/tmp/a", "/b/c"]), saga("/b")))
    refused(decide(rule, call("rm"), saga("/b")))
    allowed(decide(rule, call("rm", paths=["/tmp/a"]), saga("/b")))


def test_prefixes_and_patterns_of_texts():
    """GATE: places that are no paths are compared as texts."""
    prefix = UndoPath(tool="drop", destroys="name", compare="prefix", place="bucket:{}")
    refused(decide(prefix, call("drop", name="old/"), saga("bucket:old/2025")))
    refused(decide(prefix, call("drop", name="old/2025/x"), saga("bucket:old/2025")))
    allowed(decide(prefix, call("drop", name="new/"), saga("bucket:old/2025")))
    pattern = UndoPath(tool="drop", destroys="name", compare="pattern", place="table:{}")
    refused(decide(pattern, call("drop", name="orders_*"), saga("table:orders_archive")))
    allowed(decide(pattern, call("drop", name="users_*"), saga("table:orders_archive")))
    for options in ({"compare": "guess"}, {"place": "x"}, {"place": "{}{}"}):
        with pytest.raises(DeclarationError):
            UndoPath(tool="drop", destroys="name", **options)


def test_what_cannot_be_taken_back_for_long_enough_is_asked_about():
    """GATE: irreversible calls, unknown compensations and short windows are asked about or refused."""
    rule = CompensationWindow(at_least_s=3600)
    assert "not be compensated at all" in asked(decide(rule, call(effect="irreversible"))).reason.replace(
        "cannot", "not"
    )
    assert "only after it ran" in asked(decide(rule, call(compensator=None))).reason
    assert "for 60 s only" in asked(decide(rule, call(valid_for_s=60))).reason
    assert "any more" in refused(decide(CompensationWindow(at_least_s=1, then="refuse"), call(valid_for_s=0)))
    allowed(decide(rule, call(valid_for_s=None)))
    allowed(decide(rule, call(valid_for_s=3600)))


def test_a_deadline_in_the_arguments_counts(moved_clock):
    """GATE: the last moment that a call states is compared with the clock; without a zone it is none."""
    rule = CompensationWindow(at_least_s=3600, until="booking.free_until")
    allowed(decide(rule, call(booking={"free_until": "2026-12-01T01:00:00Z"})))
    late = dt.datetime(2026, 12, 1, 0, 59, tzinfo=dt.UTC)
    assert "3540 s" in asked(decide(rule, call(booking={"free_until": late}))).reason
    assert "any more" in asked(decide(rule, call(booking={"free_until": "2026-11-30T00:00+00:00"}))).reason
    for bad in (None, "soon", "2026-12-02T00:00:00", 5, dt.date(2027, 1, 1)):
        refused(decide(rule, call(booking={"free_until": bad})))
    with pytest.raises(DeclarationError):
        CompensationWindow(at_least_s=float("nan"))


def test_a_freeze_holds_between_two_moments(moved_clock):
    """GATE: the first moment is frozen, the last is not."""
    rule = FreezeWindow(starts_at="2026-12-01T00:00:00Z", ends_at="2026-12-02T00:00:00Z", reason="release")
    assert "release until 2026-12-02" in refused(decide(rule, call()))
    moved_clock.now_s += 86_400
    allowed(decide(rule, call()))
    moved_clock.now_s -= 86_401
    allowed(decide(rule, call()))
    for options in (("2026-12-01", "2026-12-02T00:00Z"), ("2026-12-02T00:00Z", "2026-12-01T00:00Z"), (5, 6)):
        with pytest.raises(DeclarationError):
            FreezeWindow(starts_at=options[0], ends_at=options[1])


def test_a_weekly_freeze_follows_the_wall_clock_of_its_place(moved_clock):
    """GATE: nights that span midnight belong to the day on which they start. 2026-12-01 is a Tuesday."""
    monday_night = WeeklyFreeze(days=("mon",), start="22:00", end="06:00")
    refused(decide(monday_night, call()))
    moved_clock.now_s += 6 * 3600
    allowed(decide(monday_night, call()))
    tuesday = WeeklyFreeze(days="tue", then="ask")
    asked(decide(tuesday, call()))
    moved_clock.now_s += 18 * 3600
    allowed(decide(tuesday, call()))
    berlin = WeeklyFreeze(days=("wed",), start="01:00", end="01:30", zone="Europe/Berlin")
    refused(decide(berlin, call()))
    for options in (
        {"days": ()},
        {"days": ("monday",)},
        {"days": "mon", "start": "25:00"},
        {"days": "mon", "zone": "X/Y"},
    ):
        with pytest.raises(DeclarationError):
            WeeklyFreeze(**options)
