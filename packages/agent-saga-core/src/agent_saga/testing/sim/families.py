"""The scenarios: exhaustive where they are small, drawn by a seed where they are large."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Final

from agent_saga.testing.sim.script import ACTS, DECLS, ENDS, MODES, UNDOS, Scenario, Step, is_honest, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS_MAX: Final = 6
COMMITS_MAX: Final = 14
FAULTS, OTHER_MODES, OTHER_ACTS, OTHER_UNDOS = 0.2, 0.5, 0.1, 0.4
"""How often a drawn scenario has a failing commit, another mode, another act, another compensator's behaviour."""
SMALL: Final = 4
LATE_AFTER: Final = (0, 1, 2, 3, 4, 6, 99)
_FAILING: Final = ("fail", "doubt+", "doubt-")
_OK: Final = Step()


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


def modes(*, depth: int = 2, ends: tuple[str, ...] = ("commit", "raise")) -> Iterator[Job]:
    """Every way a program takes an error x declarations x acts x ends."""
    for mode, decl, act, end in product(MODES[1:], DECLS, ACTS, ends):
        if not is_honest(Step(decl, act)):
            continue
        for late in (1, 5, 99) if act.startswith("late") else (0,):
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


def drawn(seed: int) -> Iterator[Job]:
    """An endless stream of larger scenarios, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - a replayable draw; nothing secret.
    while True:
        count = rng.randint(2, STEPS_MAX)
        failing = rng.randint(1, count)
        steps = [_draw_step(rng, failing=number == failing) for number in range(1, count + 1)]
        late = rng.choice(LATE_AFTER) if any(step.act.startswith("late") for step in steps) else 0
        fault = (rng.randint(1, COMMITS_MAX), rng.choice(("lost", "kept"))) if rng.random() < FAULTS else None
        mode = rng.choice(MODES) if rng.random() < OTHER_MODES else "plain"
        yield Job(
            "drawn",
            Scenario(tuple(steps), rng.choice(ENDS), mode, fault, late),
            rng.choice((1, 2, 2, 3) if count <= SMALL else (1, 2)),
        )


def _draw_step(rng: random.Random, *, failing: bool) -> Step:
    decl = rng.choice(DECLS[:-1])
    act = rng.choice(ACTS) if failing or rng.random() < OTHER_ACTS else "ok"
    undo = rng.choice(UNDOS) if rng.random() < OTHER_UNDOS else "ok"
    step = Step(decl, act, undo)
    return step if is_honest(step) else replace(step, decl="travel")
