"""`agent-saga recover` on what killed, failing and living processes left."""

import json
import shlex
import signal

import pytest


def records(shop):
    return [json.loads(line) for line in shop.saga("export").stdout.splitlines()]


@pytest.mark.parametrize(
    ("where", "world"),
    [
        ("die-before-charge", []),
        ("die-after-charge", ["charge", "refund"]),
        ("nowhere", ["charge", "launch", "stop", "refund"]),
    ],
)
def test_a_killed_process_is_finished_by_another_one_once(shop, where, world):
    """Killed before an effect, in the hard place after it, or after all: one recovery finishes, the next is idle."""
    shop.tell(where)
    assert shop.run("die").returncode == -signal.SIGKILL
    told = shop.recover()
    assert "rolled back, clean" in told.stdout
    assert "1 saga recovered; nothing is left" in told.stdout
    assert shop.world() == world
    before = records(shop)
    again = shop.recover()
    assert "0 sagas recovered; nothing is left" in again.stdout
    assert (records(shop), shop.world()) == (before, world)


@pytest.mark.parametrize("where", ["die-before-refund", "die-after-refund"])
def test_a_killed_recovery_is_finished_by_the_next_one(shop, where):
    """A recoverer that is killed before or after a compensation leaves a log that the next one finishes."""
    shop.run("die")
    shop.tell(where)
    assert shop.process("-m", "agent_saga", "recover", "--import", "shop").returncode == -signal.SIGKILL
    shop.untell(where)
    shop.recover()
    assert sorted(shop.world()) == ["charge", "launch", "refund", "stop"]
    assert shop.data("recover", "--import", "shop")["sagas"] == []


def test_a_saga_whose_process_lives_is_not_touched(shop):
    """A live owner's saga is left alone, with exit code 0; when it is killed, it is recovered."""
    owner = shop.start("-W", "ignore", "shop.py", "live", stdin=-1)
    try:
        assert owner.stdout.readline() == "ready\n"
        told = shop.recover()
        assert "left alone: 1 live" in told.stdout
        assert [one["action"] for one in shop.data("recover", "--import", "shop")["sagas"]] == ["live"]
        assert shop.world() == ["charge", "launch"]
        assert "its process lives" in shop.saga("show", "order-live").stdout
        assert "settle" not in shop.saga("show", "order-live").stdout
        refused = shop.saga("settle", "order-live", 2, "--as", "accept", "--evidence", "e", "--by", "me", code=1)
        assert "live owner" in refused.stderr
    finally:
        owner.kill()
        owner.communicate()
    shop.recover()
    assert shop.world() == ["charge", "launch", "stop", "refund"]


def test_a_process_that_finishes_meanwhile_is_no_ones_business(shop):
    """Readers of a log that a live process writes see it open, and later committed; recovery finds nothing."""
    owner = shop.start("-W", "ignore", "shop.py", "live", stdin=-1)
    try:
        owner.stdout.readline()
        assert shop.data("sagas")["sagas"][0]["state"] == "open"
        shop.saga("verify")
        shop.saga("export")
        owner.stdin.write("go on\n")
        owner.stdin.flush()
        assert owner.wait(timeout=60) == 0
    finally:
        owner.kill()
        owner.communicate()
    assert shop.data("sagas")["sagas"][0]["state"] == "committed"
    assert shop.data("recover")["sagas"] == []


def test_a_missing_handler_is_named_and_loaded_by_the_next_command(shop):
    """Without --import nothing is compensated, exit 1 says what is missing; with it the saga is finished."""
    shop.run("die")
    told = shop.saga("recover", code=1)
    assert "compensator 'shop.refund' is not loaded" in told.stdout
    assert f"next: agent-saga recover --saga {shop.only_saga()}" in told.stdout
    assert shop.world() == ["charge", "launch"]
    shop.recover()
    assert shop.world() == ["charge", "launch", "stop", "refund"]


def test_a_failing_compensation_waits_and_is_tried_again_by_name(shop):
    """A failed attempt is retried later by sweeps, at once by --saga; the `next:` line is the exact command."""
    shop.run("die")
    shop.tell("refund-fails")
    told = shop.recover(code=1)
    assert "RuntimeError: the bank\\nis closed" in told.stdout
    (line,) = [line for line in told.stdout.splitlines() if line.strip().startswith("next: ")]
    program, *words = shlex.split(line.partition("next: ")[2])
    assert program == "agent-saga"
    shop.untell("refund-fails")
    shop.saga(*words)
    assert shop.world() == ["charge", "launch", "stop", "refund"]


