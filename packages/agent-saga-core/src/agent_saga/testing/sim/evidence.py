"""What the records say of a step, read as they were written: for the checks of the invariants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.model import records as r
from agent_saga.testing.sim.tools import tool_name

if TYPE_CHECKING:
    from agent_saga.machine.view import SagaView
    from agent_saga.model.report import RollbackReport
    from agent_saga.testing.sim.disk import Chain, Image

_GONE: Final = frozenset({"compensated", "already_done"})
_STEP_FACTS: Final = frozenset(
    {r.Intent, r.Outcome, r.LateOutcome, r.Probed, r.CompensationIntent, r.CompensationOutcome, r.Settled}
)
_SETTLED_LATER: Final = frozenset({"probe", "travel", "absent", "slow", "far", "farslow", "mumbling"})


@dataclass(frozen=True, slots=True)
class Known:
    """A step as the records tell it: its saga's chain, its number, and every record about it in order."""

    chain: Chain
    no: int
    facts: tuple[r.AnyRecord, ...]


def facts_of(image: Image, item: str, *, attempted: bool = False) -> Known | None:
    """Return the newest step of an item's tool, amendments of its saga included; or the one compensated last."""
    name, newest = tool_name(item), None
    for chain in reversed(list(image.chains.values())):
        for body in reversed(chain.bodies):
            if type(body) is r.Intent and body.tool == name and body.refused is None:
                known = Known(chain, body.step, about(image, chain, body.step))
                if not attempted or any(type(fact) is r.CompensationIntent for fact in known.facts):
                    return known
                newest = newest or known
    return newest


def about(image: Image, chain: Chain, no: int) -> tuple[r.AnyRecord, ...]:
    bodies = chain.bodies
    if chain.current.amendments:
        amending = image.amending.get(chain.current.saga_id, ())
        bodies += tuple(body for other in amending for body in image.chains[other].bodies)
        bodies = tuple(sorted(bodies, key=lambda body: body.pos))
    return tuple([body for body in bodies if type(body) in _STEP_FACTS and body.step == no])  # type: ignore[union-attr]


def intents(image: Image, item: str) -> list[tuple[str, int]]:
    """Return saga and step of every intent of an item's tool."""
    name = tool_name(item)
    return [
        (saga_id, body.step)
        for saga_id, chain in image.chains.items()
        for body in chain.bodies
        if type(body) is r.Intent and body.tool == name and body.refused is None
    ]


def attempts(image: Image, item: str) -> int:
    """Return how many attempts to compensate an item the log has, over all its steps."""
    return sum(
        type(fact) is r.CompensationIntent
        for saga_id, no in set(intents(image, item))
        for fact in about(image, image.chains[saga_id], no)
    )


def live_bodies(image: Image, saga_id: str) -> tuple[r.AnyRecord, ...]:
    """Return the records of a saga, or nothing."""
    chain = image.chains.get(saga_id)
    return () if chain is None else chain.bodies


def done(facts: tuple[r.AnyRecord, ...], generation: int) -> bool:
    """Tell whether a compensation of this generation succeeded, by the records."""
    current = 0
    for fact in facts:
        if type(fact) is r.CompensationIntent:
            current = fact.generation
        elif type(fact) is r.CompensationOutcome and fact.state in _GONE and current == generation:
            return True
    return False


def superseded(facts: tuple[r.AnyRecord, ...]) -> bool:
    """Tell whether a late answer came while the attempt was on its way."""
    return type(facts[-1]) is r.LateOutcome


def may_go(known: Known) -> bool:
    """Tell whether an effect of a committed saga may be compensated: it came late, or its own scope rolled back."""
    rolled = {body.scope for body in known.chain.bodies if type(body) is r.RollbackStarted}
    return any(type(fact) is r.LateOutcome or (type(fact) is r.Intent and fact.scope in rolled) for fact in known.facts)


def confirmed(image: Image, chain: Chain) -> bool:
    """Tell whether every step of a clean rollback was read back, and none was assumed absent."""
    for no in {body.step for body in chain.bodies if type(body) is r.Intent}:
        facts = about(image, chain, no)
        done = [f for f in facts if type(f) is r.CompensationOutcome and f.state in _GONE]
        assumed = any(type(fact) is r.Outcome and fact.assumed for fact in facts)
        if assumed or any(fact.verified is not True for fact in done[-1:]):
            return False
    return True


def first_landing(facts: tuple[r.AnyRecord, ...]) -> r.AnyRecord | None:
    """Return the record by which the landing of a step became known; what says it again is no news."""
    for fact in facts:
        match fact:
            case r.Outcome() | r.LateOutcome() if fact.state == "succeeded":
                return fact
            case r.Probed(answer="landed") | r.Settled(verdict="happened"):
                return fact
            case _:
                pass
    return None


def steps_by_item(view: SagaView) -> dict[str, int]:
    """Return the newest step of each item: a repeat that failed says nothing about the call before it."""
    items: dict[str, int] = {}
    for no, step in view.steps.items():
        item = step.tool.removeprefix("tool.")
        if step.state.value != "absent" or item not in items:
            items[item] = no
    return items


def says_absent(fact: r.AnyRecord) -> bool:
    match fact:
        case r.Outcome() | r.LateOutcome():
            return fact.state == "failed"
        case r.Probed():
            return fact.answer == "not_landed"
        case r.Settled():
            return fact.verdict == "did-not-happen"
        case r.Intent():
            return fact.refused is not None
        case _:
            return False


def may_stay(decl: str, undo: str, facts: tuple[r.AnyRecord, ...], *, stands: bool) -> bool:
    """Tell whether a work item may be left, by what its tool declares and what its compensator does."""
    if decl in {"final", "blind", "unbound"} or undo in {"fail", "conflict"}:
        return True
    if decl == "look" and undo in {"hidden", "deaf+", "deaf-"}:
        return True
    attempted = any(type(fact) is r.CompensationIntent for fact in facts)
    if not attempted:  # In doubt: nobody can tell without a probe, and nobody may guess.
        return decl not in _SETTLED_LATER and not any(landed(fact) for fact in facts)
    # An attempt without an outcome, and no safe way to repeat it; a look would have told that it worked.
    return decl == "plain" or (decl == "look" and stands)


def landed(fact: r.AnyRecord) -> bool:
    return isinstance(fact, r.Outcome | r.LateOutcome) and fact.state == "succeeded" and fact.bound


def shape(report: RollbackReport) -> tuple[object, ...]:
    names = ("kept", "compensated", "in_doubt", "conflicted", "failed", "orphaned", "assumed_absent")
    buckets = tuple((n, tuple(s.step_id for s in getattr(report, n))) for n in names if getattr(report, n))
    return (report.outcome, report.clean, report.verified, *buckets)


def same(first: RollbackReport, second: RollbackReport) -> bool:
    return shape(first) == shape(second)
