"""Every crash of one scenario: the program is run once, and recovery from each state that a death can leave.

A *crash point* is a scenario together with a state that is left when every process dies: the log as it is on disk and
the world. States differ when their records or the world's ledger differ. A state is left between any two changes of
log or world (each commit, effect and compensation is one change), so a commit is lost at the state before it and kept
at the state after it; after a loss of power any state of the log since the last durable commit may be left. A crash
point counts once, however many ways lead to it, and only after recovery from it was run and checked.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from agent_saga.errors import InvariantViolation, LogFailed, SagaDiverged, SagaError, SagaSuspended, UsageError
from agent_saga.machine.plan import leftovers, needs_human
from agent_saga.machine.states import StepState
from agent_saga.model.records import LateOutcome, Settled, Suspended
from agent_saga.runtime import operators
from agent_saga.runtime.clock import use_clock
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.verdict import settle_by_hand
from agent_saga.store.port import Query
from agent_saga.store.reader import load
from agent_saga.testing.sim import policies
from agent_saga.testing.sim.clock import SECOND_NS
from agent_saga.testing.sim.invariants import Violation
from agent_saga.testing.sim.script import LIMITS, Boom, items_of, program
from agent_saga.testing.sim.stage import Process, Snapshot, Stage, installed
from agent_saga.testing.sim.tools import Tools
from agent_saga.testing.sim.world import TRAVEL_S, Refused

if TYPE_CHECKING:
    from agent_saga.machine.row import Row
    from agent_saga.machine.view import StepView
    from agent_saga.model.records import AnyRecord
    from agent_saga.runtime.recover import Recovered
    from agent_saga.runtime.writer import Writer
    from agent_saga.testing.sim.disk import Chain
    from agent_saga.testing.sim.script import Scenario

RESUMED: Final = 20
OPERATOR: Final = 40
"""Added to the ordinal of a process that ran its program again: recovery is another process, and so is an operator."""
_ASKED_LATER: Final = frozenset({"far", "farslow", "mumbling"})
HANDS_EVERY: Final = 5
"""Work items are settled by hand after every so many runs."""
HANDS_MAX: Final = 3
"""So many words about one step: that it happened, and what became of its compensation."""
SWEEPS_MAX: Final = 4
"""Sweeps after the first, each when the backoff of failed compensations is over."""
LATER_S: Final = 2 * 3600.0
_tools: Final = Tools()


@dataclass(slots=True)
class Found:
    """A counterexample.

    Attributes:
        path: which of the states that each life passed it died in, the program's life first.
        trace: lines for people.
    """

    invariant: str
    message: str
    scenario: str
    path: tuple[int, ...]
    trace: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        """What `replay` reads."""
        return f"{self.scenario}@{'.'.join(map(str, self.path))}"


@dataclass(slots=True)
class Covered:
    """What was covered, in numbers.

    Attributes:
        points: distinct crash points.
        deaths: ways that led to them.
        runs: times that the engine was run, programs and recoveries.
        damaged: times that everything was at rest and was checked.
        depth: deaths that followed one another, at most.
    """

    scenarios: int = 0
    points: int = 0
    deaths: int = 0
    runs: int = 0
    damaged: int = 0
    depth: int = 0
    found: list[Found] = field(default_factory=list)

    def add(self, other: Covered) -> None:
        """Add what another part covered."""
        for name in ("scenarios", "points", "deaths", "runs", "damaged"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.depth = max(self.depth, other.depth)
        self.found += other.found


class Explorer:
    """Explores one scenario.

    Args:
        scenario: what the saga does.
        depth: how many deaths follow one another at most: 1 kills the program, 2 recovery too, and so on.
    """

    def __init__(self, scenario: Scenario, *, depth: int) -> None:
        self.scenario, self.depth = scenario, depth
        self.stage = Stage(items_of(scenario, "A"), _tools)
        self.stage.late_after = scenario.late
        self.covered = Covered(scenarios=1)
        self._seen: dict[int, int] = {}
        self._path: tuple[int, ...] = ()

    def explore(self) -> Covered:
        """Run the program and every crash."""
        with installed(self.stage):
            try:
                self._from_the_start()
            except Violation as violation:
                self.covered.found.append(Found(violation.invariant, violation.message, str(self.scenario), self._path))
        return self.covered

    def _from_the_start(self) -> None:
        stage = self.stage
        snapshots: list[Snapshot] = []
        stage.snapshots = snapshots
        play(stage, self.scenario)
        self.covered.runs += 1
        stage.snapshots = None
        restart(stage, ordinal=2, scenario=self.scenario)
        for number, snapshot in enumerate(snapshots):
            self._visit(snapshot, (number,))
        self.covered.damaged = stage.judge.rests

    def _visit(self, snapshot: Snapshot, path: tuple[int, ...]) -> None:
        left = self.depth - len(path)
        self.covered.deaths += 1
        digest = snapshot.digest
        before = self._seen.get(digest)
        if before is not None and before >= left:
            return
        if before is None:
            self.covered.points += 1
        self._seen[digest] = left
        self._path = path
        snapshots = self.recover(snapshot, record=left > 0, ordinal=len(path) + 1)
        self.covered.depth = max(self.covered.depth, len(path))
        for number, inner in enumerate(snapshots):
            self._visit(inner, (*path, number))

    def recover(self, snapshot: Snapshot, *, record: bool, ordinal: int) -> list[Snapshot]:
        """Recover from a crash, check the end, and return the states that recovery passed."""
        stage = self.stage
        rests = stage.judge.rests
        stage.restore(snapshot)
        stage.judge.rests = rests
        snapshots: list[Snapshot] = []
        stage.snapshots = snapshots if record else None
        self.covered.runs += 1
        restart(stage, ordinal=ordinal, scenario=self.scenario)
        return snapshots

    def replay(self, path: tuple[int, ...]) -> list[str]:
        """Run one way through the deaths of `path` again, and return what happened, in lines."""
        stage = self.stage
        stage.trace = []
        with installed(stage), contextlib.suppress(Violation):
            self._replay(path)
        return stage.trace

    def _replay(self, path: tuple[int, ...]) -> None:
        stage = self.stage
        snapshots: list[Snapshot] = []
        stage.snapshots = snapshots
        play(stage, self.scenario)
        if not path:
            stage.snapshots = None
            restart(stage, ordinal=2, scenario=self.scenario)
        for ordinal, number in enumerate(path, start=2):
            assert stage.trace is not None
            del stage.trace[_line_of(stage.trace, snapshots, number) :]
            snapshots = self.recover(snapshots[number], record=True, ordinal=ordinal)


def _line_of(trace: list[str], snapshots: list[Snapshot], number: int) -> int:
    """Return the line of the trace after the one of a snapshot."""
    begin = max((at for at, line in enumerate(trace) if "-- every process dies" in line), default=-1)
    wanted = sum("; power lost" not in s.label for s in snapshots[: number + 1])
    for at in range(begin + 1, len(trace)):
        wanted -= not trace[at].lstrip().startswith("!!") and "  note: " not in trace[at]
        if wanted < 0:
            return at
    return len(trace)


def play(stage: Stage, scenario: Scenario) -> None:
    """Run a scenario's program in a process that nobody kills."""
    process = Process(stage, 1)
    use_clock(stage.clock)
    if scenario.fault is not None:
        process.log.faults[scenario.fault[0]] = scenario.fault[1]
    _run_program(stage, process, scenario)
    process.exit()
    stage.judge.program_ended(process)