def test_a_conflict_needs_a_human(shop):
    """A compensation that refuses is left to a human, with every word that can be said about it."""
    shop.run("die")
    shop.tell("refund-conflicts")
    document = shop.data("recover", "--import", "./shop.py", code=1)
    (left,) = document["sagas"][0]["left"]
    assert (left["state"], left["human"]) == ("conflicted", True)
    assert set(left["words"]) == {"happened", "did-not-happen", "compensated-by-hand", "accept"}
    before = records(shop)
    shop.recover(code=1)
    assert records(shop) == before


def test_a_saga_that_waits_for_a_resume_is_left_alone_until_it_is_named(shop):
    """`on_crash="resume"`: a sweep leaves it, `--saga` rolls it back now."""
    shop.run("resume")
    assert "left alone: 1 waiting for a resume" in shop.recover().stdout
    assert shop.world() == ["charge", "launch"]
    shop.recover("--saga", "order-resume")
    assert shop.world() == ["charge", "launch", "stop", "refund"]


def test_a_dry_run_changes_nothing(shop):
    """--dry-run says what would be done, and neither runs nor records anything."""
    shop.run("die")
    before = records(shop)
    told = shop.recover("--dry-run", code=1)
    assert "compensate with 'shop.refund'" in told.stdout
    document = shop.data("recover", "--dry-run", "--saga", "order-die", code=1)
    assert [one["action"] for one in document["sagas"]] == ["would_recover"]
    assert "not loaded" in document["sagas"][0]["steps"][0]["missing"]
    assert (records(shop), shop.world()) == (before, ["charge", "launch"])
    shop.recover()
    assert "nothing to recover" in shop.recover("--dry-run").stdout


def test_imports_of_pyproject_are_loaded(shop):
    """`[tool.agent-saga] imports` of the working directory's pyproject.toml names modules and files."""
    shop.run("die")
    (shop.folder / "pyproject.toml").write_text('[tool.agent-saga]\nimports = ["./shop.py"]\n')
    shop.saga("recover")
    assert shop.world() == ["charge", "launch", "stop", "refund"]


def test_what_handlers_print_does_not_reach_stdout(shop):
    """stdout is the command's own, so --json stays a document."""
    shop.run("die")
    done = shop.saga("recover", "--import", "shop", "--json")
    assert json.loads(done.stdout)["schema"] == "agent-saga/recover/1"
    assert "refunding" in done.stderr


def test_several_recoverers_at_once_compensate_once(shop):
    """Recoverers that race finish each saga once."""
    for _ in range(3):
        shop.run("die")
    racing = [shop.start("-m", "agent_saga", "recover", "--import", "shop") for _ in range(3)]
    codes = []
    for one in racing:
        _, err = one.communicate(timeout=60)
        assert "Traceback" not in err
        codes.append(one.returncode)
    assert codes == [0, 0, 0]
    shop.recover()
    assert sorted(shop.world()) == sorted(["charge", "launch", "stop", "refund"] * 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_sweeps_until_a_signal(shop, number):
    """--watch recovers what dies while it runs, tells it once, and stops at a signal."""
    shop.run("die")
    watcher = shop.start("-m", "agent_saga", "recover", "--watch", "--every", "0.1", "--import", "shop", "--json")
    try:
        assert json.loads(watcher.stdout.readline())["sagas"][0]["action"] == "recovered"
        shop.run("die")
        assert json.loads(watcher.stdout.readline())["sagas"][0]["report"]["clean"] is True
        watcher.send_signal(number)
        out, err = watcher.communicate(timeout=60)
    finally:
        watcher.kill()
        watcher.communicate()
    assert (watcher.returncode, out) == (0, "")
    assert "Traceback" not in err
    assert shop.world() == ["charge", "launch", "stop", "refund"] * 2


def test_watch_tells_what_needs_a_human_once(shop):
    """A saga in which nothing changes is not told again by every sweep."""
    shop.tell("die-after-launch")
    shop.run("die")
    shop.untell("die-after-launch")
    watcher = shop.start("-m", "agent_saga", "recover", "--watch", "--every", "0.05", "--import", "shop", "--json")
    try:
        first = json.loads(watcher.stdout.readline())
        assert first["sagas"][0]["left"][0]["human"] is True
        shop.run("die")
        second = json.loads(watcher.stdout.readline())
        assert [one["action"] for one in second["sagas"]] == ["recovered"]
        watcher.terminate()
        out, _ = watcher.communicate(timeout=60)
    finally:
        watcher.kill()
        watcher.communicate()
    assert (watcher.returncode, out) == (1, "")
