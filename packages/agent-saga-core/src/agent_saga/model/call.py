"""A call that wants to run, and the rules that decide about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from agent_saga.model.effects import Decision, Effect
    from agent_saga.model.report import StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCall:
    """A call that wants to run, as policies and approvers see it.

    Attributes:
        tool: the declared name.
        kwargs: the effective arguments by name.
        effect: the effect class.
        version: the tool's version.
        adapter: the framework that makes the call, or None for Python.
        repeats: an equal call of this saga stands already.
        compensator: the registered name of what would compensate it, or None.
        valid_for_s: how long after the effect that works; None for ever.
        lives_in: the place where the compensation lives, or None.
        redact: the arguments whose values must not leave the process, nor be in the reason of a decision.
    """

    tool: str
    kwargs: Mapping[str, Any]
    effect: Effect
    version: int = 1
    adapter: str | None = None
    repeats: bool = False
    compensator: str | None = None
    valid_for_s: float | None = None
    lives_in: str | None = None
    redact: tuple[str, ...] = ()


class SagaFacts(Protocol):
    """What a policy may know about the saga of a call."""

    @property
    def id(self) -> str:
        """The saga's id."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags; in a nested scope also those of the scope."""

    def steps(self, after: int = 0) -> tuple[StepReport, ...]:
        """Return its effectful steps so far but the first `after`, in order; `state` says where each stands."""

    def step(self, step_id: str) -> StepReport:
        """Return one step as it stands now."""

    def places(self) -> tuple[tuple[str, StepReport], ...]:
        """Return where compensations live that may still be needed, each place with the newest step needing it."""


class Policy(Protocol):
    """A rule: decides about a call before its effect. Sync or async; an exception refuses.

    A sync policy that may take long states an attribute `decide_within_s`: it runs in a thread of its own, and is
    refused after that time.
    """

    def decide(self, call: ProposedCall, saga: SagaFacts) -> Decision | Awaitable[Decision]:
        """Return `Allow()`, `Refuse(reason)` or `Ask(reason)`.

        It must not change anything: it may be asked again for the same call (after a pause, or in a preview).
        """
