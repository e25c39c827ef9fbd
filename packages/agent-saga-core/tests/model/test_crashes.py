"""Every crash of small sagas, on the real engine."""

import re
from itertools import chain, islice
from pathlib import Path

import pytest

from agent_saga.store.memory import MemoryLog
from agent_saga.testing.sim import families, prove
from agent_saga.testing.sim.crashes import Explorer, explore, play
from agent_saga.testing.sim.disk import SimLog
from agent_saga.testing.sim.script import (
    ACTS,
    DECLS,
    MODES,
    MORE_ACTS,
    MORE_DECLS,
    MORE_MODES,
    MORE_UNDOS,
    UNDOS,
    Scenario,
    Step,
    is_honest,
    parse,
)
from agent_saga.testing.sim.stage import installed


def test_quick_tier_holds():
    """Every failing step x every subset of failing compensations x every death, for sagas of 1 to 3 steps."""
    proof = prove.quick(3)
    assert proof.holds, proof.format_text()
    assert proof.crash_points > 500


@pytest.mark.parametrize("decl", DECLS)
def test_every_declaration_holds(decl):
    """Each way to declare a tool keeps the promises for each thing that its call may do, two deaths deep."""
    for act in ACTS:
        if not is_honest(Step(decl, act)):
            continue
        for late in (0, 3) if act.startswith("late") else (0,):
            covered = explore(Scenario((Step(decl, act),), "raise", late=late), depth=2)
            assert not covered.found, covered.found


@pytest.mark.parametrize("mode", ["catch", "retry", "nested", "adapter", "refuse", "key", "resume"])
def test_every_mode_holds(mode):
    """Each way a program takes an error keeps the promises."""
    for act in ("fail", "doubt+", "doubt-"):
        covered = explore(Scenario((Step(), Step("probe", act)), "commit", mode), depth=2)
        assert not covered.found, covered.found


@pytest.mark.parametrize("family", families.MORE, ids=lambda family: family.__name__)
def test_some_of_each_family_holds(family):
    """Gate, streams, repeats, lies, scopes, resumes and failing recoveries keep the promises (every 9th scenario)."""
    for job in islice(family(depth=1), 0, None, 9):
        covered = explore(job.scenario, depth=1)
        assert not covered.found, covered.found


def test_each_more_behaviour_is_explored():
    """No act, compensator's behaviour, declaration or mode is only a word: some family has it."""
    jobs = [job.scenario for family in families.MORE for job in family()]
    jobs += [job.scenario for job in chain(families.declarations(), families.modes())]
    modes = {mode for scenario in jobs for mode in scenario.mode.split("+")}
    steps = [step for scenario in jobs for step in scenario.steps]
    assert {*MODES, *MORE_MODES} <= modes
    assert {*ACTS, *MORE_ACTS} == {step.act for step in steps}
    assert {*UNDOS, *MORE_UNDOS} == {step.undo for step in steps}
    assert {*DECLS, *MORE_DECLS} == {step.decl for step in steps}


def test_another_seed_counts_alike():
    """What is exhaustive counts the same with any seed; only what is drawn differs."""
    first, second = (list(islice(families.drawn(seed), 20)) for seed in (1, 2))
    assert first == list(islice(families.drawn(1), 20)) != second
    once, again = prove.quick(2), prove.quick(2, cores=2)
    assert (once.crash_points, once.executions) == (again.crash_points, again.executions)


@pytest.mark.parametrize("mode", ["plain", "resume"])
def test_every_suspension_holds(mode):
    """A suspended saga waits for its time to live or its resume, whatever dies."""
    covered = explore(Scenario((Step(), Step("look", "ok", "doubt+")), "suspend", mode), depth=2)
    assert not covered.found, covered.found


@pytest.mark.parametrize("fate", ["lost", "kept"])
def test_every_failed_commit_holds(fate):
    """A commit that fails, its fate unknown to its caller, keeps the promises wherever it happens."""
    for number in range(1, 9):
        covered = explore(Scenario((Step(), Step()), "raise", fault=(number, fate)), depth=2)
        assert not covered.found, covered.found


def test_points_are_distinct():
    """A crash point counts once, however many ways lead to it."""
    covered = explore(parse("keyed:ok:ok,keyed:fail:ok/commit/plain"), depth=2)
    assert covered.points < covered.deaths
    deeper = explore(parse("keyed:ok:ok,keyed:fail:ok/commit/plain"), depth=3)
    assert deeper.points > covered.points


def test_same_token_same_run():
    """A scenario is its token: it covers the same points each time."""
    token = "probe:ok:once,travel:travel:ok/commit/plain"
    for known in (token, "held:ok:lie/ask/nested+short/fault=3:kept/late=2/later=1:lost"):
        assert str(parse(known)) == known
    first, second = explore(parse(token), depth=2), explore(parse(token), depth=2)
    assert (first.points, first.deaths, first.runs) == (second.points, second.deaths, second.runs)


@pytest.mark.parametrize(
    "token",
    [
        "keyed:ok:ok,keyed:fail:ok/commit/plain",
        "keyed:ok:ok,absent:doubt-:ok/commit/retry",
        "keyed:late+:ok/commit/plain/late=99",
        "keyed:ok:ok,keyed:fail:ok/commit/nested",
    ],
)
def test_simulated_log_agrees_with_the_reference_log(token, monkeypatch):
    """The simulated log gives the verdicts, records and rows of the log in memory for the same items."""
    reference = MemoryLog()
    append = SimLog.append

    def both(self, items, *, durable):
        verdicts = append(self, items, durable=durable)
        assert reference.append(items, durable=durable) == verdicts
        return verdicts

    monkeypatch.setattr(SimLog, "append", both)
    explorer = Explorer(parse(token), depth=0)
    with installed(explorer.stage) as stage:
        stage.late_after = parse(token).late
        play(stage, parse(token))
        log = stage.process.log
        for saga_id in stage.disk.image.chains:
            assert reference.records(saga_id) == log.records(saga_id)
            assert reference.row(saga_id) == log.row(saga_id)
            assert reference.facts_of(saga_id) == log.facts_of(saga_id)
        assert reference.tail() == log.tail()


@pytest.mark.parametrize(
    "token",
    [
        "keyed:ok:ok,final:fail:ok/commit/retry",  # Two steps of one tool: the word is about the second.
        "keyed:late-:ok/suspend/catch/late=2",  # An answer after the suspension does not end it.
        "keyed:late+:ok/suspend/catch/late=2",
    ],
)
def test_no_false_alarm(token):
    """What the checks once took for a broken promise, and is none, passes."""
    covered = explore(parse(token), depth=2)
    assert not covered.found, covered.found


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(1500)
def test_ci_tier_holds(capsys):
    """At least 200,000 distinct crash points, exhaustive within the printed bound and drawn beyond it."""
    proof = prove.ci()
    with capsys.disabled():
        print("\n" + proof.format_text())
    assert proof.holds, proof.format_text()
    assert proof.crash_points >= prove.CI_POINTS_MIN
    page = (Path(__file__).parents[4] / "docs" / "guarantees.md").read_text("utf-8")
    faults = proof.crashes["faults"]  # The family that both tiers explore to the same depth.
    assert re.search(rf"^  faults +{faults.points:,} +{faults.scenarios:,} +{faults.runs:,} ", page, re.MULTILINE)
