"""Runs the tiers on several cores, adds up what they covered, shrinks what they found, and says all of it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Final, TypeVar

from agent_saga.testing.sim import families, schedules
from agent_saga.testing.sim.crashes import Covered, Explorer, Found, explore
from agent_saga.testing.sim.invariants import INVARIANTS
from agent_saga.testing.sim.schedules import FAMILIES, Player, Scheduled
from agent_saga.testing.sim.script import Scenario, Step, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent_saga.testing.sim.families import Job

T = TypeVar("T")
J = TypeVar("J")
COLLECT_EVERY: Final = 40
"""Scenarios after which a worker collects garbage; engines that were given up form cycles."""
SHRINK_TRIES_MAX: Final = 400
FOUND_MAX: Final = 3
"""Counterexamples after which a run stops."""
MILLION: Final = 1_000_000
CI_POINTS_MIN: Final = 200_000
"""Distinct crash points that the CI tier must reach; docs/guarantees.md says so, and for `MILLION`, too."""
ALL_SUBSETS: Final = 3
"""Sagas of up to so many steps are tried with every subset of failing compensations in the quick tier."""
CI_STEPS: Final = 4
DRAWN_IN_CI: Final = 20
NESTED_STEPS_MIN: Final = 2


MORE_BOUND: Final = (
    "budgets, approvals (a function's, other people's words, expired ones) and policies that fail x act x end; streams "
    "that end, fail or stay open; calls repeated by declaration, program and adapter; compensators that lie and "
    "verifiers that cannot see; requests that travel 60 s; scopes in scopes, left open and independent; resumes, new "
    "incarnations, divergence and quarantine; each of 7 commits of recovery failed; a human's word on what is left"
)


@dataclass(slots=True)
class Proof:
    """What a run of the simulator covered and found.

    Attributes:
        bound: what was covered completely, in words.
        crashes: crash points, by family of scenarios.
        schedules: schedules, by family.
        found: counterexamples, shrunk.
    """

    bound: list[str] = field(default_factory=list)
    crashes: dict[str, Covered] = field(default_factory=dict)
    schedules: dict[str, Scheduled] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    seconds: float = 0.0
    seed: int = 0

    @property
    def holds(self) -> bool:
        """Whether no invariant was broken."""
        return not self.found

    @property
    def crash_points(self) -> int:
        """Distinct crash points, over all families."""
        return sum(covered.points for covered in self.crashes.values())

    @property
    def executions(self) -> int:
        """Times that the engine was run: programs, recoveries and schedules."""
        runs = sum(covered.runs for covered in self.crashes.values())
        return runs + sum(covered.runs for covered in self.schedules.values())

    def format_text(self) -> str:
        """Return the whole for people: a line for each family, then the verdict and its bound."""
        lines = [f"{'crash points':<26}{'distinct':>10}{'scenarios':>11}{'runs':>10}{'deaths deep':>13}"]
        lines += [
            f"  {name:<24}{covered.points:>10,}{covered.scenarios:>11,}{covered.runs:>10,}{covered.depth:>13}"
            for name, covered in self.crashes.items()
        ]
        if self.schedules:
            lines.append(f"{'schedules':<26}{'distinct':>10}{'operations':>11}{'states':>10}")
        lines += [
            f"  {name:<24}{covered.runs:>10,}{covered.operations:>11,}{len(covered.states):>10,}"
            for name, covered in self.schedules.items()
        ]
        lines.append(
            f"{self.crash_points:,} distinct crash points, {sum(s.runs for s in self.schedules.values()):,} schedules, "
            f"{self.executions:,} executions of the real engine, {len(INVARIANTS)} invariants, {self.seconds:.1f} s, "
            f"seed {self.seed}"
        )
        lines += [f"bound: {line}" for line in self.bound]
        lines.append("verdict: every invariant holds" if self.holds else f"verdict: {len(self.found)} BROKEN")
        for found in self.found:
            lines += ["", f"{found.invariant} ({INVARIANTS[found.invariant][1]})", f"  {found.message}"]
            lines += [f"  replay: {found.token}", *(f"    {line}" for line in found.trace)]
        return "\n".join(lines)


# -- the work -----------------------------------------------------------------------------------------------------


class _Worker:
    """Counts scenarios, to collect garbage now and then."""

    done = 0


def _crash_job(text: str) -> tuple[str, Covered]:
    job = families.job(text)
    covered = explore(job.scenario, depth=job.depth)
    _Worker.done += 1
    if _Worker.done % COLLECT_EVERY == 0:
        gc.collect()
    return job.family, covered


def _schedule_job(asked: tuple[str, tuple[int, ...]]) -> tuple[str, Scheduled]:
    name, prefix = asked
    covered = Player(FAMILIES[name]).every(prefix)
    gc.collect()
    return name, covered


def _prepare() -> None:
    gc.disable()


def spread(work: Callable[..., T], jobs: Iterable[J], *, cores: int, until: float | None = None) -> Iterator[T]:
    """Yield what `work` returns for each job, on several cores, until all are done or the time is over."""
    if cores == 1:
        for job in jobs:
            if until is not None and time.monotonic() > until:
                return
            yield work(job)
        return
    room = threading.Semaphore(cores * 16)  # A pool would take an endless stream in at once.
    over = threading.Event()

    def fed() -> Iterator[J]:
        for job in jobs:
            room.acquire()
            if over.is_set() or (until is not None and time.monotonic() > until):
                return
            yield job

    with multiprocessing.get_context("fork").Pool(cores, initializer=_prepare) as pool:
        try:
            for result in pool.imap_unordered(work, fed()):
                room.release()
                yield result
        finally:  # The pool's own thread waits for room, and ending the pool waits for that thread.
            over.set()
            room.release()


def run_crashes(
    proof: Proof,
    jobs: Iterable[Job],
    *,
    cores: int,
    until: float | None = None,
    points_max: int | None = None,
) -> None:
    """Explore the crashes of many scenarios, and add them to a proof."""
    for family, covered in spread(_crash_job, (str(job) for job in jobs), cores=cores, until=until):
        proof.crashes.setdefault(family, Covered()).add(covered)
        proof.found += covered.found
        if len(proof.found) >= FOUND_MAX or (points_max is not None and proof.crash_points >= points_max):
            return


def run_schedules(proof: Proof, names: Iterable[str], *, cores: int, share: int = 3) -> None:
    """Run every schedule of some families, and add them to a proof."""
    jobs = [(name, prefix) for name in names for prefix in schedules.prefixes(FAMILIES[name], share)]
    for name, covered in spread(_schedule_job, jobs, cores=cores):
        total = proof.schedules.setdefault(name, Scheduled(name))
        total.runs += covered.runs
        total.operations += covered.operations
        total.states |= covered.states
        proof.found += covered.found
        if len(proof.found) >= FOUND_MAX:
            return


# -- tiers --------------------------------------------------------------------------------------------------------


def quick(steps_max: int = 3, *, cores: int = 1, budget_s: float | None = None) -> Proof:
    """Return a proof that takes seconds: all failure shapes of sagas of up to `steps_max` steps, one death deep."""
    started = time.monotonic()
    proof = Proof()
    until = None if budget_s is None else started + budget_s
    failing_max = 1 if steps_max > ALL_SUBSETS else None
    jobs = families.subsets(steps_max, depth=1, failing_max=failing_max)
    run_crashes(proof, jobs, cores=cores, until=until)
    proof.bound.append(
        f"sagas of 1 to {steps_max} steps x each failing step (certain, in doubt and landed, in doubt and not) x "
        f"{'every subset of failing compensations' if failing_max is None else 'up to one failing compensation'} x a "
        "death after each commit, effect and compensation, power lost or not"
    )
    return _ended(proof, started)


def ci(*, cores: int | None = None, seed: int = 0) -> Proof:
    """Return the proof of the CI tier: at least 200,000 distinct crash points."""
    started = time.monotonic()
    proof = Proof(seed=seed)
    cores = cores or os.cpu_count() or 1
    whole = families.once(
        chain(
            families.faults(),
            families.lates(depth=1),
            families.modes(ends=("commit",), lates=(1, 99)),
            families.declarations(depth=2, lates=(2, 99)),
            *(family(depth=1) for family in families.MORE),
            families.subsets(CI_STEPS, failing_max=1),
            (job for job in families.subsets(6, depth=1, failing_max=1) if len(job.scenario.steps) > CI_STEPS),
        )
    )
    run_crashes(proof, whole, cores=cores)
    run_crashes(proof, _beyond(whole, islice(families.drawn(seed), DRAWN_IN_CI)), cores=cores)
    proof.bound += [
        "each declaration x act x compensator's behaviour x end, alone and after a step; 2 deaths deep",
        "each way a program takes an error x declaration x act; 2 deaths deep",
        "an answer that comes after each of 14 operations of a rollback of 2 to 4 steps; 1 death",
        "each of the first 14 commits failed, lost or kept, or held up by a lock; 2 deaths deep",
        "sagas of 1 to 4 steps x failing step x up to 1 failing compensation; 2 deaths deep; 5 and 6 steps: 1 death",
        MORE_BOUND + "; 1 death",
    ]
    return _ended(proof, started)


def all_schedules(*, cores: int | None = None) -> Proof:
    """Return the proof over every schedule of every family."""
    started = time.monotonic()
    proof = Proof()
    run_schedules(proof, FAMILIES, cores=cores or os.cpu_count() or 1)
    proof.bound.append(
        "every order of 2 sagas x 8 operations (in one process and in two) and of 3 x 4 on one log; one key opened "
        "twice (12 decisions); parallel steps with a failing sibling (9); an owner and two recoverers, killed, paused "
        "and with clock jumps (8); one resource and one purse that two sagas want (12); a saga cancelled, or stopped "
        "with Ctrl-C twice, at any operation, and recovery too; words on an approval beside its call (9); a quarantine "
        "between any two operations; a scope that ends while its calls run (10), or while one is repeated (10); calls "
        "that answer when their saga is sealed (10)"
    )
    return _ended(proof, started)


def long(*, minutes: float | None, seed: int, cores: int | None = None, say: Callable[[str], None] = print) -> Proof:
    """Return the proof of `scripts/prove`: every family in full, then drawn scenarios until the time is over.

    Args:
        minutes: how long, about; None goes on until 1,000,000 distinct crash points.
        seed: of what is drawn.
        cores: how many processes.
        say: gets a line after each part.
    """
    started = time.monotonic()
    until = None if minutes is None else started + minutes * 60
    cores = cores or os.cpu_count() or 1
    proof = Proof(seed=seed)
    run_schedules(proof, FAMILIES, cores=cores)
    say(f"schedules: {sum(s.runs for s in proof.schedules.values()):,} in {time.monotonic() - started:.0f} s")
    whole = families.once(chain.from_iterable(family() for family in LONG))
    for name, jobs in groupby(whole, key=lambda job: job.family):
        run_crashes(proof, jobs, cores=cores, until=until)
        say(f"{name}: {proof.crash_points:,} distinct crash points after {time.monotonic() - started:.0f} s")
    if until is not None or proof.crash_points < MILLION:
        drawn = _beyond(whole, families.drawn(seed))
        run_crashes(proof, drawn, cores=cores, until=until, points_max=None if until else MILLION)
    proof.bound.append(
        "every family of scenarios in full where the time allowed it, then scenarios of up to 6 steps "
        "drawn by the seed; up to 3 deaths deep; every schedule of every family"
    )
    return _ended(proof, started)


LONG: Final = (
    families.faults,
    families.lates,
    families.modes,
    *families.MORE,
    families.declarations,
    families.subsets,
)


def _beyond(whole: list[Job], drawn: Iterator[Job]) -> Iterator[Job]:
    """Yield what is drawn and was not explored before."""
    known = {job.scenario for job in whole}
    return (job for job in drawn if job.scenario not in known)


def _ended(proof: Proof, started: float) -> Proof:
    proof.seconds = time.monotonic() - started
    proof.found = [shrunk(found) for found in proof.found[:FOUND_MAX]]
    return proof


# -- counterexamples ----------------------------------------------------------------------------------------------


def shrunk(found: Found) -> Found:
    """Return the smallest counterexample to the same invariant that is near, with its trace."""
    if found.scenario.startswith("schedule:"):
        found.trace = replay(found.token)
        return found
    best, tries = found, 0
    improved = True
    while improved and tries < SHRINK_TRIES_MAX:
        improved = False
        for smaller in _smaller(parse(best.scenario)):
            tries += 1
            again = explore(smaller, depth=max(len(best.path), 1)).found
            if again and again[0].invariant == found.invariant:
                best, improved = again[0], True
                break
    best.trace = replay(best.token)
    return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that are a little simpler."""
    steps = scenario.steps
    if not (scenario.has("nested") or scenario.has("deep")) or len(steps) > NESTED_STEPS_MIN:
        for number in range(len(steps)) if len(steps) > 1 else ():
            yield replace(scenario, steps=steps[:number] + steps[number + 1 :])
    yield from _without_circumstances(scenario)
    for number, step in enumerate(steps):
        for simpler in (
            Step("keyed", step.act, step.undo),
            Step(step.decl, "ok", step.undo),
            Step(step.decl, step.act),
        ):
            if simpler != step:
                yield replace(scenario, steps=(*steps[:number], simpler, *steps[number + 1 :]))


def _without_circumstances(scenario: Scenario) -> Iterator[Scenario]:
    if scenario.mode != "plain":
        yield replace(scenario, mode="plain")
        for mode in scenario.mode.split("+") if "+" in scenario.mode else ():
            yield replace(scenario, mode=mode)
    for without in (replace(scenario, fault_later=None), replace(scenario, fault=None), replace(scenario, late=0)):
        if without != scenario:
            yield without


def replay(token: str) -> list[str]:
    """Return what happens in a counterexample, in lines.

    Args:
        token: as the run printed it.
    """
    scenario, _, places = token.rpartition("@")
    path = tuple(int(place) for place in places.split(".") if place)
    if scenario.startswith("schedule:"):
        return Player(FAMILIES[scenario.removeprefix("schedule:")]).replay(path)
    return Explorer(parse(scenario), depth=len(path)).replay(path)
