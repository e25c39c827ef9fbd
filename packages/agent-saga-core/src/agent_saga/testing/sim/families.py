"""The scenarios: exhaustive where they are small, drawn by a seed where they are large."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import TYPE_CHECKING, Final

from agent_saga.testing.sim.script import (
    ACTS,
    DECLS,
    ENDS,
    MODES,
    MORE_UNDOS,
    STREAMS,
    UNDOS,
    Scenario,
    Step,
    is_honest,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STEPS_MAX: Final = 6
COMMITS_MAX: Final = 14
FAULTS, FAULTS_LATER, OTHER_MODES, OTHER_ACTS, OTHER_UNDOS = 0.2, 0.1, 0.5, 0.1, 0.4
"""How often a drawn scenario has a failing commit, another mode, another act, another compensator's behaviour."""
SMALL: Final = 4
LATE_AFTER: Final = (0, 1, 2, 3, 4, 6, 99)
_FAILING: Final = ("fail", "doubt+", "doubt-")
_OK: Final = Step()
_SCOPES: Final = ("deep", "apart", "open", "nested", "resume+nested", "resume+deep")


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario and how deep to explore it; plain data, so that it travels to a worker as text."""

    family: str
    scenario: Scenario
    depth: int

    def __str__(self) -> str:
        return f"{self.family} {self.depth} {self.scenario}"


def job(text: str) -> Job:
    """Return the job that `str` spelled."""
    family, depth, token = text.split(" ")
    return Job(family, parse(token), int(depth))


def once(jobs: Iterable[Job]) -> list[Job]:
    """Return each scenario once, as deep as any of the jobs wants it: a crash point counts once."""
    found: dict[Scenario, Job] = {}
    for wanted in jobs:
        known = found.get(wanted.scenario)
        if known is None or known.depth < wanted.depth:
            found[wanted.scenario] = wanted if known is None else replace(known, depth=wanted.depth)
    return list(found.values())


def subsets(steps_max: int = STEPS_MAX, *, depth: int = 2, failing_max: int | None = None) -> Iterator[Job]:
    """Every failing step x every subset of failing compensations, for sagas of 1 to `steps_max` steps.

    The saga ends by the failing step (certain, or without an answer: landed, not landed), or by its own program.
    """
    for count in range(1, steps_max + 1):
        for failing, act in [(count, "ok"), *product(range(1, count + 1), _FAILING)]:
            before = range(1, failing + (act == "ok"))
            sizes = range(min(len(before), failing_max if failing_max is not None else len(before)) + 1)
            for bad in (bad for size in sizes for bad in combinations(before, size)):
                steps = [Step(undo="fail" if no in bad else "ok") for no in range(1, count + 1)]
                if act != "ok":
                    steps[failing - 1] = replace(steps[failing - 1], act=act, decl="probe")
                yield Job("subsets", Scenario(tuple(steps), "raise" if act == "ok" else "commit"), depth)


def declarations(*, depth: int = 3, lates: tuple[int, ...] = LATE_AFTER) -> Iterator[Job]:
    """Every way to declare a tool x every act x every way its compensator behaves x every end; also after a step."""
    for decl, act, undo in product(DECLS, ACTS, UNDOS):
        if decl == "final" and undo != "ok":
            continue
        for end in ENDS:
            if end in {"ask", "suspend"} and act != "ok":
                continue
            for late in lates if act.startswith("late") else (0,):
                step = Step(decl, act, undo)
                if not is_honest(step):
                    continue
                yield Job("declarations", Scenario((step,), end, late=late), depth)
                if end == "commit" and late in {0, 2, LATE_AFTER[-1]}:
                    yield Job("declarations", Scenario((_OK, step), end, late=late), depth - 1)


def modes(
    *, depth: int = 2, ends: tuple[str, ...] = ("commit", "raise"), lates: tuple[int, ...] = (1, 5, 99)
) -> Iterator[Job]:
    """Every way a program takes an error x declarations x acts x ends."""
    for mode, decl, act, end in product(MODES[1:], DECLS, ACTS, ends):
        if not is_honest(Step(decl, act)):
            continue
        for late in lates if act.startswith("late") else (0,):
            yield Job("modes", Scenario((_OK, Step(decl, act)), end, mode, late=late), depth)
            if mode == "nested":
                yield Job("modes", Scenario((_OK, Step(decl), Step("keyed", act)), end, mode, late=late), depth)


def lates(*, depth: int = 2) -> Iterator[Job]:
    """An answer that comes at each moment of a rollback of up to four steps x what it says x the declaration."""
    for count, decl, act, late in product(range(2, SMALL + 1), ("keyed", "absent"), ("late+", "late-"), range(14)):
        steps = (*(_OK for _ in range(count - 1)), Step(decl, act))
        yield Job("lates", Scenario(steps, late=late), depth)


def faults(*, depth: int = 2) -> Iterator[Job]:
    """Each commit of the program failed, its fate (lost or kept) unknown to it; or held up by another's lock."""
    shapes: tuple[Scenario, ...] = (
        Scenario((_OK, _OK)),
        Scenario((_OK, _OK), "raise"),
        Scenario((_OK, Step("probe", "doubt+"))),
        Scenario((_OK, Step("absent", "doubt-")), "commit", "retry"),
        Scenario((_OK, Step("keyed", "late+")), late=3),
        Scenario((_OK, Step("look", "ok", "doubt+")), "raise"),
        Scenario((_OK, Step("keyed", "fail")), "commit", "nested"),
        Scenario((_OK, _OK), "raise", "key"),
    )
    fates: tuple[str | float, ...] = ("lost", "kept", 0.5, 40.0)
    for scenario in shapes:
        for number, fate in product(range(1, COMMITS_MAX + 1), fates):
            yield Job("faults", replace(scenario, fault=(number, fate)), depth)


