"""Policies made of policies. The gate itself asks all policies of a kit in order, so a list needs none of these."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent_saga.errors import DeclarationError
from agent_saga.gates.bounds import Amount, as_tuple, limit
from agent_saga.gates.reading import Reading
from agent_saga.gates.rule import ALLOW, EVERY, Rule, prepare
from agent_saga.gates.values import Unreadable, total_of
from agent_saga.model.effects import Allow, Ask, Decision, Effect, Refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator
    from decimal import Decimal

    from agent_saga.model.call import Policy, ProposedCall, SagaFacts
    from agent_saga.model.requirements import Requirement

    Steps = Generator[Awaitable[Any], Any, Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class When(Rule):
    """Asks another policy only about the calls that meet all conditions. Made by `when`."""

    policy: Policy
    tool: str | tuple[str, ...] = EVERY
    effect: str | Effect | None = None
    tag: str | None = None
    argument: str | None = None
    at_least: Amount | None = None
    unit: str | None = None
    allowed_units: tuple[str, ...] = ()
    unit_argument: str | None = None
    reading: Reading | None = field(init=False, repr=False, compare=False)
    least: Decimal | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        _check_policies((self.policy,), "when")
        if (self.argument is None) is not (self.at_least is None):
            raise DeclarationError(
                "when: argument and at_least belong together, as in argument='amount', at_least=1000"
            )
        if self.tag is not None and not isinstance(self.tag, str):
            raise DeclarationError(f"when: tag must be a text; it is {self.tag!r}")
        reading, least = None, None
        if self.argument is not None:
            least = limit(self.at_least, "when: at_least")
            reading = Reading(
                argument=self.argument,
                unit=self.unit,
                allowed_units=as_tuple(self.allowed_units),
                unit_argument=self.unit_argument,
                negative=least < 0,
            )
            least = reading.base(least)
        elif self.unit is not None or self.unit_argument is not None:
            raise DeclarationError("when: unit needs argument= and at_least=")
        effect = None if self.effect is None else _effect(self.effect)
        prepare(self, effect=effect, reading=reading, least=least)

    def applies(self, call: ProposedCall, saga: SagaFacts) -> bool:
        """See Rule.applies. An amount that cannot be read applies: the rule then refuses the call."""
        inner = getattr(self.policy, "applies", None)
        if not Rule.applies(self, call, saga) or not self._fits(call, saga) or (inner and not inner(call, saga)):
            return False
        try:
            return self._is_enough(call)
        except Unreadable:
            return True

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision | Awaitable[Decision]:
        """See Rule.judge."""
        return self.policy.decide(call, saga) if self._fits(call, saga) and self._is_enough(call) else ALLOW

    def _fits(self, call: ProposedCall, saga: SagaFacts) -> bool:
        if self.effect is not None and call.effect is not self.effect:
            return False
        return self.tag is None or self.tag in saga.tags

    def _is_enough(self, call: ProposedCall) -> bool:
        """Tell whether an amount of the call, or their sum, is as large as the condition says."""
        if self.reading is None or self.least is None:
            return True
        amounts = self.reading.read(call.kwargs)
        return max(*amounts, total_of(amounts)) >= self.least


def when(policy: Policy, **conditions: Any) -> When:
    """Return a policy that asks another one only about the calls that meet all conditions; it allows the others.

    Args:
        policy: the other policy.
        conditions: `tool` (names or shell patterns), `effect`, `tag` (of the saga), `argument` and `at_least` (an
            amount, or their sum, as in `Bounds`; with `unit`, `allowed_units`, `unit_argument`).

    Raises:
        DeclarationError: the conditions cannot work.
    """
    return When(policy=policy, **conditions)


def _effect(effect: str | Effect) -> Effect:
    try:
        return Effect(effect)
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in Effect)
        raise DeclarationError(f"when: effect {effect!r} is none of {choices}") from None


class _Composed:
    """A policy that asks others, one after the other."""

    __slots__ = ()

    def decide(self, call: ProposedCall, saga: SagaFacts) -> Decision | Awaitable[Decision]:
        """See Policy.decide."""
        steps = self._steps(call, saga)
        try:
            pending = steps.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        return _finish(steps, pending)

    def _steps(self, call: ProposedCall, saga: SagaFacts) -> Steps:
        """Ask the policies; yields what has to be awaited."""
        raise NotImplementedError


async def _finish(steps: Steps, pending: Awaitable[Any]) -> Decision:
    while True:
        try:
            pending = steps.send(await pending)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _ask(policy: Policy, call: ProposedCall, saga: SagaFacts) -> Steps:
    """Ask one policy; what is no decision refuses."""
    decision: Any = policy.decide(call, saga)
    if inspect.isawaitable(decision):
        decision = yield decision
    if isinstance(decision, Allow | Refuse | Ask):
        return decision
    return Refuse(f"{type(policy).__name__} returned {decision!r}, which is no decision")


@dataclass(frozen=True, slots=True)
class FirstOf(_Composed):
    """The first policy that is about a call decides alone. Made by `first_of`."""

    policies: tuple[Policy, ...]
    otherwise: str = "refuse"

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        _check_policies(self.policies, "first_of")
        if self.otherwise not in {"refuse", "ask", "allow"}:
            raise DeclarationError(f"first_of: otherwise must be 'refuse', 'ask' or 'allow'; it is {self.otherwise!r}")

    def _steps(self, call: ProposedCall, saga: SagaFacts) -> Steps:
        for policy in self.policies:
            applies = getattr(policy, "applies", None)
            if applies is None or applies(call, saga):
                return (yield from _ask(policy, call, saga))
        if self.otherwise == "allow":
            return ALLOW
        reason = f"no rule is about {call.tool}"
        return Ask(reason) if self.otherwise == "ask" else Refuse(reason)


@dataclass(frozen=True, slots=True)
class AllOf(_Composed):
    """Every policy must let a call pass. Made by `all_of`."""

    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        _check_policies(self.policies, "all_of")

    def applies(self, call: ProposedCall, saga: SagaFacts) -> bool:
        """Tell whether one of the policies is about the call, for `first_of`."""
        known = (getattr(policy, "applies", None) for policy in self.policies)
        return any(applies is None or applies(call, saga) for applies in known)

    def _steps(self, call: ProposedCall, saga: SagaFacts) -> Steps:
        requires: list[Requirement] = []
        questions: list[Ask] = []
        for policy in self.policies:
            decision = yield from _ask(policy, call, saga)
            if isinstance(decision, Refuse):
                return decision
            requires += decision.requires
            if isinstance(decision, Ask):
                questions.append(decision)
        if questions:
            return replace(_merged(questions), requires=tuple(requires))  # INVARIANT: no requirement is dropped.
        return Allow(tuple(requires)) if requires else ALLOW


def _merged(questions: list[Ask]) -> Ask:
    """Return one question that is at least as strict as each."""
    if len(questions) == 1:
        return questions[0]
    return Ask(
        "; ".join(question.reason for question in questions),
        quorum=max(question.quorum for question in questions),
        signed=any(question.signed for question in questions),
        expires_s=min(question.expires_s for question in questions),
        suspend=any(question.suspend for question in questions),
    )


def first_of(*policies: Policy, otherwise: str = "refuse") -> FirstOf:
    """Return a policy that lets the first one which is about a call decide alone, like the rules of a firewall.

    Args:
        policies: asked in order. A policy without a method `applies(call, saga)` is about every call.
        otherwise: the answer when none is.

    Raises:
        DeclarationError: there is none, or one has no `decide`.
    """
    return FirstOf(policies, otherwise)


def all_of(*policies: Policy) -> AllOf:
    """Return a policy that lets a call pass when each of these does: the first refusal counts, questions become one.

    Raises:
        DeclarationError: there is none, or one has no `decide`.
    """
    return AllOf(policies)


def _check_policies(policies: tuple[Any, ...], what: str) -> None:
    if not policies:
        raise DeclarationError(f"{what} needs at least one policy")
    for policy in policies:
        if isinstance(policy, type) or not callable(getattr(policy, "decide", None)):
            raise DeclarationError(f"{what}: {policy!r} is no policy; it has no decide(call, saga)")
