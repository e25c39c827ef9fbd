"""What all rules share: to which tools one applies, and what it answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from agent_saga.errors import DeclarationError
from agent_saga.gates.names import check_patterns, imitated, says
from agent_saga.gates.values import Unreadable, shown
from agent_saga.model.effects import Allow, Ask, Decision, Refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from agent_saga.model.call import ProposedCall, SagaFacts

Word = Literal["allow", "ask", "refuse"]
Then = Word | Ask
"""What a rule answers. An `Ask` is a template: its reason, if any, goes before the rule's own."""

ALLOW: Final = Allow()
EVERY: Final = ("*",)


def answer(then: Then, reason: str) -> Decision:
    """Return the decision that `then` states, for this reason."""
    if isinstance(then, Ask):
        return replace(then, reason=f"{then.reason}: {reason}" if then.reason else reason)
    if then == "allow":
        return ALLOW
    return Ask(reason) if then == "ask" else Refuse(reason)


def check_then(then: object, what: str) -> None:
    """Raise when `then` is none.

    Raises:
        DeclarationError: it is none, or an `Ask` that cannot be answered.
    """
    if isinstance(then, Ask):
        if type(then.quorum) is not int or then.quorum < 1 or not then.expires_s > 0:
            raise DeclarationError(f"{what}: Ask needs a quorum of at least 1 and a positive expires_s; it is {then}")
    elif then not in get_args(Word):
        raise DeclarationError(f"{what}: then must be 'allow', 'ask', 'refuse' or Ask(...); it is {then!r}")


def reach(patterns: tuple[str, ...], tool: str) -> bool | str:
    """Tell whether a rule for `patterns` is about a tool; a text says why that cannot be told.

    A name that imitates one of the rule's is refused, whatever the rule would answer: applying an allow rule to it, or
    passing over a bound, would both be wrong.
    """
    if patterns == EVERY or "*" in patterns or says(patterns, tool):
        return True
    model = imitated(patterns, tool)
    if model is None:
        return False
    return f"{shown(tool)} could be mistaken for {model!r}, which a rule is about; use exactly that name"


class Rule:
    """A policy about some tools. Subclasses state `tool` and `judge`."""

    __slots__ = ()
    tool: str | tuple[str, ...]

    def applies(self, call: ProposedCall, saga: SagaFacts) -> bool:
        """Tell whether the rule has something to say about the call, for `first_of`."""
        return reach(self.tool, call.tool) is not False  # type: ignore[arg-type]  # a tuple, see `prepare`

    def decide(self, call: ProposedCall, saga: SagaFacts) -> Decision | Awaitable[Decision]:
        """See Policy.decide."""
        reached = reach(self.tool, call.tool)  # type: ignore[arg-type]  # a tuple, see `prepare`
        if reached is not True:
            return ALLOW if reached is False else Refuse(reached)
        try:
            return self.judge(call, saga)
        except Unreadable as error:
            return Refuse(f"{call.tool}: {error}")

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision | Awaitable[Decision]:
        """Decide about a call of one of the tools.

        Raises:
            Unreadable: the call cannot be read; it is refused.
        """
        raise NotImplementedError


def prepare(rule: Any, **derived: Any) -> None:
    """Set fields of a frozen rule while it is made: `tool` as a tuple, and what is computed once."""
    object.__setattr__(rule, "tool", check_patterns(rule.tool, f"{type(rule).__name__}(tool=...)"))
    for name, value in derived.items():
        object.__setattr__(rule, name, value)
