"""What must hold after every commit, effect and compensation, and at rest: the only place where it is checked.

`INVARIANTS` says each of them in words (docs/guarantees.md is made from it); `Judge` checks them. The checks read the
records as they were written and the world's own ledger, and fold nothing themselves unless they say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.errors import CorruptLog
from agent_saga.machine.gate import facts_of as gate_facts
from agent_saga.machine.plan import leftovers
from agent_saga.machine.report import bucket_of, report_of
from agent_saga.model import records as r
from agent_saga.model.ids import compensation_key, step_id
from agent_saga.store.port import Committed, Refused
from agent_saga.store.reader import load
from agent_saga.testing.sim import damage, evidence, gate_invariants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.machine.view import SagaView, StepView
    from agent_saga.model.report import RollbackReport
    from agent_saga.runtime.current import CurrentStep
    from agent_saga.runtime.saga import Saga
    from agent_saga.store.port import Item, Verdict
    from agent_saga.testing.sim.disk import Chain, Image, SimLog
    from agent_saga.testing.sim.stage import Process, Stage

INVARIANTS: Final[dict[str, tuple[int, str]]] = {
    "INV-01": (1, "When an effect starts, an intent of its own is durable: it would survive a loss of power."),
    "INV-02": (3, "When a compensation starts, an attempt of its own is durable, and no outcome follows it yet."),
    "INV-03": (
        2,
        (
            "Each effect of an ended saga is in exactly one bucket, and it is the bucket that the world agrees "
            "with: compensated does not stand, kept stands."
        ),
    ),
    "INV-04": (
        2,
        "A report is clean only when nothing of the saga stands, and verified only when read-backs say so.",
    ),
    "INV-05": (3, "Once the success of a compensation is durable, it does not run again."),
    "INV-06": (
        3,
        "A compensation that is not safe to repeat, or not safe without an effect, runs only while the effect stands.",
    ),
    "INV-07": (3, "All attempts of a step carry one key, in every process, and no two steps share one."),
    "INV-08": (3, "All attempts of a compensation carry one key, in every process; a later landing gets the next one."),
    "INV-09": (
        4,
        "A saga whose owner lives is never claimed or amended by another process, but for words on its approvals.",
    ),
    "INV-10": (
        4,
        "An owner that was replaced appends nothing, and starts no effect or compensation that was not durable before.",
    ),
    "INV-11": (
        6,
        "Every image of the log that a crash can leave loads: chains, payloads, and each row equals its fold.",
    ),
    "INV-12": (
        4,
        "Recovery ends every saga without a living owner; what is left was tried, and fails or needs a human.",
    ),
    "INV-13": (4, "Running recovery again changes neither the log nor the world."),
    "INV-14": (2, "Within one pass, compensations start in reverse order of the intents they offset."),
    "INV-15": (2, "A step in doubt is absent only when a record says why, and then no effect of it stands."),
    "INV-16": (
        2,
        (
            "An answer that comes too late is recorded while the log can be written, and what it says has landed "
            "is compensated or named."
        ),
    ),
    "INV-17": (
        2,
        (
            "A committed saga keeps all its effects: none is compensated, none was in doubt or without its "
            "compensation when it ended, and its scopes had ended."
        ),
    ),
    "INV-18": (2, "What a caller is told about the end of a saga is durable, and is what a reader of the log finds."),
    "INV-19": (5, "A refused call has a record of the refusal, no intent and no effect."),
    "INV-20": (
        3,
        "After a failed commit, no effect and no compensation starts in that process but what was durable before.",
    ),
    "INV-21": (2, "A repeat of a call in doubt never makes a second effect."),
    "INV-22": (6, "Damage of any record or row stops the reader, or changes nothing that it shows."),
    "INV-23": (7, "Reading a log, loading and reporting, runs no tool, compensator, probe or verifier."),
    "INV-24": (2, "A sealed saga takes no more records, and no saga with work left is sealed."),
    "INV-25": (2, "The engine itself reports no broken invariant, and raises nothing but its documented errors."),
    "INV-26": (
        2,
        "A saga does not commit over a failed call that an adapter turned into text, unless it was repaired.",
    ),
    "INV-27": (4, "A suspended saga is left alone until its time to live is over, and is rolled back then."),
    "INV-28": (2, "A resumed program is given what stands: no effect happens twice, and nothing is left unclaimed."),
    "INV-29": (2, "A call that still runs in a process is not compensated by that process."),
    "INV-30": (
        2,
        "Whoever ends a scope is told: of a rollback that was not asked for, and of each effect that it left.",
    ),
    "INV-31": (5, "A budget is not overspent, and what took effect, or may have, is not given back to it."),
    "INV-32": (
        5,
        "A call that needs an approval starts with one of its own, given before it expired and used up by its intent.",
    ),
    "INV-33": (5, "A resource is held by one saga at a time, from an intent until the saga is sealed."),
    "INV-34": (4, "A quarantined saga stays as it is until that is lifted, and is finished then."),
    "INV-35": (2, "A human's word settles its step, and the saga is sealed when nothing else is left."),
    "INV-36": (2, "No step begins in a scope that rolls back, or in one around which the saga does."),
}
"""Id -> the promise of DESIGN 2 that it is a part of, and what it says."""

_SAFE_ALWAYS: Final = frozenset({"idem", "absent", "slow", "farslow"})
DAMAGE_EVERY: Final = 29
"""The reader is shown a damaged log after every so many runs."""


class Violation(BaseException):
    """An invariant does not hold. Not an `Exception`, so that no handler of the engine takes it for a tool's error."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant, self.message = invariant, message