def _run_program(stage: Stage, process: Process, scenario: Scenario) -> None:
    try:
        process.run(program(process, scenario))
    except InvariantViolation as error:
        raise stage.judge.broken("INV-25", str(error)) from error
    except SagaDiverged as error:
        if not scenario.has("less"):
            raise stage.judge.broken("INV-28", f"a program that made all its calls has diverged: {error}") from error
    except (SagaError, SagaSuspended, Boom, Refused, TimeoutError, ConnectionResetError):
        pass
    except Exception as error:
        raise stage.judge.broken("INV-25", f"the engine raised {type(error).__name__}: {error}") from error


def restart(stage: Stage, *, ordinal: int, scenario: Scenario | None = None) -> None:
    """Run recovery in a new process until nothing more can be done, and check what is true then.

    Args:
        stage: where a process died.
        ordinal: of the new one.
        scenario: whose program may run again before that, or whose recovery may fail.
    """
    if scenario is not None and scenario.has("frozen"):
        _stay_frozen(stage, ordinal + OPERATOR)
    process = Process(stage, ordinal)
    if scenario is not None and scenario.fault_later is not None:
        _fail_to_recover(stage, process, scenario.fault_later)
        process = Process(stage, ordinal + RESUMED)
    elif scenario is not None and scenario.resumes:
        process.exit()
        _run_again(stage, ordinal, scenario)
        process = Process(stage, ordinal + RESUMED)
    waiting = _waiting(stage)
    _sweep(stage, process)
    _check_waiting(stage, waiting)
    if stage.disk.image.chains:
        _sweep_later(stage, process)
    recording, stage.snapshots = stage.snapshots, None
    if stage.disk.image.chains:
        _outlive_suspension(stage, process)
        _sweep_again(stage, process)
        if stage.world.travelling:
            stage.pass_time(TRAVEL_S + 1.0)
        stage.judge.at_rest()
        if stage.judge.rests % HANDS_EVERY == 1:
            _settle_by_hand(stage, process)
    process.exit()
    stage.snapshots = recording


