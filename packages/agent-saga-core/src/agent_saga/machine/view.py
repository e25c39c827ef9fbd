"""What is known of a saga: the value that the fold builds up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from agent_saga.machine.states import ENDED, SagaState, StepState
from agent_saga.model.effects import Effect
from agent_saga.model.ids import step_id
from agent_saga.model.values import canonical_text

if TYPE_CHECKING:
    from agent_saga.machine.gate import GateView
    from agent_saga.model.records import Recipe


class StepView(msgspec.Struct, kw_only=True, gc=False):
    """What is known of one step. Values are texts as stored (`agent_saga.model.values`).

    A struct, because one is made for each step: a dataclass of so many fields costs a tenth of an engine step.

    Attributes:
        no: number within the saga; the order of intents.
        kwargs: arguments by name.
        result: what the call returned, or None while that is unknown.
        exact: the result can be replayed.
        compensation: the bound compensation's kwargs, or None while it is not bound.
        landed: the effect is known to have happened at some time.
        assumed: that there was no effect is the public table's judgement, not knowledge.
        doubtful: an attempt before the last one is in doubt; that the last one failed does not settle it.
        unwanted: its landing became known after its saga had ended without it.
        answered: the caller of the step, or of a later equal call, got a definite answer.
        intent_n, outcome_n: the records that said so, for what came before what.
        generation: of the compensation's key; it grows with each landing that became known afterwards.
        verified: what the read-back after the compensation said.
        lost_at: the first claim after its last attempt: since then at the latest, whoever made the call is gone.
        next_at: sweeps leave the step alone until then (its compensation failed, or its probe could not tell).
        unknowable: how often its probe could not tell.
    """

    saga_id: str
    no: int
    tool: str
    version: int = 1
    effect: str = Effect.COMPENSABLE
    scope: int = 0
    state: StepState = StepState.IN_DOUBT
    key: str = ""
    attempt: int = 1
    recipe: Recipe | None = None
    probe: str | None = None
    settle_s: float = 0.0
    takes_key: bool = False
    identity_names: list[str] | None = None
    no_identity: bool = False
    adapter: str | None = None
    call_id: str | None = None
    call_scope: str | None = None
    framework_attempt: int = 0
    resolves: str | None = None
    kwargs: dict[str, str] = {}
    result: str | None = None
    exact: bool = True
    partial: bool = False
    error: str | None = None
    error_type: str | None = None
    compensation: dict[str, str] | None = None
    landed: bool = False
    assumed: bool = False
    doubtful: bool = False
    answered: bool = False
    waived: bool = False
    unwanted: bool = False
    replayed: int = 0
    intent_n: int = 0
    intent_at: int = 0
    outcome_n: int = 0
    outcome_at: int = 0
    lost_at: int = 0
    generation: int = 1
    compensation_attempts: int = 0
    compensation_at: int = 0
    verified: bool | None = None
    next_at: int | None = None
    unknowable: int = 0
    reason: str = ""
    settled_by: str | None = None

    @property
    def id(self) -> str:
        """The step's id."""
        return step_id(self.saga_id, self.no)

    @property
    def read_only(self) -> bool:
        """Whether the call has no effect."""
        return self.effect == Effect.READ_ONLY

    @property
    def identity(self) -> bytes | None:
        """Digest of tool and canonical arguments, or None for a call without one."""
        if self.no_identity:
            return None
        names = self.kwargs if self.identity_names is None else self.identity_names
        if any(name not in self.kwargs for name in names):
            return None
        return identity_of(self.tool, {name: canonical_text(self.kwargs[name]) for name in names})

    @property
    def bindable_from_intent(self) -> bool:
        """Whether the compensation needs nothing from the result, and may run although there may be no effect."""
        recipe = self.recipe
        if recipe is None or not recipe.safe_if_absent or recipe.bind is None:
            return False
        return not any(path == "result" or path.startswith("result.") for path in recipe.bind.values())


def identity_of(tool: str, canonical: dict[str, str]) -> bytes:
    """Return the identity of a call: SHA-256 over the tool's name and its canonical arguments, sorted by name."""
    parts = [tool]
    for name in sorted(canonical):
        parts += (name, canonical[name])
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True, kw_only=True)
class ScopeView:
    """What is known of a nested scope (a savepoint)."""

    no: int
    parent: int
    name: str
    tags: list[str] = field(default_factory=list)
    outcome: str | None = None


class SagaView(msgspec.Struct, kw_only=True):
    """What is known of a saga.

    Attributes:
        owner: the process that may append now, or None.
        count: number of records folded, of the chain itself.
        amended: number of records of amendments folded.
        cause: why it rolled back.
        gate: approvals, reservations, resources; None while there are none.
    """

    id: str
    name: str = ""
    key: str | None = None
    incarnation: int = 1
    state: SagaState = SagaState.OPEN
    owner: str | None = None
    epoch: int = 1
    on_crash: str = "roll_back"
    on_divergence: str = "roll_back"
    deadline_at: int | None = None
    suspend_ttl_s: float | None = None
    rollback_timeout_s: float | None = None
    tags: list[str] = []
    amends: str | None = None
    by: str | None = None
    opened_at: int = 0
    changed_at: int = 0
    ended_at: int | None = None
    expires_at: int | None = None
    released_until: int | None = None
    cause: str = ""
    steps: dict[int, StepView] = {}
    scopes: dict[int, ScopeView] = {}
    rolling: set[int] = set()
    gate: GateView | None = None
    decisions: int = 0
    count: int = 0
    amended: int = 0

    @property
    def ended(self) -> bool:
        """Whether the saga has ended (it may still have work items)."""
        return self.state in ENDED

    def within(self, scope: int) -> list[StepView]:
        """Return the steps of a scope and of the scopes nested in it, in order of intent."""
        if scope == 0:
            return list(self.steps.values())
        return [step for step in self.steps.values() if self.is_within(step.scope, scope)]

    def is_within(self, inner: int, outer: int) -> bool:
        """Tell whether scope `inner` is `outer` or nested in it."""
        while inner not in {outer, 0}:
            inner = self.scopes[inner].parent
        return inner == outer

    def rolled_back(self, step: StepView) -> bool:
        """Tell whether the step's effect must go: its scope rolls or rolled back, or the saga ended without it."""
        return step.unwanted or self.is_rolling(step.scope)

    def tags_of(self, scope: int) -> tuple[str, ...]:
        """Return the tags of a scope: those of the saga and of the scopes around it, and its own."""
        tags: list[str] = []
        while scope:
            tags[:0] = self.scopes[scope].tags
            scope = self.scopes[scope].parent
        return tuple(dict.fromkeys((*self.tags, *tags)))

    def is_rolling(self, scope: int) -> bool:
        """Tell whether a scope, or one around it, rolls or rolled back."""
        while scope not in self.rolling and scope != 0:
            scope = self.scopes[scope].parent
        return scope in self.rolling
