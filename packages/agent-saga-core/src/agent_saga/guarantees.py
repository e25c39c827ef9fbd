"""What is claimed, and what is not: the one source of `kit.guarantees()`, of the README's tables and of the docs.

Each claim names the tests that show it, by path and function; a test checks that they exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from agent_saga.model.records import FORMAT, FORMAT_MINOR

MANIFEST_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One promise.

    Attributes:
        id: stable.
        text: the promise, in one sentence.
        tests: `path::function`, relative to the repository.
        survives: it is about what outlives the process, so a log in memory cannot claim it.
    """

    id: str
    text: str
    tests: tuple[str, ...]
    survives: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotClaimed:
    """What is not promised, and what a user can do about it."""

    id: str
    text: str
    instead: str


FAULT_MODEL: Final = (
    "the process may die at any instruction, and power may be lost on a device that honours flush",
    "the disk may fill or fail",
    "tools may hang, raise, answer late or lie",
    "several processes may write one log, and several recoverers may race",
    "clocks may jump, and a paused owner may wake up after it was replaced",
    "a task may be cancelled at any await, and a thread may outlive its caller",
)

_DEMO: Final = "packages/agent-saga-core/tests/demo/test_promises.py"
_MATRIX: Final = "packages/agent-saga-core/tests/crash/test_matrix.py"
_RACES: Final = "packages/agent-saga-core/tests/crash/test_races.py"
_RETRIES: Final = "packages/agent-saga-core/tests/engine/test_retries.py"
_GATE: Final = "packages/agent-saga-core/tests/gate_engine"
_DOCTORED: Final = "packages/agent-saga-core/tests/store/test_doctored.py"

CLAIMS: Final = (
    Claim(
        id="PROMISE-1",
        text="A call with an effect does not start before its intent is durable in the log",
        tests=(f"{_DEMO}::test_the_intent_is_in_the_log_before_the_effect",),
        survives=True,
    ),
    Claim(
        id="PROMISE-2",
        text="When a saga has ended, each effect known to it is in one bucket; `clean` is false while one stands",
        tests=(f"{_DEMO}::test_each_effect_is_in_one_bucket",),
    ),
    Claim(
        id="PROMISE-3",
        text="A compensation runs at least once, under one key, and not again once its success is recorded",
        tests=(f"{_MATRIX}::test_recovery_killed_anywhere",),
        survives=True,
    ),
    Claim(
        id="PROMISE-4",
        text="Another process finishes the saga of a dead one, and leaves that of a living one alone",
        tests=(f"{_MATRIX}::test_killed_anywhere_and_recovered", f"{_RACES}::test_a_live_owner_is_left_alone"),
        survives=True,
    ),
    Claim(
        id="PROMISE-5",
        text="A refusal comes before the effect; what cannot be decided is refused",
        tests=(f"{_DEMO}::test_a_refused_call_does_not_reach_the_world",),
    ),
    Claim(
        id="PROMISE-6",
        text="A damaged log stops its reader, which names saga, record and reason",
        tests=(f"{_DOCTORED}::test_edited_records_are_noticed",),
        survives=True,
    ),
    Claim(
        id="PROMISE-7",
        text="Reading a log runs no code that the log names",
        tests=(f"{_DEMO}::test_reading_a_log_loads_no_code",),
    ),
    Claim(
        id="PROMISE-8",
        text="A retry of a call in doubt is no new call: that one is settled first, or runs again under the same key",
        tests=(f"{_RETRIES}::test_a_retry_of_what_did_not_land_runs_under_the_same_key",),
    ),
    Claim(
        id="GATE-1",
        text="An approval is good for one exact call, and is used once, in the transaction of its intent",
        tests=(
            f"{_GATE}/test_approvals.py::test_changed_arguments_are_another_call",
            f"{_GATE}/test_attacks.py::test_two_threads_and_one_word",
        ),
    ),
    Claim(
        id="GATE-2",
        text="A suspended saga goes on in another process after the word, and runs what was approved once",
        tests=(
            f"{_GATE}/test_gate_processes.py::test_a_suspended_saga_goes_on_in_another_process",
            f"{_GATE}/test_gate_processes.py::test_killed_between_the_word_and_the_effect",
        ),
        survives=True,
    ),
    Claim(
        id="GATE-3",
        text="What is reserved of a budget never exceeds its limit, whoever reserves; spend in doubt stays reserved",
        tests=(
            f"{_GATE}/test_attacks.py::test_64_reservations_from_eight_processes",
            f"{_GATE}/test_budgets.py::test_spend_in_doubt_stays_reserved_until_it_is_settled",
        ),
    ),
    Claim(
        id="GATE-4",
        text="A halt stops calls before their effects, and no compensation; a switch that cannot be read counts as one",
        tests=(
            f"{_GATE}/test_halts.py::test_a_halt_stops_no_compensation",
            f"{_GATE}/test_halts.py::test_unreadable_means_halted",
        ),
    ),
    Claim(
        id="GATE-5",
        text="A quarantined saga is not compensated any further, and recovery leaves it alone until the lift",
        tests=(f"{_GATE}/test_freeze.py::test_a_quarantine_stops_a_running_rollback",),
    ),
    Claim(
        id="GATE-6",
        text="A resource is held by one saga of the log, until that is sealed; sagas that wait for one another end",
        tests=(
            f"{_GATE}/test_gate_processes.py::test_an_account_is_held_until_its_saga_is_sealed",
            f"{_GATE}/test_resources.py::test_opposite_orders_do_not_deadlock",
        ),
    ),
)