def gates(*, depth: int = 2) -> Iterator[Job]:
    """Budgets, approvals and policies that fail x how the last call ends x how the saga ends; also nested, resumed."""
    modes = ("budget", "short", "asked", "denied", "mute", "broken", "word", "noword", "slowword")
    for mode, act, end in product(modes, ("ok", "fail", "doubt+", "doubt-"), ("commit", "raise")):
        for decl in ("keyed", "absent", "retried"):
            yield Job("gates", Scenario((_OK, Step(decl, act)), end, mode), depth)
    for mode, act in product(
        ("nested+short", "nested+budget", "resume+budget", "nested+denied"), ("ok", "fail", "doubt+")
    ):
        yield Job("gates", Scenario((_OK, Step("absent", act), Step("keyed", "fail")), "commit", mode), depth)
    for undo, act in product(("ok", "fail"), ("ok", "doubt+", "late+")):
        yield Job("gates", Scenario((Step("held"), Step("held", act, undo)), "raise", "budget", late=2), depth)


def streams(*, depth: int = 2) -> Iterator[Job]:
    """Streams that end, fail or stay open x declaration x what the program does with an error x end."""
    for act, decl, mode in product(sorted(STREAMS), ("named", "absent"), ("plain", "catch", "nested", "resume")):
        for end in ("commit", "raise", "suspend"):
            yield Job("streams", Scenario((_OK, Step(decl, act), _OK), end, mode), depth)


def repeats(*, depth: int = 2) -> Iterator[Job]:
    """Calls that are repeated, by their declaration, the program or an adapter, and fail the second time."""
    for decl, act, end in product(("retried", "keytool"), ("again-", "doubt+", "doubt-", "fail", "late+"), ENDS[:3]):
        for mode in ("plain", "catch", "retry", "adapter", "nested", "resume"):
            yield Job("repeats", Scenario((_OK, Step(decl, act)), end, mode, late=3), depth)
    for decl, mode, undo in product(("keyed", "callable", "named"), ("adapter",), ("ok", "once")):
        yield Job("repeats", Scenario((_OK, Step(decl, "okfail", undo)), "commit", mode), depth)


def looks(*, depth: int = 2) -> Iterator[Job]:
    """Compensators that lie, verifiers that cannot see, and requests that travel longer than anybody waits."""
    for decl, undo, end in product(("look", "keylook", "keyed", "idem", "absent"), MORE_UNDOS, ("raise", "ask")):
        step = Step(decl, undo=undo)
        if is_honest(step):
            yield Job("looks", Scenario((_OK, step), end), depth)
            yield Job("looks", Scenario((step, Step("keyed", "fail")), "commit", "nested"), depth)
    for decl, act, mode in product(
        ("far", "farslow", "mumbling"), ("travel", "doubt-", "doubt+"), ("plain", "catch", "retry")
    ):
        if not is_honest(Step(decl, act)):
            continue
        yield Job("looks", Scenario((_OK, Step(decl, act)), "commit", mode), depth)
        yield Job("looks", Scenario((Step(decl, act), Step("keyed", "ok", "fail")), "raise", mode), depth)
    for act, end, mode in product(("ok", "doubt+"), ("commit", "raise", "ask"), ("plain", "catch", "nested")):
        yield Job("looks", Scenario((_OK, Step("unbound", act)), end, mode), depth)


