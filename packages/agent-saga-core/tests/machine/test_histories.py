"""Every history of one step up to four records: where it leads is written down in `histories.txt`, line by line.

The file is the fold's meaning in words: what a change of it changes shows as a diff to be read. Of the histories of
three records in words where they lead to something new; of all, those with one more too, one digest. Made anew by
`python packages/agent-saga-core/tests/machine/test_histories.py`.
"""

import copy
import hashlib
from pathlib import Path

import pytest

from agent_saga.machine.fold import amend, apply
from agent_saga.machine.plan import leftovers, needs_human, next_action, unresolved
from agent_saga.machine.report import bucket_of, report_of
from agent_saga.machine.row import row_of
from agent_saga.machine.states import TransitionError
from agent_saga.model.records import Recipe
from pytest_agent_saga.conformance.sagas import Scribe

GOLDEN = Path(__file__).with_name("histories.txt")
RECORDS_MAX = 4
LAST = {"waived", "replayed", "released", "succeeded, unbound", "failed, assumed", "late in doubt", "undone already"}
"""Events after which nothing more is tried."""
BOUND = {"result": '{"id":"ch_1"}', "compensation.thing": '"ch_1"'}
DECLARED = {
    "from its arguments, safe without an effect, idempotent; of an adapter": {
        "recipe": Recipe(
            name="undo", version=1, bind={"thing": "kwargs.customer"}, safe_if_absent=True, idempotent=True
        ),
        "adapter": "langgraph",
    },
    "from its result, read back; with a probe": {
        "recipe": Recipe(name="undo", version=1, bind={"thing": "result.id"}, safe_if_absent=True, verify="gone"),
        "probe": "find",
    },
    "by a key": {"recipe": Recipe(name="undo", version=1, bind={"thing": "result"}, key_param="key", verify="gone")},
    "by nothing": {"recipe": None, "adapter": "crewai"},
}
OWNED = {
    "intent": lambda s, step: s.intent(1, attempt=step.attempt + 1, **s.declared),
    "intent refused": lambda s, step: s.intent(1, attempt=step.attempt + 1, refused="held", **s.declared),
    "succeeded": lambda s, step: s.fact(
        "outcome", BOUND, step=1, state="succeeded", attempt=step.attempt, bound=s.declared["recipe"] is not None
    ),
    "succeeded, unbound": lambda s, step: s.fact(
        "outcome", {"result": "1"}, step=1, state="succeeded", attempt=step.attempt, exact=False, error="PathMissing"
    ),
    "failed": lambda s, step: s.fact("outcome", step=1, state="failed", attempt=step.attempt, error="KeyError"),
    "failed, assumed": lambda s, step: s.fact(
        "outcome", step=1, state="failed", attempt=step.attempt, error="HTTP 404", assumed=True
    ),
    "in doubt": lambda s, step: s.fact("outcome", step=1, state="in_doubt", attempt=step.attempt, error="Timeout"),
    "waived": lambda s, _: s.fact("waived", step=1),
    "replayed": lambda s, _: s.fact("replayed", step=1),
    "rollback": lambda s, _: s.fact("rollback_started", cause="boom"),
    "claimed": lambda s, _: s.fact("claimed", owner="other", epoch=s.view.epoch + 1),
    "released": lambda s, _: s.fact("released", reason="enough", next_at=77),
    "ended": lambda s, _: s.fact(
        "saga_ended", outcome="committed" if s.view.state in {"open", "committed"} else "rolled_back"
    ),
}
STATED = {
    "late succeeded": lambda s, step: s.fact(
        "late_outcome", BOUND, step=1, state="succeeded", attempt=step.attempt, bound=s.declared["recipe"] is not None
    ),
    "late failed": lambda s, step: s.fact(
        "late_outcome", step=1, state="failed", attempt=step.attempt, error="KeyError"
    ),
    "late in doubt": lambda s, step: s.fact("late_outcome", step=1, state="in_doubt", attempt=step.attempt),
    "landed": lambda s, _: s.fact("probed", BOUND, step=1, answer="landed", bound=s.declared["recipe"] is not None),
    "not landed": lambda s, _: s.fact("probed", step=1, answer="not_landed"),
    "unknowable": lambda s, _: s.fact("probed", step=1, answer="unknowable", reason="who knows", next_at=99),
    "undoing": lambda s, step: s.fact(
        "compensation_intent",
        step=1,
        compensator="undo",
        version=1,
        key="k",
        attempt=step.compensation_attempts + 1,
        generation=step.generation,
    ),
    "undone": lambda s, step: s.compensated(1, step.compensation_attempts),
    "undone, seen": lambda s, step: s.compensated(1, step.compensation_attempts, verified=True),
    "undone already": lambda s, step: s.compensated(1, step.compensation_attempts, "already_done"),
    "undo conflicts": lambda s, step: s.compensated(1, step.compensation_attempts, "conflict", reason="changed"),
    "undo failed": lambda s, step: s.compensated(1, step.compensation_attempts, "failed", reason="503", next_at=88),
    "undo in doubt": lambda s, step: s.compensated(1, step.compensation_attempts, "in_doubt", verified=False),
    "says happened": lambda s, _: s.fact("settled", BOUND, step=1, verdict="happened", by="ann", bound=True),
    "says did not": lambda s, _: s.fact("settled", step=1, verdict="did-not-happen", by="ann"),
    "says undone": lambda s, _: s.fact("settled", step=1, verdict="compensated-by-hand", by="ann"),
    "accepts": lambda s, _: s.fact("settled", step=1, verdict="accept", by="ann"),
}
SHOWN = (
    "exact", "landed", "assumed", "doubtful", "answered", "waived", "unwanted", "replayed", "attempt", "generation",
    "compensation_attempts", "verified", "next_at", "unknowable", "reason", "error_type", "settled_by",
)  # fmt: skip
DEFAULTS = {
    "exact": True, "verified": None, "next_at": None, "reason": "", "error_type": None, "settled_by": None,
    "attempt": 1, "generation": 1, "replayed": 0, "unknowable": 0, "compensation_attempts": 0,
}  # fmt: skip


