"""Seeded bugs, at least one for each invariant: an engine, log or recoverer that breaks it, which the suite must catch.

A twin is made by patching this process, so that everything else is the real thing. It names the invariant that has to
notice it and where to look; `survivors` runs them all.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.machine import fold, report
from agent_saga.machine.view import SagaView
from agent_saga.model import records as r
from agent_saga.runtime import (
    compensate,
    ending,
    late,
    opening,
    recover,
)
from agent_saga.runtime.live import LiveSaga
from agent_saga.store import rules
from agent_saga.testing.sim import bugs
from agent_saga.testing.sim.crashes import explore
from agent_saga.testing.sim.patching import put, put_item
from agent_saga.testing.sim.schedules import FAMILIES, Player
from agent_saga.testing.sim.script import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.testing.sim.crashes import Found


@dataclass(frozen=True, slots=True)
class Twin:
    """One seeded bug.

    Attributes:
        invariant: what has to notice it.
        bug: what is wrong, in one line.
        plant: puts it in place for the length of a block.
        where: a scenario, or `schedule:`, the name of a family and how its decisions begin.
        depth: deaths, one after the other.
    """

    invariant: str
    bug: str
    plant: Callable[[], contextlib.AbstractContextManager[Any]]
    where: str
    depth: int = 1


_BACK: Final = "keyed:ok:ok,keyed:ok:ok,keyed:fail:ok/commit/plain"

TWINS: Final = (
    Twin("INV-01", "the intent is committed, not durable", lambda: bugs.not_durable(r.Intent), _BACK),
    Twin("INV-01", "the log calls a commit durable before it is", bugs.log_calls_all_durable_late, _BACK),
    Twin("INV-02", "an attempt is committed, not durable", lambda: bugs.not_durable(r.CompensationIntent), _BACK),
    Twin(
        "INV-03",
        "a failed compensation counts as done",
        bugs.failed_counts_as_compensated,
        "keyed:ok:fail,final:ok:ok/raise/plain",
    ),
    Twin("INV-04", "a failed compensation is in no bucket", bugs.failed_is_in_no_bucket, "keyed:ok:fail/raise/plain"),
    Twin("INV-05", "the success of a compensation is not believed", bugs.success_is_not_believed, _BACK),
    Twin(
        "INV-03",
        "an orphan counts as kept",
        lambda: put(report, _standing=lambda *_: "kept"),
        "final:ok:ok/raise/plain",
    ),
    Twin("INV-04", "a compensation counts as read back", bugs.confirmed_unseen, "keyed:ok:ok/raise/plain"),
    Twin(
        "INV-17",
        "a saga commits with a step in doubt",
        lambda: put(ending, _is_unsettled=lambda *_: False),
        "keyed:ok:ok,keyed:doubt+:ok/commit/catch",
    ),
    Twin(
        "INV-17",
        "a nested rollback takes the steps around it",
        bugs.inner_takes_all,
        "keyed:ok:ok,keyed:ok:ok,keyed:fail:ok/commit/nested",
    ),
    Twin(
        "INV-26",
        "a swallowed failure counts for nothing",
        lambda: put(ending, unresolved=lambda *_: []),
        "keyed:ok:ok,keyed:fail:ok/commit/adapter",
    ),
    Twin(
        "INV-15",
        "a death does not begin the wait for a request anew",
        bugs.death_counts_for_nothing,
        "travel:travel:ok/raise/plain",
    ),
    Twin(
        "INV-14",
        "a late landing waits for the end of the walk",
        bugs.walks_to_the_end,
        "keyed:ok:ok,keyed:ok:ok,keyed:ok:ok,keyed:late+:ok/ask/plain/late=4",
    ),
    Twin(
        "INV-12", "the rollback forgets the first step", bugs.forgets_the_first, "keyed:ok:ok,keyed:ok:ok/raise/plain"
    ),
    Twin("INV-04", "a compensation is not read back", bugs.nothing_is_read_back, "look:ok:ok/raise/plain"),
    Twin(
        "INV-29", "a call that still runs is compensated", bugs.calls_are_over, "absent:late+:ok/commit/plain/late=99"
    ),
    Twin(
        "INV-16",
        "a late answer that was refused counts as written",
        bugs.refused_is_written,
        "schedule:paused-owner-late",
    ),
    Twin("INV-27", "recovery takes what is suspended", bugs.takes_suspended, "keyed:ok:ok/suspend/plain"),
    Twin(
        "INV-28",
        "a resumed program is given nothing",
        bugs.every_call_is_new,
        "keyed:ok:ok,keyed:ok:ok/commit/resume",
    ),
    Twin("INV-03", "a later landing gets the used key", bugs.same_generation, "schedule:paused-owner-absent@0.1.2.1"),
    Twin("INV-06", "an attempt in doubt is repeated whatever it is", bugs.always_again, "plain:ok:doubt+/raise/plain"),
    Twin("INV-07", "two steps share one key", bugs.two_steps_one_key, "keyed:ok:ok,keyed:ok:ok/commit/plain"),
    Twin("INV-08", "each process makes keys of its own", bugs.key_of_the_process, _BACK, 2),
    Twin("INV-09", "recovery takes everybody for dead", bugs.everybody_is_dead, "schedule:killed-owner-1@0"),
    Twin("INV-10", "the log does not look at epochs", bugs.no_fencing, "schedule:paused-owner-1@3.1.1.0"),
    Twin("INV-11", "the row forgets that a human is needed", bugs.row_forgets_work, "final:ok:ok/raise/plain"),
    Twin("INV-12", "recovery claims a saga and leaves it", bugs.claims_and_leaves, _BACK),
    Twin("INV-13", "recovery ignores the backoff", bugs.no_backoff, "keyed:ok:fail/raise/plain"),
    Twin("INV-14", "effects are compensated in the order of their intents", bugs.forwards, _BACK),
    Twin("INV-15", "a step in doubt counts as absent", bugs.doubt_is_absence, "keyed:doubt-:ok/commit/plain"),
    Twin("INV-15", "a request that travels counts as absent", bugs.nothing_travels, "travel:travel:ok/commit/plain"),
    Twin("INV-16", "a late answer is dropped", bugs.late_answers_are_dropped, "keyed:late+:ok/commit/plain/late=2"),
    Twin("INV-17", "effects of a committed saga count as left", bugs.committed_is_left, "keyed:ok:ok/commit/plain"),
    Twin("INV-18", "the end is reported before it is durable", lambda: bugs.not_durable(r.SagaEnded), _BACK),
    Twin(
        "INV-19",
        "a refusal is recorded and the call runs",
        bugs.refusal_is_advice,
        "keyed:ok:ok,keyed:ok:ok/commit/refuse",
    ),
    Twin(
        "INV-20",
        "the engine goes on after a failed commit",
        bugs.failure_is_forgotten,
        "keyed:ok:ok,keyed:ok:ok/raise/plain/fault=3:kept",
    ),
    Twin("INV-21", "a repeat of a call in doubt is a new call", bugs.every_call_is_new, "probe:doubt+:ok/commit/retry"),
    Twin("INV-22", "the reader does not check payloads", bugs.payloads_are_trusted, _BACK, 2),
    Twin("INV-23", "the reader asks a probe", bugs.reader_asks, "keyed:ok:ok/commit/plain"),
    Twin("INV-24", "a saga is sealed with work left", bugs.sealed_too_soon, "keyed:doubt+:ok/commit/plain"),
    Twin("INV-25", "a rollback may not end", bugs.no_end, _BACK),
    Twin(
        "INV-30",
        "a rollback that nobody asked for is not told",
        lambda: put(ending, _tell=lambda *_, **__: None),
        "keyed:ok:ok,keyed:doubt+:ok/commit/catch",
    ),
    Twin(
        "INV-31",
        "the log does not add up what a budget has spent",
        lambda: put(rules, _exceeded=lambda *_: None),
        "keyed:ok:ok,keyed:ok:ok,keyed:ok:ok/commit/short",
    ),
    Twin("INV-36", "a scope that rolls back takes steps", bugs.closing_is_not_closed, "schedule:siblings-inside"),
    Twin(
        "INV-17",
        "a saga commits around a scope that is open",
        lambda: put(LiveSaga, open_inside=lambda *_: []),
        "keyed:ok:ok,keyed:ok:ok/commit/open",
    ),
    Twin("INV-32", "a question of a policy is dropped", bugs.questions_are_dropped, "keyed:ok:ok/commit/asked"),
    Twin("INV-33", "a resource is shared", bugs.resources_are_shared, "schedule:resource-in-two"),
    Twin(
        "INV-34",
        "recovery goes on with what is quarantined",
        lambda: put(recover, quarantined=lambda *_: None),
        "keyed:ok:ok,keyed:ok:ok/raise/frozen",
    ),
    Twin(
        "INV-35",
        "a human's word changes nothing",
        lambda: put_item(fold._HANDLERS, r.Settled, lambda *_: None),  # noqa: SLF001
        "final:ok:ok/raise/plain",
    ),
    Twin(
        "INV-12",
        "a recovery that is interrupted keeps its saga",
        lambda: put(recover, release=lambda *_: None),
        "schedule:recovery-interrupted",
    ),
    Twin(
        "INV-12",
        "each claim begins the wait for a request anew",
        bugs.each_claim_begins_the_wait,
        "keyed:ok:ok,far:travel:ok/commit/plain",
    ),
    Twin(
        "INV-27",
        "recovery rolls back what waits for its resume",
        lambda: put(recover, _overdue=lambda *_: True),
        "keyed:ok:ok,keyed:ok:ok/commit/resume",
    ),
    Twin(
        "INV-28",
        "a resumed program may leave out what stands",
        lambda: put(opening, _finish_scopes=bugs.nothing_stands),
        "keyed:ok:ok,keyed:ok:ok/commit/resume+less",
    ),
    Twin(
        "INV-04",
        "a rollback leaves out the scopes in its scope",
        lambda: put(SagaView, is_within=lambda _self, inner, outer: inner == outer),
        "keyed:ok:ok,keyed:ok:ok,keyed:ok:ok,keyed:fail:ok/commit/deep",
    ),
    Twin(
        "INV-16",
        "what landed after the end is written and left",
        bugs.late_is_only_written,
        "keyed:ok:ok,keyed:late+:ok/commit/plain/late=99",
    ),
    Twin(
        "INV-16",
        "an amendment that was overtaken is left open",
        lambda: put(late, gone_on_with=lambda *_: None, PATIENT_TRIES=0),
        "schedule:sealed-then-answered",
    ),
    Twin(
        "INV-15",
        "the last attempt that failed speaks for those before it",
        lambda: put(fold, _state_said=lambda _step, said: said),
        "keyed:ok:ok,keytool:again-:ok/commit/retry",
    ),
    Twin(
        "INV-26",
        "a success before a failure resolves it",
        bugs.any_success_resolves,
        "keyed:ok:ok,keyed:okfail:ok/commit/adapter",
    ),
    Twin(
        "INV-06",
        "what a look did not confirm is repeated whatever it is",
        lambda: put(compensate, _may_run_again=lambda _recipe: True),
        "look:ok:hidden/raise/plain",
    ),
    Twin(
        "INV-19",
        "a policy that fails allows",
        bugs.failures_allow,
        "keyed:ok:ok,keyed:ok:ok/commit/broken",
    ),
)


def hunt(twin: Twin, *, planted: bool = True) -> list[Found]:
    """Return what the suite finds where a twin is to be caught.

    Args:
        twin: the seeded bug.
        planted: False looks at the same place without the bug.
    """
    with twin.plant() if planted else contextlib.nullcontext():
        if twin.where.startswith("schedule:"):
            family, _, begin = twin.where.removeprefix("schedule:").partition("@")
            return Player(FAMILIES[family]).every(tuple(int(choice) for choice in begin.split(".") if choice)).found
        return explore(parse(twin.where), depth=twin.depth).found


def survivors() -> list[tuple[Twin, list[Found]]]:
    """Return the twins that the invariant which has to notice them did not notice, and what was found instead."""
    hunted = [(twin, hunt(twin)) for twin in TWINS]
    return [(twin, found) for twin, found in hunted if twin.invariant not in {one.invariant for one in found}]