def _run_again(stage: Stage, ordinal: int, scenario: Scenario) -> None:
    """Run the program again, after a sweep that leaves it to that, until nothing is suspended that a word ends."""
    stage.resumed = True
    for _ in range(len(scenario.steps) + 2):
        sweeper = Process(stage, ordinal + OPERATOR)
        if not scenario.has("again"):  # What opens the key again finishes the dead saga itself.
            waiting = _waiting(stage)
            _sweep(stage, sweeper)
            _check_waiting(stage, waiting)
        asked = decide(sweeper.writer, scenario, stage) if policies.waits_for_words(scenario.mode) else 0
        sweeper.exit()
        process = Process(stage, ordinal)
        process.environment.approver = None
        _run_program(stage, process, scenario)
        process.exit()
        stage.judge.program_ended(process)
        if not (asked or _suspended(stage)) or not policies.waits_for_words(scenario.mode):
            return


def _suspended(stage: Stage) -> bool:
    return any(chain.row.state == "suspended" for chain in stage.disk.image.chains.values())


def decide(writer: Writer, scenario: Scenario, stage: Stage) -> int:
    """Give a word on each request that waits, and return how many."""
    asked = [known for known in operators.pending(writer) if known.state == "pending"]
    for known in asked:
        bad = policies.base(known.request.tool.removeprefix("tool.")) in stage.forbidden
        if bad and scenario.has("slowword"):
            stage.pass_time(policies.EXPIRES_S + 1.0)
        with contextlib.suppress(UsageError):  # It has expired.
            word = "rejected" if bad and scenario.has("noword") else "approved"
            operators.decide_approval(writer, known.id, word, by="ann")
    return len(asked)


def _stay_frozen(stage: Stage, ordinal: int) -> None:
    """Quarantine every saga, sweep, check that all is as it was, and lift the quarantine."""
    recording, stage.snapshots = stage.snapshots, None
    operator = Process(stage, ordinal)
    ids = [saga_id for saga_id, chain in stage.disk.image.chains.items() if not chain.row.sealed]
    for saga_id in ids:
        operators.act(operator.writer, "quarantine", f"saga:{saga_id}", by="ann")
    before = {saga_id: stage.disk.image.chains[saga_id].records for saga_id in ids}, stage.world.digest
    _sweep(stage, operator)
    after = {saga_id: stage.disk.image.chains[saga_id].records for saga_id in ids}, stage.world.digest
    if before != after:
        raise stage.judge.broken("INV-34", "recovery went on with a saga that was quarantined")
    for saga_id in ids:
        operators.lift(operator.writer, f"saga:{saga_id}", by="ann")
    operator.exit()
    stage.snapshots = recording


def _fail_to_recover(stage: Stage, process: Process, fault: tuple[int, str | float]) -> None:
    """Let a commit of the first process that recovers fail; the next one has to find what it left."""
    process.log.faults[fault[0]] = fault[1]
    with contextlib.suppress(LogFailed):
        _sweep(stage, process)
    process.exit()


def _settle_by_hand(stage: Stage, process: Process) -> None:
    """A human says what is true of each step that nobody else can settle, until recovery has sealed the sagas."""
    for _ in range(HANDS_MAX):
        given = 0
        for row in process.log.rows(Query(unsealed=True)):
            loaded = load(process.log, row.saga_id)
            assert loaded is not None
            for step in leftovers(loaded.view):
                if needs_human(step) or step.state in _UNSURE:
                    word, result = _word(stage, step.tool.removeprefix("tool."), step)
                    settle_by_hand(
                        process.writer, row.saga_id, step.no, word, evidence="looked", by="ann", result=result
                    )
                    given += 1
        _sweep(stage, process)
        _sweep_later(stage, process)
        if not given:
            break
    stage.judge.by_hand()


_UNSURE: Final = frozenset({StepState.IN_DOUBT, StepState.COMPENSATING})


def _word(stage: Stage, item: str, step: StepView) -> tuple[str, str | None]:
    stands = stage.world.standing(item)
    if step.state is StepState.IN_DOUBT:
        bound = step.recipe is not None and "nothing" not in str(step.recipe.bind)
        if stands and bound:
            return "happened", json.dumps({"id": item})
        if not stands:
            return "did-not-happen", None
    elif step.state is StepState.STANDING:
        return "accept", None
    if stands:
        stage.world.undo(item, "")
    return "compensated-by-hand", None