class Judge:
    """Watches one stage. Its methods are called at the moments that their names say.

    Attributes:
        reading: a reader is at work: nothing may be executed.
        first: the first violation.
        rests: how often everything was at rest.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.reading = False
        self.first: Violation | None = None
        self.rests = 0

    def broken(self, invariant: str, message: str) -> Violation:
        """Return a violation to raise: the first one, for what breaks on the way out is its consequence."""
        if self.first is None:
            self.stage.note(f"!! {invariant}: {message}")
            self.first = Violation(invariant, message)
        return self.first

    # -- while it runs ------------------------------------------------------------------------------------------

    def _acts(self, what: str) -> None:
        process = self.stage.process
        if self.reading:
            raise self.broken("INV-23", f"{what} was run by a reader")
        if process is None or process.log.dead:
            raise self.broken("INV-25", f"{what} was run by nobody")

    def _overtaken(self, chain: Chain) -> bool:
        process = self.stage.process
        return process is not None and chain.current.owner != process.token

    def _was_durable(self, record: r.AnyRecord, what: str) -> None:
        """In a process whose log has failed, only what was durable before may still be on its way."""
        process = self.stage.process
        if process is not None and process.log.failed and record.pos > process.log.failed_at:
            raise self.broken("INV-20", f"{what} starts in {process.token}, whose log has failed")

    def asked(self, what: str) -> None:
        """A probe or a verifier runs."""
        if self.reading:
            raise self.broken("INV-23", f"{what} was run by a reader")

    def effect_starts(self, item: str, key: str, step: CurrentStep | None) -> None:
        """A tool's effect is about to happen."""
        self._acts(f"the effect of {item}")
        disk, starts = self.stage.disk, self.stage.world.tries.get(("act", item), 0)
        known = evidence.facts_of(disk.durable, item)
        intents = [] if known is None else [fact for fact in known.facts if type(fact) is r.Intent]
        if step is None or known is None or step.step_id.rpartition(":")[2] != str(known.no):
            raise self.broken("INV-01", f"the effect of {item} starts and no intent of it is durable")
        self._was_durable(intents[-1], f"the effect of {item}")
        total = len(evidence.intents(disk.durable, item))
        if total <= starts:
            raise self.broken("INV-01", f"the effect of {item} starts for the {starts + 1}. time on {total} intents")
        if key and key != intents[0].key:
            raise self.broken("INV-07", f"{item} was given key {key}, its first attempt has {intents[0].key}")
        gate_invariants.check_start(self, item, known.chain.current.saga_id, known.no)

    def compensation_starts(self, item: str, key: str) -> None:
        """A compensator is about to act."""
        self._acts(f"the compensation of {item}")
        world, spec = self.stage.world, self.stage.specs[item]
        known = evidence.facts_of(self.stage.disk.durable, item, attempted=True)
        facts = () if known is None else known.facts
        attempts = [fact for fact in facts if type(fact) is r.CompensationIntent]
        if attempts and known is not None and self._overtaken(known.chain):
            return  # Not promised: it was past its attempt when it was replaced. The key tells the remote.
        if not attempts or (type(facts[-1]) is not r.CompensationIntent and not evidence.superseded(facts)):
            raise self.broken("INV-02", f"the compensation of {item} starts and no attempt of it is durable")
        self._was_durable(attempts[-1], f"the compensation of {item}")
        if evidence.attempts(self.stage.disk.durable, item) <= world.tries.get(("undo", item), 0):
            raise self.broken("INV-02", f"the compensation of {item} starts more often than attempts are durable")
        if key and key != attempts[-1].key:
            raise self.broken(
                "INV-08", f"the compensation of {item} was given {key}, its attempt has {attempts[-1].key}"
            )
        if evidence.done(facts, attempts[-1].generation):
            raise self.broken("INV-05", f"the compensation of {item} runs again after its success was durable")
        running = self.stage.process.pending if self.stage.process is not None else []
        if any(call.item == item for call in running):
            raise self.broken("INV-29", f"the compensation of {item} starts while its call still runs here")
        unsafe = spec.decl not in _SAFE_ALWAYS and not (key and key in world.keys)
        if unsafe and not world.standing(item):
            raise self.broken("INV-06", f"the compensation of {item} ({spec.decl}) runs and no effect of it stands")
        assert known is not None
        if known.chain.row.state == "committed" and not evidence.may_go(known):
            raise self.broken("INV-17", f"the saga of {item} has committed, and its effect is compensated")

    def committed(self, log: SimLog, before: Image, items: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
        """A commit changed the log."""
        for item, verdict in zip(items, verdicts, strict=True):
            if not isinstance(verdict, Committed | Refused):
                continue
            chain = before.chains.get(item.saga_id)
            if chain is not None:
                self._appended(log, chain, item)
            if item.amended is not None and item.amended.saga_id in before.chains:
                self._amended(log, before.chains[item.amended.saga_id], item)
        gate_invariants.check_purse(self, self.stage.disk.image)

    def _appended(self, log: SimLog, chain: Chain, item: Item) -> None:
        owner, disk = chain.current.owner, self.stage.disk
        claims = isinstance(item.drafts[0].body, r.Claimed)
        if claims and owner not in {None, log.token} and disk.lives(owner or "", self.stage.clock.now_ns):
            raise self.broken("INV-09", f"{log.token} claims a saga of {owner}, which lives")
        if claims and item.epoch != chain.current.epoch + 1:
            raise self.broken("INV-10", f"{log.token} claims under epoch {item.epoch} a saga at {chain.current.epoch}")
        if not claims and (item.epoch < chain.current.epoch or owner not in {None, log.token}):
            raise self.broken("INV-10", f"{log.token} appends under epoch {item.epoch} to a saga of {owner}")
        if chain.current.leaf is not None:
            raise self.broken("INV-24", f"sealed saga {item.saga_id} got a record")
        gate_invariants.check_beginnings(self, chain, item)

    def _amended(self, log: SimLog, target: Chain, item: Item) -> None:
        owner = target.current.owner
        words = {type(draft.body) for draft in item.drafts} <= {r.SagaOpened, r.ApprovalDecided, r.SagaEnded}
        if not words and owner not in {None, log.token} and self.stage.disk.lives(owner or "", self.stage.clock.now_ns):
            raise self.broken("INV-09", f"{log.token} amends a saga of {owner}, which lives")

    def told(self, saga: Saga, *, left: BaseException | None, told: BaseException | None) -> None:
        """The caller is told how the saga ended; `left` left the block, and `told` leaves the scope."""
        report, live = saga.report, saga.live
        if report is None or saga.scope or live.writer.failed is not None or live.replaced:
            return
        gate_invariants.check_told(self, saga, report, left=left, told=told)
        chain = self.stage.disk.durable.chains.get(live.id)
        bodies = () if chain is None else chain.bodies
        if not any(type(body) in {r.SagaEnded, r.Suspended} for body in bodies):
            if any(type(body) is r.Intent for body in evidence.live_bodies(self.stage.disk.image, live.id)):
                raise self.broken("INV-18", f"{report.outcome} was reported, and a loss of power would take it back")
            return
        ended = min((body.n for body in bodies if type(body) is r.SagaEnded), default=len(bodies))
        late = any(type(body) is r.LateOutcome and body.n > ended for body in bodies)
        if late or (chain is not None and chain.current.amendments):
            return  # A late answer came between the end and the word to the caller: it is an amendment.
        for step in report.failed:
            if not step.attempts:
                raise self.broken("INV-12", f"{step.step_id} is left standing, and its compensation was never tried")
        if report.outcome == "committed":
            self._check_commit(bodies, report)
        found = self._read(live.id)
        if found is not None and not evidence.same(report_of(found), report):
            raise self.broken(
                "INV-18",
                f"the caller was told {evidence.shape(report)}, a reader finds {evidence.shape(report_of(found))}",
            )

    def _check_commit(self, bodies: tuple[r.AnyRecord, ...], report: RollbackReport) -> None:
        """What ends committed has nothing in doubt, no failure that nobody saw, and all that stands is claimed."""
        if report.in_doubt:
            raise self.broken("INV-17", f"a saga committed with {report.in_doubt[0].step_id} in doubt")
        flaw = gate_invariants.flaw_of_commit(bodies)
        if flaw is not None:
            raise self.broken("INV-17", f"a saga committed, and {flaw}")
        unseen = gate_invariants.unseen_failure(bodies)
        if unseen is not None:
            raise self.broken("INV-26", f"a saga committed over the failure of step {unseen}, which nobody saw")
        unclaimed = gate_invariants.unclaimed(bodies, {int(step.step_id.rpartition(":")[2]) for step in report.kept})
        if unclaimed is not None:
            raise self.broken("INV-28", f"a resumed saga committed, and its program did not claim step {unclaimed}")

    def told_inner(self, scope: Saga) -> None:
        """The caller of a nested scope is told how it ended."""
        if scope.live.writer.failed is None and not self.stage.answered:
            gate_invariants.check_told_inner(self, scope)

    def by_hand(self) -> None:
        """A human has settled what only humans can, and recovery has gone on."""
        gate_invariants.check_by_hand(self)

    def program_ended(self, process: Process) -> None:
        """A program has ended, and its process lives: what was told it late it has dealt with."""
        image = self.stage.disk.image
        if process.log.failed or process.log.dead:
            return
        for chain in image.chains.values():
            if chain.current.amends is not None and chain.current.owner == process.token:
                raise self.broken("INV-16", f"{process.token} has left its amendment {chain.current.saga_id} open")
        for item, answered in self.stage.answered:
            if answered is not process:
                continue
            for saga_id, no in set(evidence.intents(image, item)):
                chain = image.chains[saga_id]
                ends = [body.pos for body in chain.bodies if type(body) is r.SagaEnded]
                facts = evidence.about(image, chain, no)
                news = evidence.first_landing(facts)
                if type(news) is not r.LateOutcome or not ends or news.pos < ends[0]:
                    continue
                tried = any(type(fact) is r.CompensationIntent and fact.pos > news.pos for fact in facts)
                if not tried and self.stage.specs[item].decl not in {"final", "unbound"}:
                    raise self.broken("INV-16", f"{item} landed after the end of its saga, and was not compensated")

    def warned(self, message: str) -> None:
        """The engine warns that a late answer was not recorded."""
        process = self.stage.process
        if process is not None and process.writer.failed is None and not process.log.dead:
            raise self.broken("INV-16", message)

    # -- at rest ------------------------------------------------------------------------------------------------

    def _read(self, saga_id: str) -> SagaView | None:
        assert self.stage.process is not None
        self.reading = True
        try:
            loaded = load(self.stage.process.log, saga_id)
        except CorruptLog as error:
            raise self.broken("INV-11", str(error)) from error
        finally:
            self.reading = False
        return None if loaded is None else loaded.view

    def at_rest(self) -> None:
        """Every process has ended, and recovery has done what it could."""
        self.rests += 1
        image = self.stage.disk.image
        self._check_events()
        self._check_answers()
        for saga_id, chain in image.chains.items():
            view = self._read(saga_id)
            assert view is not None
            if view.amends is None:
                self._check_saga(image, chain, view)
            elif not view.ended:
                raise self.broken("INV-12", f"saga {saga_id}, which amends {view.amends}, is open after recovery")
        if self.rests % DAMAGE_EVERY == 0 and image.chains:
            what = damage.unnoticed(image, self.rests // DAMAGE_EVERY)
            if what is not None:
                raise self.broken("INV-22", what)

    def _check_answers(self) -> None:
        """A late answer that came to a process whose log can be written is in the log."""
        for item, process in self.stage.answered:
            image = self.stage.disk.image
            if process.log.failed or process.log.dead:
                continue
            facts = [
                fact
                for saga_id, no in evidence.intents(image, item)
                for fact in evidence.about(image, image.chains[saga_id], no)
            ]
            late = {fact.state for fact in facts if type(fact) is r.LateOutcome}
            landed = self.stage.specs[item].act == "late+"
            if ("succeeded" not in late) if landed else not late:
                raise self.broken("INV-16", f"the late answer of {item} came, and the log does not have it")

    def _check_events(self) -> None:
        standing: dict[str, int] = {}
        for kind, item, _ in self.stage.world.events:
            standing[item] = standing.get(item, 0) + {"effect": 1, "undo": -1}.get(kind, 0)
            if standing[item] > 1:
                raise self.broken("INV-28" if self.stage.resumed else "INV-21", f"{item} stands twice")
        image = self.stage.disk.image
        for item in standing:
            if evidence.facts_of(image, item) is None:
                raise self.broken("INV-15", f"{item} happened, and the log does not know of it")

    def _check_saga(self, image: Image, chain: Chain, view: SagaView) -> None:
        if not view.ended or view.owner is not None:
            raise self.broken("INV-12", f"saga {view.id} is {view.state.value}, owned by {view.owner}, after recovery")
        self.reading = True
        report = report_of(view)
        self.reading = False
        facts = frozenset(fact for fact in image.facts if fact.saga_id == view.id)
        if facts != gate_facts(view, sealed=chain.row.sealed):
            raise self.broken("INV-11", f"the facts of saga {view.id} differ from its records: {facts}")
        items = evidence.steps_by_item(view)
        stands = [item for item in items if self.stage.world.standing(item)]
        for item, no in items.items():
            self._check_step(view, view.steps[no], item, stands=item in stands, facts=evidence.about(image, chain, no))
        gate_invariants.check_facts(self, image, chain, view)
        gate_invariants.check_record_of_end(self, chain, report)
        gate_invariants.check_row(self, chain, view, {step.no for step in leftovers(view)})
        if report.clean and stands:
            raise self.broken("INV-04", f"saga {view.id} is reported clean, and {', '.join(stands)} stands")
        if report.verified and not evidence.confirmed(image, chain):
            raise self.broken("INV-04", f"saga {view.id} is reported verified, and no read-back confirms it")
        self._check_keys(image, chain)
        self._check_order(chain)
        refused = {body.tool for body in chain.bodies if type(body) is r.Decided and body.decision == "refuse"}
        if refused & {body.tool for body in chain.bodies if type(body) is r.Intent}:
            raise self.broken("INV-19", f"{', '.join(refused)} was refused and has an intent")
        left = any(step.state.value in {"in_doubt", "compensating"} for step in view.steps.values())
        if chain.current.leaf is not None and left and not chain.current.amendments:
            raise self.broken("INV-24", f"saga {view.id} is sealed with a step in doubt")

    def _check_step(
        self, view: SagaView, step: StepView, item: str, *, stands: bool, facts: tuple[r.AnyRecord, ...]
    ) -> None:
        bucket = bucket_of(view, step)
        spec = self.stage.specs[item]
        if bucket is None:
            if not any(evidence.says_absent(fact) for fact in facts):
                raise self.broken("INV-15", f"{item} counts as absent, and no record says why")
            if stands:
                raise self.broken("INV-15", f"{item} counts as absent ({step.error_type}), and stands")
        if bucket == "kept" and view.state.value == "rolled_back" and step.settled_by is None:
            raise self.broken("INV-03", f"{item} is kept by a saga that rolled back")
        told_ok = any(type(fact) is r.Outcome and fact.state == "succeeded" for fact in facts)
        gone = bucket == "compensated" and view.state.value == "committed" and not view.rolled_back(step)
        if gone and told_ok:
            raise self.broken("INV-17", f"{item} succeeded in a saga that committed, and is compensated")
        if (bucket == "compensated" and stands) or (bucket == "kept" and not stands):
            raise self.broken("INV-03", f"{item} is {bucket}, and {'stands' if stands else 'does not stand'}")
        if bucket == "failed" and spec.undo == "conflict":
            raise self.broken("INV-03", f"{item} is reported failed, and its compensator raised a conflict")
        looked = spec.decl in {"look", "keylook"} and not spec.undo.startswith("deaf") and step.settled_by is None
        if bucket == "compensated" and looked and step.verified is not True:
            raise self.broken("INV-04", f"{item} ({spec}) is compensated, and nobody read it back")
        left = bucket in {"in_doubt", "failed", "conflicted", "orphaned"}
        if left and not evidence.may_stay(spec.decl, spec.undo, facts, stands=stands):
            raise self.broken("INV-12", f"{item} ({spec}) is left {bucket}, and recovery could have settled it")

    def _check_keys(self, image: Image, chain: Chain) -> None:
        saga_id = chain.current.saga_id
        bodies = [*chain.bodies, *(b for o in image.amending.get(saga_id, ()) for b in image.chains[o].bodies)]
        for body in bodies:
            if type(body) is r.Intent and body.key != step_id(saga_id, body.step):
                raise self.broken("INV-07", f"step {body.step}, attempt {body.attempt} has key {body.key}")
            if type(body) is r.CompensationIntent and body.key != compensation_key(saga_id, body.step, body.generation):
                raise self.broken("INV-08", f"step {body.step}, compensation attempt {body.attempt} has key {body.key}")

    def _check_order(self, chain: Chain) -> None:
        """A later step may follow an earlier one only when something new was said about it in between.

        Another attempt of a step that was tried in this pass may come at any time.
        """
        news: dict[int, int] = {}
        lowest: tuple[int, int] | None = None
        tried: set[int] = set()
        for body in chain.bodies:
            if type(body) in {r.Claimed, r.RollbackStarted}:  # What was settled before is no part of the pass.
                lowest, tried = None, set()
            elif isinstance(body, r.Intent | r.Outcome | r.LateOutcome | r.Probed):
                news[body.step] = body.n
            elif type(body) is r.CompensationIntent and body.step not in tried:
                tried.add(body.step)
                if lowest is not None and body.step > lowest[0] and news.get(body.step, 0) < lowest[1]:
                    raise self.broken("INV-14", f"step {body.step} is compensated after step {lowest[0]}")
                if lowest is None or body.step < lowest[0]:
                    lowest = body.step, body.n