NOT_CLAIMED: Final = (
    NotClaimed(
        id="NOT-1",
        text="Isolation: others see the effects of a saga before it ends, and may build on them",
        instead="let compensators raise `Conflict` rather than overwrite",
    ),
    NotClaimed(
        id="NOT-2",
        text="One effect at a remote that ignores idempotency keys",
        instead="give the tool a `probe`",
    ),
    NotClaimed(
        id="NOT-3",
        text="The truth of a tool that lies about what it did",
        instead="give its compensator a `verify`, which reads the world back",
    ),
    NotClaimed(
        id="NOT-4",
        text="That the call of a paused and replaced process stops, once its intent is written",
        instead="hand its key to the remote",
    ),
    NotClaimed(
        id="NOT-5",
        text="Compensation of what a human has acted on already",
        instead="settle it by hand, and record that with `agent-saga settle`",
    ),
    NotClaimed(
        id="NOT-6",
        text="Detection of a rewrite of the whole log",
        instead="keep a checkpoint elsewhere: `agent-saga checkpoint`, then `verify --anchor`",
    ),
    NotClaimed(
        id="NOT-7",
        text="Protection from whoever controls the process, or may write the log's file",
        instead="give agents a user account of their own",
    ),
    NotClaimed(
        id="NOT-8",
        text="Anything about calls outside of a saga, also when a thread pool has lost it (a warning says so once)",
        instead="`saga.bind(fn)`, `saga.attach()`, or `requires_saga=True`",
    ),
    NotClaimed(
        id="NOT-9",
        text="That whoever approves has read what is shown",
        instead="ask a quorum, and demand signatures",
    ),
    NotClaimed(
        id="NOT-10",
        text="That a policy is right, or comes to an end: it is your code",
        instead="one that raises refuses; `decide_within_s` bounds it",
    ),
    NotClaimed(
        id="NOT-11",
        text="A budget or a resource across logs: two logs know nothing of each other",
        instead="one log in PostgreSQL for all who share it",
    ),
    NotClaimed(
        id="NOT-12",
        text="The true time of a record: it is that of its writer's clock",
        instead="take the order from positions, not from times",
    ),
    NotClaimed(
        id="NOT-13",
        text="Anything about tools that the model's provider runs",
        instead="run the tool yourself, or keep it to reading",
    ),
    NotClaimed(
        id="NOT-14",
        text="That a halt stops a call which is past its intent",
        instead="`timeout_s`; the saga rolls back as soon as it returns",
    ),
)

_IN_MEMORY: Final = NotClaimed(
    id="NOT-MEMORY",
    text="Anything about this log after the process has ended: it is kept in memory",
    instead="give the kit a path",
)
_UNSIGNED: Final = NotClaimed(
    id="NOT-SIGNED",
    text="That an unsigned approval was given by the one it names: it trusts the permissions of the log's file",
    instead="ask for signed ones (`Ask(signed=True)`), and pin the keys in code: `AgentKit(approval_keys=...)`",
)


def manifest(*, version: str, log: str) -> dict[str, Any]:
    """Return what is claimed for a kit, JSON-serialisable.

    Args:
        version: of agent-saga-core.
        log: the kit's log, as given; one in memory outlives nothing.
    """
    in_memory = log == "memory:"
    claims = [claim for claim in CLAIMS if not (in_memory and claim.survives)]
    open_points = [*NOT_CLAIMED, _UNSIGNED, *([_IN_MEMORY] if in_memory else [])]
    return {
        "manifest": MANIFEST_VERSION,
        "version": version,
        "log_format": f"{FORMAT}.{FORMAT_MINOR}",
        "log": log,
        "fault_model": list(FAULT_MODEL),
        "claims": [{"id": claim.id, "text": claim.text, "tests": list(claim.tests)} for claim in claims],
        "not_claimed": [{"id": point.id, "text": point.text, "instead": point.instead} for point in open_points],
    }