def _sweep(stage: Stage, process: Process) -> list[Recovered]:
    try:
        done = process.run(sweep(process.writer))
    except InvariantViolation as error:
        raise stage.judge.broken("INV-25", str(error)) from error
    except Exception as error:
        if process.log.failed and isinstance(error, LogFailed):
            raise
        raise stage.judge.broken("INV-25", f"recovery raised {type(error).__name__}: {error}") from error
    for one in done:
        if one.action == "damaged":
            raise stage.judge.broken("INV-11", f"recovery finds saga {one.saga_id} damaged")
    return done


def _sweep_later(stage: Stage, process: Process) -> None:
    """Let the backoff of failed compensations pass, and recover again, as long as that changes something."""
    for _ in range(SWEEPS_MAX):
        if not any(_may_be_retried(row.saga_id, stage) for row in process.log.rows(Query(unsealed=True))):
            return
        stage.pass_time(LATER_S)
        _sweep(stage, process)


def _may_be_retried(saga_id: str, stage: Stage) -> bool:
    chain = stage.disk.image.chains[saga_id]
    if chain.row.owner is not None:
        return True  # A recoverer died when only work was left that has to wait.
    may_work = any(step.undo == "thrice" or step.decl in _ASKED_LATER for step in stage.specs.values())
    return chain.row.work > chain.row.human and may_work


def _sweep_again(stage: Stage, process: Process) -> None:
    """Recovery once more changes nothing: there is nothing left to do now."""
    if any(_is_due(chain.row, stage.clock.now_ns) for chain in stage.disk.image.chains.values()):
        _sweep(stage, process)  # A backoff ended while recovery waited for something else.
    image, world = stage.disk.image, stage.world.digest
    if not image.chains or all(chain.row.sealed for chain in image.chains.values()):
        return
    _sweep(stage, process)
    after = stage.disk.image
    if after is image and stage.world.digest == world:
        return
    raise stage.judge.broken("INV-13", _difference(image.pos, after.pos, stage))


def _waiting(stage: Stage) -> dict[str, int]:
    """Return the sagas that a sweep must leave alone, and how many records each has: they wait for their resume."""
    now, found = stage.clock.now_ns, {}
    for saga_id, chain in stage.disk.image.chains.items():
        row, since = chain.row, _suspension(chain)
        dead = row.state == "open" and row.on_crash == "resume" and row.amends is None and row.owner is not None
        if dead and row.owner not in stage.disk.alive:
            since = chain.bodies[-1]
        if since is not None and now < since.at + int(LIMITS.suspend_ttl_s * SECOND_NS):
            found[saga_id] = len(chain.bodies)
    return found


def _suspension(chain: Chain) -> AnyRecord | None:
    """Return the suspension that a saga is in: answers of calls that still ran, and words, may follow it."""
    after = itertools.dropwhile(lambda body: type(body) in {LateOutcome, Settled}, reversed(chain.bodies))
    last = next(after)
    return last if type(last) is Suspended else None


def _check_waiting(stage: Stage, waiting: dict[str, int]) -> None:
    """Recovery has not touched what waits for its resume."""
    for saga_id, count in waiting.items():
        if len(stage.disk.image.chains[saga_id].bodies) != count:
            raise stage.judge.broken("INV-27", f"recovery took saga {saga_id}, which waits for its resume")


def _outlive_suspension(stage: Stage, process: Process) -> None:
    """What waits for its resume is left alone by recovery; when its time to live is over, it is rolled back."""
    waiting = _waiting(stage)
    if not waiting:
        return
    stage.pass_time(LIMITS.suspend_ttl_s + 1.0)
    _sweep(stage, process)
    for saga_id in waiting:
        state = stage.disk.image.chains[saga_id].row.state
        if state != "rolled_back":
            raise stage.judge.broken("INV-27", f"the time to live of {saga_id} is over, and it is {state}")
    _sweep_later(stage, process)


def _is_due(row: Row, now_ns: int) -> bool:
    return row.work > row.human and (row.due_at is None or row.due_at <= now_ns)


def _difference(before: int, after: int, stage: Stage) -> str:
    kinds = [type(b).__name__ for c in stage.disk.image.chains.values() for b in c.bodies if b.pos > before]
    return f"recovery that had nothing to do wrote {after - before} records: {', '.join(kinds)}"


def explore(scenario: Scenario, *, depth: int) -> Covered:
    """Explore one scenario, all its lives and deaths."""
    return Explorer(scenario, depth=depth).explore()


def commits_of(scenario: Scenario) -> int:
    """Return how many commits the program of a scenario makes when nothing fails."""
    explorer = Explorer(replace(scenario, fault=None), depth=0)
    with installed(explorer.stage) as stage:
        process = Process(stage, 1)
        try:
            process.run(program(process, scenario))
        except Exception:  # noqa: BLE001 - only counted here; `play` judges it.
            return process.log.commits
        return process.log.commits
