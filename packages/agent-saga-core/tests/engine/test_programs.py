"""Random programs of nested scopes, parallel branches, cancellations and failures, against a world that counts.

Each effect that stands is named or kept; clean means that nothing stands; nothing is undone twice; one effect a key.
"""

import asyncio
import contextlib
from dataclasses import dataclass

import pytest
from engine_ledger import WORLD, look, undo_if_there, undo_plain, undo_sure
from engine_world import Lost
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from agent_saga import (
    AgentKit,
    Conflict,
    SagaError,
    current_step,
)
from agent_saga.errors import InvariantViolation
from agent_saga.machine.report import report_of
from agent_saga.machine.states import StepState
from agent_saga.runtime import compensate, late
from agent_saga.store.reader import load

FAILURES = {"before": ("before", ValueError), "after": ("after", ValueError), "lost": ("after", TimeoutError)}
UNDOES = {"fails": ValueError, "conflict": Conflict, "exits": SystemExit, "unsure": TimeoutError}

PATHS = {"thing": "kwargs.thing", "key": "key"}
TOOLS = {
    "plain": {"compensate": undo_plain.bind(**PATHS)},
    "result": {"compensate": undo_plain.bind(thing="result.id", key="key")},
    "sure": {"compensate": undo_sure.bind(**PATHS)},
    "probed": {"compensate": undo_plain.bind(**PATHS), "probe": look},
    "if_there": {"compensate": undo_if_there.bind(**PATHS)},
}


@dataclass(frozen=True)
class Step:
    tool: str
    thing: str
    failure: str | None = None
    caught: bool = False


@dataclass(frozen=True)
class Scope:
    body: tuple
    fails: bool = False
    caught: bool = False


@dataclass(frozen=True)
class Both:
    branches: tuple


@dataclass(frozen=True)
class Cancel:
    body: tuple
    ticks: int


steps = st.builds(
    Step,
    tool=st.sampled_from(sorted(TOOLS)),
    thing=st.sampled_from("abc"),
    failure=st.sampled_from([None, None, None, *FAILURES]),
    caught=st.booleans(),
)
bodies = st.recursive(
    st.lists(steps, min_size=1, max_size=3).map(tuple),
    lambda inner: st.lists(
        st.one_of(
            steps,
            st.builds(Scope, body=inner, fails=st.booleans(), caught=st.booleans()),
            st.builds(Both, branches=st.lists(inner, min_size=2, max_size=3).map(tuple)),
            st.builds(Cancel, body=inner, ticks=st.integers(0, 8)),
        ),
        min_size=1,
        max_size=4,
    ).map(tuple),
    max_leaves=8,
)
worlds = st.fixed_dictionaries(
    {
        "undo": st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from(sorted(UNDOES)), max_size=4)),
        "blind": st.sets(st.sampled_from("abc")),
    }
)


async def effect(thing):
    """A tool: an effect somewhere between its awaits, under the key of its step."""
    await asyncio.sleep(0)
    failure = WORLD.next_of("before", thing)
    if failure is not None:
        raise failure
    key = current_step().key
    WORLD.order.append(f"do {thing} {key[-1]}")
    WORLD.effects[key] = WORLD.effects.get(key, 0) + 1
    WORLD.things[key] = thing
    await asyncio.sleep(0)
    failure = WORLD.next_of("after", thing)
    if isinstance(failure, ValueError):
        WORLD.liars.add(key)
    if failure is not None:
        raise failure
    return {"id": thing}