class Story(Scribe):
    """One saga with one step, and what was recorded so far."""

    def __init__(self, declared):
        super().__init__(None, 1)
        self.declared = declared
        self.open_item(self.intent(1, **declared))
        self.view = self.next

    def after(self, event):
        """The story one record longer, or None when that cannot follow."""
        other = copy.copy(self)
        other.view = copy.deepcopy(self.view)
        make = OWNED.get(event) or STATED[event]
        record, _, values = make(other, other.view.steps[1])
        stated = other.view.ended and event in STATED
        try:
            (amend if stated else apply)(other.view, record, values)
        except TransitionError:
            return None
        return other

    def told(self):
        """What is true now, in one line."""
        view, step = self.view, self.view.steps[1]
        shown = {name: getattr(step, name) for name in SHOWN}
        flags = [
            name if value is True else f"{name}={value}"
            for name, value in shown.items()
            if value != DEFAULTS.get(name, False)
        ]
        flags += [f"outcome at {step.outcome_n}"] if step.outcome_n else []
        flags += ["lost"] if step.lost_at else []
        flags += ["bound"] if step.compensation else []
        report, row = report_of(view), row_of(view)
        plan = [next_action(step, probed=probed, verified=probed).name.lower() for probed in (False, True)]
        rest = [
            f"then {plan[0]}" if plan[0] == plan[1] else f"then {plan[0]}, {plan[1]}",
            f"report {report.outcome}, {bucket_of(view, step) or 'no effect'}",
            *(["clean"] if report.clean else []),
            *(["verified"] if report.verified else []),
            *(["unresolved"] if unresolved(view) else []),
            *([f"work {row.work}, human {row.human}, due {row.due_at}"] if row.work or row.due_at else []),
            *(["for a human"] if leftovers(view) and needs_human(step) else []),
            *(["sealed"] if row.sealed else []),
            *(["owned"] if row.owner else []),
        ]
        return f"{view.state.value}: {step.state.value} [{', '.join(flags)}] {', '.join(rest)}"


def histories(declared):
    """Return each state that some history of the step leads to, with the first such history; and a digest of all."""
    first = Story(declared)
    told = {first.told()}
    level, lines, tried, all_of_them = [("intent", first)], [f"intent\n    {first.told()}"], 0, hashlib.sha256()
    for length in range(2, RECORDS_MAX + 1):
        longer = []
        for history, story in level:
            for event in (*OWNED, *STATED):
                other = story.after(event)
                known = f"{history} / {event}\n    {other.told() if other else 'refused'}"
                tried += 1
                all_of_them.update(known.encode())
                if other is None or other.told() in told:
                    continue
                told.add(other.told())
                lines += [known] if length < RECORDS_MAX else []
                if event not in LAST:
                    longer.append((f"{history} / {event}", other))
        level = longer
    return "\n".join(
        (*lines, f"{tried} histories lead to {len(told)} states, and this is all of them: {all_of_them.hexdigest()}")
    )


@pytest.mark.parametrize("how", DECLARED)
def test_each_history_leads_where_it_is_written(how):
    """The fold, the plan, the report and the row of every history are those of the file."""
    _, _, known = GOLDEN.read_text("utf-8").partition(f"# undone {how}\n")
    assert histories(DECLARED[how]) == known.partition("\n# undone ")[0].rstrip("\n")


if __name__ == "__main__":
    sections = [f"# undone {how}\n{histories(declared)}\n" for how, declared in DECLARED.items()]
    GOLDEN.write_text("".join(sections), "utf-8")