def scopes(*, depth: int = 2) -> Iterator[Job]:
    """Scopes in scopes, left open or independent x failing step x failing compensation."""
    for count, failing, act in product((3, 4), range(1, SMALL + 1), ("fail", "doubt+", "ok")):
        if failing > count:
            continue
        for mode, undo in product(_SCOPES, ("ok", "fail", "once")):
            if undo == "fail" and "resume" in mode:
                continue  # A scope that was rolled back in part runs again, beside what is left of it.
            steps = [Step(undo=undo if no == failing - 1 else "ok") for no in range(1, count + 1)]
            steps[failing - 1] = replace(steps[failing - 1], act=act, decl="probe")
            yield Job("scopes", Scenario(tuple(steps), "commit", mode), depth)


def resumes(*, depth: int = 2) -> Iterator[Job]:
    """Sagas that go on after a death, begin anew, diverge, are never resumed, or are frozen."""
    modes = ("resume", "again", "resume+less", "lost", "frozen", "resume+catch", "resume+retry", "resume+adapter")
    for mode, decl, act in product(modes, ("keyed", "probe", "absent", "keytool", "look"), ACTS):
        step = Step(decl, act)
        if is_honest(step):
            yield Job("resumes", Scenario((_OK, step, _OK), "commit", mode, late=3), depth)
    for mode, end in product(modes, ENDS):
        yield Job("resumes", Scenario((_OK, Step("keyed", "ok", "once")), end, mode), depth)


def later_faults(*, depth: int = 2) -> Iterator[Job]:
    """Each commit of the first process that recovers failed, its fate unknown to it."""
    shapes: tuple[Scenario, ...] = (
        Scenario((_OK, _OK), "raise"),
        Scenario((_OK, Step("probe", "doubt+")), "raise"),
        Scenario((Step("look", "ok", "doubt+"), Step("absent", "doubt-")), "raise"),
        Scenario((_OK, Step("keyed", "ok", "once"), Step("keyed", "fail")), "commit", "nested"),
    )
    for scenario in shapes:
        for number, fate in product(range(1, 8), ("lost", "kept")):
            yield Job("later-faults", replace(scenario, fault_later=(number, fate)), depth)


def probing() -> Iterator[Job]:
    """Some of each family, one death deep: what a change of the engine is tried on first."""
    yield from subsets(2, depth=2)
    yield from islice(modes(depth=1, ends=("commit",)), 0, None, 2)
    for family in MORE:
        yield from family(depth=1)
    yield from islice(declarations(depth=1, lates=(0, 2, 99)), 0, None, 4)
    yield from islice(faults(depth=1), 0, None, 3)
    yield from islice(lates(depth=1), 0, None, 4)


MORE: Final = (gates, streams, repeats, looks, scopes, resumes, later_faults)


def drawn(seed: int) -> Iterator[Job]:
    """An endless stream of larger scenarios, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - a replayable draw; nothing secret.
    known: set[Scenario] = set()
    while True:
        count = rng.randint(2, STEPS_MAX)
        failing = rng.randint(1, count)
        steps = [_draw_step(rng, failing=number == failing) for number in range(1, count + 1)]
        faulty = (rng.randint(1, 7), rng.choice(("lost", "kept"))) if rng.random() < FAULTS_LATER else None
        late = rng.choice(LATE_AFTER) if any(step.act.startswith("late") for step in steps) else 0
        fault = (rng.randint(1, COMMITS_MAX), rng.choice(("lost", "kept"))) if rng.random() < FAULTS else None
        mode = rng.choice(_DRAWN_MODES) if rng.random() < OTHER_MODES else "plain"
        scenario = Scenario(tuple(steps), rng.choice(ENDS), mode, fault, late, faulty)
        depth = rng.choice((1, 2, 2, 3) if count <= SMALL else (1, 2))
        if scenario not in known:
            known.add(scenario)
            yield Job("drawn", scenario, depth)


_DRAWN_MODES: Final = (*MODES, "lost", "apart", "budget", "asked", "denied", "broken", "nested+asked", "catch+budget")


def _draw_step(rng: random.Random, *, failing: bool) -> Step:
    decl = rng.choice(DECLS[:-1])
    act = rng.choice(ACTS) if failing or rng.random() < OTHER_ACTS else "ok"
    undo = rng.choice(UNDOS) if rng.random() < OTHER_UNDOS else "ok"
    step = Step(decl, act, undo)
    return step if is_honest(step) else replace(step, decl="travel")