class Program:
    def __init__(self, kit):
        self.kit = kit
        self.tools = {
            name: kit.wrap(effect, name=f"{name} tool", effect="compensable", **how) for name, how in TOOLS.items()
        }
        self.tasks = []
        self.broken = []

    @contextlib.contextmanager
    def expected(self, *more, catch=True):
        """Catch what a program may see; an error that says that agent-saga itself is wrong is kept."""
        try:
            yield
        except InvariantViolation as error:
            self.broken.append(error)
            raise
        except (ValueError, TimeoutError, SagaError, *more):
            if not catch:
                raise

    async def run(self, body):
        for node in body:
            match node:
                case Step():
                    await self.step(node)
                case Scope():
                    with self.expected(Lost, catch=node.caught):
                        async with self.kit.transaction("inner", drain_s=0.0):
                            await self.run(node.body)
                            if node.fails:
                                raise Lost
                case Both():
                    branches = [asyncio.create_task(self.run(branch)) for branch in node.branches]
                    self.tasks += branches
                    await asyncio.gather(*branches)
                case Cancel():
                    task = asyncio.create_task(self.run(node.body))
                    self.tasks.append(task)
                    for _ in range(node.ticks):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])

    async def step(self, node):
        if node.failure is not None:
            where, error = FAILURES[node.failure]
            WORLD.script.setdefault((where, node.thing), []).append(error("scripted"))
        with self.expected(catch=node.caught):
            await self.tools[node.tool](node.thing)

    async def main(self, body, *, fails):
        self.saga = None
        with self.expected(Lost):
            async with self.kit.transaction("outer", drain_s=0.0) as self.saga:
                await self.run(body)
                if fails:
                    raise Lost
        await asyncio.gather(*self.tasks, return_exceptions=True)
        while late._tasks:
            await asyncio.gather(*late._tasks, return_exceptions=True)


def check(view, *, trouble):
    report = report_of(view)
    assumed = {step.key for step in report.assumed_absent}
    named = {step.key for step in report.kept + report.left} | assumed
    standing = {key for key in WORLD.effects if WORLD.standing(key)}
    assert standing <= named
    assert standing & assumed <= WORLD.liars
    if report.clean:
        assert standing <= assumed
    if report.verified:
        assert not standing
    ids = [step.step_id for step in report.kept + report.compensated + report.left + report.assumed_absent]
    assert len(ids) == len(set(ids))
    if report.outcome == "committed":
        assert all(view.rolled_back(view.steps[int(step.step_id.rpartition(":")[2])]) for step in report.left)
    if not trouble:
        assert report.failed + report.conflicted + report.orphaned == ()
        assert {step.tool for step in report.in_doubt} <= {"plain tool", "result tool", "sure tool"}
    for doubted in view.steps.values():
        if doubted.state is StepState.IN_DOUBT and doubted.outcome_n:
            later = [step for step in view.steps.values() if step.identity == doubted.identity and step is not doubted]
            assert all(step.intent_n < doubted.outcome_n for step in later)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(compensate, "BACKOFF_S", 0.0)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=bodies, outside=worlds, fails=st.booleans())
@example(
    body=(Both(((Step("plain", "a"), Step("plain", "b", "before")), (Scope((Step("plain", "c"),)),))),),
    outside={"undo": {}, "blind": set()},
    fails=False,
)
@example(  # A call that was given up ends in doubt while the rollback is on its way: it is settled all the same.
    body=(Both(((Step("if_there", "b"), Step("if_there", "a", "before")), (Step("plain", "a", "before"),))),),
    outside={"undo": {}, "blind": set()},
    fails=False,
)
def test_no_program_loses_an_effect(body, outside, fails):
    """See the module's docstring."""
    WORLD.clear()
    for thing, undoes in outside["undo"].items():
        WORLD.script["undo", thing] = [UNDOES[name]("scripted") for name in undoes]
    WORLD.blind = outside["blind"]
    kit = AgentKit("memory:")
    program = Program(kit)
    try:
        asyncio.run(program.main(body, fails=fails))
        note(str(WORLD.order))
        loaded = load(kit.writer().store, program.saga.id)
        if loaded is None:
            assert not WORLD.effects
            return
        note(report_of(loaded.view).format_text())
        assert loaded.view.ended, loaded.view.state
        check(loaded.view, trouble=outside["undo"] or outside["blind"])
        assert not program.broken
        assert set(WORLD.effects.values()) <= {1}, WORLD.effects
        assert WORLD.overdone == 0
    finally:
        kit.close()
