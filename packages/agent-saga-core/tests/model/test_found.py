"""What the simulator found in the engine, held by the run that found it; see docs/found-by-the-simulator.md."""

import pytest

from agent_saga.errors import SagaBusy
from agent_saga.runtime import late
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.verdict import settle_by_hand
from agent_saga.testing.sim.crashes import Explorer, explore, play
from agent_saga.testing.sim.scheduler import Run
from agent_saga.testing.sim.schedules import FAMILIES, Player
from agent_saga.testing.sim.script import parse
from agent_saga.testing.sim.stage import Process, installed


@pytest.mark.parametrize("mode", ["catch", "adapter"])
@pytest.mark.parametrize("undo", ["thrice", "fail", "conflict"])
def test_no_commit_over_a_failed_settlement(mode, undo):
    """FOUND-1: a step in doubt whose settling compensation failed keeps its saga from committing."""
    covered = explore(parse(f"keyed:ok:ok,absent:fail:{undo}/commit/{mode}"), depth=2)
    assert not covered.found, covered.found


@pytest.mark.parametrize(
    ("family", "decisions"),
    [
        ("paused-owner-1", (0, 0, 0, 1, 2, 1, 1, 1)),
        ("paused-owner-3", (0, 1, 2, 1, 1, 1, 0, 0)),
        ("paused-owner-1", (0, 0, 0, 0, 1, 2, 1, 1)),
    ],
)
def test_a_landing_in_a_replaced_owner_reaches_the_log(family, decisions):
    """FOUND-2: what landed after its owner was replaced is recorded and compensated, also while the new owner works."""
    trace = Player(FAMILIES[family]).replay(decisions)
    assert not [line for line in trace if "!!" in line]
    assert any("claimed, late_outcome" in line or "saga_opened, late_outcome" in line for line in trace)


def test_bad_news_does_not_repeat_the_walk():
    """FOUND-3: a late answer that nothing landed does not try failed compensations all over again."""
    scenario = parse("keyed:ok:ok,absent:ok:fail,plain:late-:ok/commit/plain/late=6")
    explorer = Explorer(scenario, depth=0)
    with installed(explorer.stage) as stage:
        play(stage, scenario)
        assert stage.world.tries["undo", "A2"] == 3


@pytest.mark.parametrize("end", ["ask", "commit", "raise"])
def test_a_late_landing_is_compensated_at_once(end):
    """FOUND-4: a landing that becomes known during a rollback is compensated before the steps before it."""
    covered = explore(parse(f"keyed:ok:ok,keyed:ok:ok,keyed:ok:ok,keyed:late+:ok/{end}/plain/late=4"), depth=1)
    assert not covered.found, covered.found


@pytest.mark.parametrize("decl", ["probe", "travel", "absent", "slow"])
def test_a_step_never_looked_at_needs_no_human(decl):
    """FOUND-5: recovery looks at a step in doubt whose call still ran at the end, whatever else has to wait."""
    covered = explore(parse(f"keyed:ok:fail,{decl}:late-:ok/raise/plain/late=99"), depth=1)
    assert not covered.found, covered.found


@pytest.mark.parametrize("end", ["commit", "raise"])
@pytest.mark.parametrize("mode", ["plain", "catch", "retry"])
def test_no_compensation_overtakes_its_request(mode, end):
    """FOUND-6: a compensation from the intent alone waits until its call can no longer land."""
    covered = explore(parse(f"keyed:ok:ok,slow:travel:ok/{end}/{mode}"), depth=2)
    assert not covered.found, covered.found


@pytest.mark.parametrize("decl", ["far", "farslow"])
@pytest.mark.parametrize("mode", ["plain", "catch", "retry"])
def test_a_long_travel_ends(decl, mode):
    """FOUND-7: a step whose request may travel longer than a sweep waits is settled by a later one."""
    covered = explore(parse(f"keyed:ok:ok,{decl}:travel:ok/commit/{mode}"), depth=2)
    assert not covered.found, covered.found


def test_an_interrupted_recovery_gives_up_what_it_claimed():
    """FOUND-8: recovery that is stopped between its claim and its work leaves the saga to others, and lives on."""
    covered = Player(FAMILIES["recovery-interrupted"]).every()
    assert not covered.found, covered.found
    assert covered.runs > 10


@pytest.mark.parametrize("tries", [late.PATIENT_TRIES, 0])
def test_an_overtaken_amendment_comes_to_its_end(tries, monkeypatch):
    """FOUND-9: late answers and a recoverer that amend one sealed saga leave nothing open, whether they wait or not."""
    monkeypatch.setattr(late, "PATIENT_TRIES", tries)
    player = Player(FAMILIES["sealed-then-answered"])
    for begin in ((0, 0, 1, 1), (0, 1, 1, 0), (2, 0, 1, 1)):
        covered = player.every(begin)
        assert not covered.found, covered.found
    assert player.covered.runs > 50


def test_an_answer_is_recorded_once():
    """FOUND-9: a recoverer that claims the saga after a late answer was recorded has read it there."""
    trace = Player(FAMILIES["paused-owner-late"]).replay((0, 0, 0, 0, 0, 3, 2, 3))
    assert not [line for line in trace if "!!" in line]
    assert sum("late_outcome" in line for line in trace) == 1


def test_others_wait_while_a_living_process_amends():
    """FOUND-9: what a late answer has begun about a sealed saga is left to its process by recovery and by humans."""
    family = FAMILIES["sealed-then-answered"]
    player = Player(family)
    with installed(player.stage) as stage:
        run = Run(stage, lambda _options: 0)
        family.setup(run, stage, tuple(parse(token) for token in family.scenarios))
        answers = [task for task in run.tasks if task.name == "late answer"]
        answers[0].step()
        other = Process(stage, 4)
        (saga_id,) = (known for known, chain in stage.disk.image.chains.items() if chain.current.amends is None)
        assert {one.action for one in other.run(sweep(other.writer))} == {"live"}
        with pytest.raises(SagaBusy, match="amends"):
            settle_by_hand(other.writer, saga_id, 1, "accept", evidence="looked", by="ann")
        run.settle()
        assert {one.action for one in other.run(sweep(other.writer))} == set()
