"""What must hold of the gate, between sagas and for whoever is told: the part of the checks that `Judge` calls.

As in `invariants`, the records are read as they were written, and the world's own ledger.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from agent_saga.errors import RollbackIncomplete, SagaRolledBack
from agent_saga.machine.report import report_of
from agent_saga.model import records as r
from agent_saga.store.reader import load
from agent_saga.testing.sim import evidence, policies
from agent_saga.testing.sim.tools import tool_name

if TYPE_CHECKING:
    from agent_saga.machine.view import SagaView
    from agent_saga.model.report import RollbackReport
    from agent_saga.runtime.saga import Saga
    from agent_saga.store.port import Item
    from agent_saga.testing.sim.disk import Chain, Image
    from agent_saga.testing.sim.invariants import Judge

SETTLED_BY_LOOK = frozenset({"absent", "probe"})
"""Declarations whose steps in doubt can be settled at once, whatever happened."""


STAYS = frozenset({"fail", "conflict"})
"""Behaviours of compensators with which a step may stay open although a human gave a word."""


# -- before an effect ----------------------------------------------------------------------------------------------


def check_start(judge: Judge, item: str, saga_id: str, no: int) -> None:
    """An effect starts: it is allowed, approved, and nobody else holds what it takes."""
    stage = judge.stage
    if policies.base(item) in stage.forbidden:
        raise judge.broken("INV-19", f"the call of {item} is refused, and its effect starts")
    image = stage.disk.durable
    chain = image.chains[saga_id]
    intent = [body for body in chain.bodies if type(body) is r.Intent and body.step == no][-1]
    if stage.asks and not _approved(image, chain, intent):
        raise judge.broken("INV-32", f"the effect of {item} starts, and no approval of its own was used for it")
    for name in intent.resources:
        others = [other for other in image.chains.values() if other is not chain and _holds(other, name)]
        if others:
            held = others[0].current.saga_id
            raise judge.broken("INV-33", f"the effect of {item} starts, and saga {held} holds {name!r}")


def _holds(chain: Chain, name: str) -> bool:
    if chain.current.leaf is not None:
        return False
    return any(type(b) is r.Intent and name in b.resources and b.refused is None for b in chain.bodies)


def _approved(image: Image, chain: Chain, intent: r.Intent) -> bool:
    """Tell whether an approval was given before it expired, and used with this step and no other."""
    used = [b for b in chain.bodies if type(b) is r.ApprovalConsumed and b.refused is None]
    mine = [body for body in used if body.step == intent.step]
    if not mine or any(sum(other.approval == body.approval for other in used) > 1 for body in mine):
        return False
    about = {body.approval: body for body in chain.bodies if type(body) is r.ApprovalRequested}
    words = words_on(image, chain, mine[-1].approval)
    good = [word for word in words if word.pos < mine[-1].pos and word.refused is None]
    request = about[mine[-1].approval]
    if request.tool != intent.tool or not good or mine[-1].at >= request.expires_at:
        return False
    return good[0].decision == "approved"


def words_on(image: Image, chain: Chain, approval: str) -> list[r.ApprovalDecided]:
    """Return the words on a request, of its own saga and of those that amend it, in order."""
    others = image.amending.get(chain.current.saga_id, ())
    bodies = [*chain.bodies, *(body for other in others for body in image.chains[other].bodies)]
    words = [body for body in bodies if type(body) is r.ApprovalDecided and body.approval == approval]
    return sorted(words, key=lambda word: word.pos)


# -- at each commit ------------------------------------------------------------------------------------------------


def check_purse(judge: Judge, image: Image) -> None:
    """What is reserved of the purse is within it."""
    purse = judge.stage.purse
    if purse is None:
        return
    spent = sum(Decimal(fact.value) for fact in image.facts if (fact.kind, fact.name) == ("spend", policies.PURSE))
    if spent > purse:
        raise judge.broken("INV-31", f"{spent} of the purse are spent, and {purse} are in it")


def check_beginnings(judge: Judge, chain: Chain, item: Item) -> None:
    """A step begins, and neither its scope nor one around it rolls back."""
    begun = [draft.body for draft in item.drafts if type(draft.body) is r.Intent]
    rolling = {body.scope for body in chain.bodies if type(body) is r.RollbackStarted}
    if not (begun and rolling):
        return
    parents = {body.scope: body.parent for body in chain.bodies if type(body) is r.ScopeOpened}
    for intent in begun:
        scope = intent.scope
        while scope not in rolling and scope != 0:
            scope = parents.get(scope, 0)
        if scope in rolling:
            raise judge.broken("INV-36", f"step {intent.step} begins in scope {intent.scope}, which rolls back")


# -- at rest -------------------------------------------------------------------------------------------------------


def check_facts(judge: Judge, image: Image, chain: Chain, view: SagaView) -> None:
    """A call that took effect, or may have, has spent what it took; what an ended saga asked is decided."""
    if judge.stage.purse is not None:
        spent = {fact.no for fact in image.facts if fact.kind == "spend" and fact.saga_id == view.id}
        for no, step in view.steps.items():
            if step.state.value != "absent" and no not in spent:
                raise judge.broken(
                    "INV-31", f"{step.tool} took effect, or may have, and its part of the purse was given back"
                )
    if not judge.stage.asks:
        return
    used = {body.approval for body in chain.bodies if type(body) is r.ApprovalConsumed and body.refused is None}
    for body in chain.bodies:
        if type(body) is r.ApprovalRequested and body.approval not in used and view.ended:
            words = words_on(image, chain, body.approval)
            if not words or words[-1].decision == "approved":
                raise judge.broken("INV-32", f"saga {view.id} has ended, and {body.approval} could still be used")


def check_record_of_end(judge: Judge, chain: Chain, report: RollbackReport) -> None:
    """What the last record of a rollback says of it is what its report says."""
    ends = [body for body in chain.bodies if type(body) is r.SagaEnded]
    last = ends and ends[-1] is chain.bodies[-1]  # What a compensation said that still ran is news.
    if last and not chain.current.amendments and ends[-1].clean != report.clean:
        raise judge.broken("INV-04", f"the end is recorded as clean={ends[-1].clean}, and is {report.clean}")


def check_row(judge: Judge, chain: Chain, view: SagaView, left: set[int]) -> None:
    """Lists and sweeps are told by the row: what needs a human, and when the next try is due."""
    human, waits = 0, []
    for no in left:
        facts = [body for body in chain.bodies if getattr(body, "step", None) == no]
        last = next((b for b in reversed(facts) if type(b) in _LAST_WORDS), None)
        failed = type(last) is r.CompensationOutcome and last.state == "failed"
        tried = sum(type(body) is r.CompensationIntent for body in facts)
        if failed and isinstance(last, r.CompensationOutcome) and last.next_at is not None:
            waits.append(last.next_at)
        elif type(last) is r.CompensationOutcome and last.state == "conflict":
            human += 1
        human += failed and tried >= MANY_ATTEMPTS
    if chain.current.amendments:
        return
    row = chain.row
    if row.human < human or (left and len(waits) == len(left) and row.human > human):
        raise judge.broken("INV-12", f"the row of {view.id} says that {row.human} steps need a human, not {human}")
    if len(waits) == len(left) and waits and row.due_at != min(waits):
        raise judge.broken("INV-12", f"the row of {view.id} is due at {row.due_at}, its first retry at {min(waits)}")


MANY_ATTEMPTS = 10
_LAST_WORDS = frozenset({r.CompensationIntent, r.CompensationOutcome, r.Probed})


# -- what is told --------------------------------------------------------------------------------------------------


def check_told(
    judge: Judge, saga: Saga, report: RollbackReport, *, left: BaseException | None, told: BaseException | None
) -> None:
    """The caller of a saga that rolled back, or of which something is left, is told so.

    Args:
        judge: who watches.
        saga: it has ended.
        report: what its user can read.
        left: what left the block.
        told: what leaves the scope.
    """
    if report.outcome != "rolled_back":
        return
    partial = bool(report.left) and not report.clean
    if left is None and saga.rollback_reason is None and not isinstance(told, SagaRolledBack):
        raise judge.broken("INV-30", f"saga {saga.id} rolled back by itself, and its caller was told {told!r}")
    if partial and (left is None or isinstance(left, Exception)) and not isinstance(told, RollbackIncomplete):
        raise judge.broken("INV-30", f"saga {saga.id} left {len(report.left)} effects, and its caller got {told!r}")
    if left is not None and told is left and not any(saga.id in note for note in getattr(left, "__notes__", ())):
        raise judge.broken("INV-30", f"{left!r} left saga {saga.id} without a word of its rollback")
    if left is None and saga.rollback_reason is None and _needless(judge, saga):
        raise judge.broken("INV-30", f"saga {saga.id} rolled back, and nothing had failed: {told}")


def _needless(judge: Judge, saga: Saga) -> bool:
    """Tell whether a saga whose program ended normally had no reason to roll back: all doubt could be settled."""
    chain = judge.stage.disk.image.chains.get(saga.id)
    if chain is None or judge.stage.answered or saga.live.open_scopes or judge.stage.resumed:
        return False
    if any(spec.act.startswith("late") for spec in judge.stage.specs.values()):
        return False
    if any(scope.outcome is None for scope in saga.live.view.scopes.values()):
        return False
    started = [body.pos for body in chain.bodies if type(body) is r.RollbackStarted][-1:]
    told = {body.step for body in chain.bodies if type(body) is r.Outcome and started and body.pos < started[0]}
    if set(saga.live.view.steps) - told:
        return False  # A call still ran.
    for body in chain.bodies:
        if type(body) is r.Outcome and body.tool is None and (body.state == "failed" or not body.bound):
            spec = judge.stage.specs[saga.live.view.steps[body.step].tool.removeprefix("tool.")]
            settled = body.state == "in_doubt" and spec.decl in SETTLED_BY_LOOK and spec.undo == "ok"
            direct = saga.live.view.steps[body.step].adapter is None
            if not direct or not (settled or body.state == "failed"):
                return False
    return True


def flaw_of_commit(bodies: tuple[r.AnyRecord, ...]) -> str | None:
    """Return what keeps a saga from committing all the same: a scope that is open, or a compensation that is lost."""
    ended = {body.scope for body in bodies if type(body) is r.ScopeEnded}
    scopes = [body.scope for body in bodies if type(body) is r.ScopeOpened and body.scope not in ended]
    if scopes:
        return f"scope {scopes[0]} in it had not ended"
    bound = {body.step for body in bodies if type(body) is r.Intent and body.recipe is not None}
    gone = {body.scope for body in bodies if type(body) is r.RollbackStarted}
    inside = {body.step for body in bodies if type(body) is r.Intent and body.scope in gone}
    for body in bodies:
        if type(body) is r.Outcome and body.state == "succeeded" and body.step in bound - inside and not body.bound:
            return f"step {body.step} stands without its compensation"
    return None


def unseen_failure(bodies: tuple[r.AnyRecord, ...]) -> int | None:
    """Return a failed call of an adapter that no later call of its tool made good, and that nobody waived."""
    intents = {body.step: body for body in bodies if type(body) is r.Intent and body.adapter is not None}
    outcomes = [body for body in bodies if type(body) is r.Outcome and body.step in intents]
    waived = {body.step for body in bodies if type(body) is r.Waived}
    for failed in outcomes:
        if failed.state != "failed" or failed.step in waived:
            continue
        tool = intents[failed.step].tool
        good = (o.step for o in outcomes if o.state == "succeeded" and intents[o.step].tool == tool)
        if not any(intents[no].pos > failed.pos for no in good):
            return failed.step
    return None


def unclaimed(bodies: tuple[r.AnyRecord, ...], kept: set[int]) -> int | None:
    """Return a step that stood when its saga was resumed, and that the program did not ask for again."""
    resumed = max((body.pos for body in bodies if type(body) is r.Claimed and body.purpose == "resume"), default=None)
    if resumed is None:
        return None
    touched = {getattr(body, "step", 0) for body in bodies if body.pos > resumed}
    return next((no for no in sorted(kept) if no not in touched), None)


def check_told_inner(judge: Judge, scope: Saga) -> None:
    """A nested scope that reports a clean rollback has left nothing of its steps and of the scopes in it."""
    report, view = scope.report, scope.live.view
    if report is None or not report.clean:
        return
    for step in view.steps.values():
        inside = step.scope
        while inside not in {scope.scope, 0}:
            inside = view.scopes[inside].parent
        item = step.tool.removeprefix("tool.")
        if inside == scope.scope and judge.stage.world.standing(item) and step.tool == tool_name(item):
            raise judge.broken("INV-04", f"a scope inside {view.id} is reported clean, and {item} stands")


def check_by_hand(judge: Judge) -> None:
    """After a human's words and a sweep, only what fails all the time is left; what is gone is gone."""
    image, stage = judge.stage.disk.image, judge.stage
    for saga_id, chain in image.chains.items():
        assert stage.process is not None
        loaded = load(stage.process.log, saga_id)
        if loaded is None or loaded.view.amends is not None:
            continue
        view = loaded.view
        fails = any(stage.specs[s.tool.removeprefix("tool.")].undo in STAYS for s in view.steps.values())
        if not chain.row.sealed and not fails:
            raise judge.broken("INV-35", f"saga {saga_id} is not sealed after a human settled its steps")
        report = report_of(view)
        accepted = {step.no for step in view.steps.values() if step.state.value == "accepted"}
        for item, no in evidence.steps_by_item(view).items():
            said_gone = no not in accepted and report.outcome == "rolled_back"
            if chain.row.sealed and said_gone and stage.world.standing(item):
                raise judge.broken("INV-35", f"saga {saga_id} is sealed, and {item} stands")
