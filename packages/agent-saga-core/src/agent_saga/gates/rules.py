"""Rules about tools, effects and values of arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import DeclarationError
from agent_saga.gates.names import check_patterns, imitated, says
from agent_saga.gates.rule import ALLOW, EVERY, Rule, Then, answer, check_then, prepare
from agent_saga.gates.values import Missing, Unreadable, at_path, check_path, shown
from agent_saga.model.effects import Ask, Decision, Effect, Refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_saga.model.call import ProposedCall, SagaFacts

_LISTED_MAX: Final = 8
_WILDCARDS: Final = frozenset({"*", "**"})


@dataclass(frozen=True, slots=True)
class EffectRule(Rule):
    """Answers by effect class.

    Args:
        effect: `reversible`, `compensable` or `irreversible`. Read-only calls pass no gate.
        then: the answer.
        tool: names or shell patterns of the tools concerned.
    """

    effect: str | Effect
    then: Then = "ask"
    tool: str | tuple[str, ...] = EVERY

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        check_then(self.then, "EffectRule")
        try:
            effect = Effect(self.effect)
        except ValueError:
            choices = ", ".join(repr(choice.value) for choice in Effect if choice is not Effect.READ_ONLY)
            raise DeclarationError(f"EffectRule: effect {self.effect!r} is none of {choices}") from None
        if effect is Effect.READ_ONLY:
            raise DeclarationError("EffectRule: read-only calls pass no gate, so no rule can be about them")
        prepare(self, effect=effect)

    def applies(self, call: ProposedCall, saga: SagaFacts) -> bool:
        """See Rule.applies."""
        return call.effect is self.effect and Rule.applies(self, call, saga)

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        if call.effect is not self.effect:
            return ALLOW
        return answer(self.then, f"{call.tool} is {call.effect.value}")


@dataclass(frozen=True, slots=True, init=False)
class AllowTools:
    """Refuses every tool that is not listed: by exact name, or by a shell pattern that its plain ASCII name matches."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", check_patterns(names, "AllowTools"))

    def decide(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Policy.decide."""
        if says(self.names, call.tool):
            return ALLOW
        return Refuse(f"{shown(call.tool)} is not on the list of allowed tools ({_listed(self.names)})")


@dataclass(frozen=True, slots=True, init=False)
class DenyTools:
    """Refuses the tools that are listed, by name or shell pattern, and those whose names could be mistaken for them."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", check_patterns(names, "DenyTools"))

    def decide(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Policy.decide."""
        found = imitated(self.names, call.tool)
        if found is None:
            return ALLOW
        return Refuse(f"{shown(call.tool)} is on the list of denied tools, as {found!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowValues(Rule):
    """Refuses a call unless every value of an argument is on a list.

    Args:
        argument: its path, as in `recipient.country` or `items.*.sku`.
        values: what is allowed: texts compare exactly or as shell patterns over plain ASCII, all else by type and
            value.
        tool: names or shell patterns of the tools concerned.
        missing: `refuse` or `allow` a call without the argument.
        then: the answer to a value that is not on the list.
    """

    argument: str
    values: tuple[Any, ...] | str
    tool: str | tuple[str, ...] = EVERY
    missing: str = "refuse"
    then: Then = "refuse"
    parts: tuple[str, ...] = field(init=False, repr=False, compare=False)
    listed: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    texts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        _prepare_values(self)

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        for value in _values(self, call.kwargs):
            if not _is_listed(value, self.listed, self.texts):
                return answer(self.then, f"{call.tool}: {self.argument!r} is {shown(value)}, which is not allowed")
        return ALLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyValues(Rule):
    """Refuses a call when a value of an argument is on a list, or is a text that could be mistaken for one.

    Args:
        argument: its path, as in `recipient.country` or `items.*.sku`.
        values: what is denied: texts, shell patterns, or values that compare by type and value.
        tool: names or shell patterns of the tools concerned.
        missing: `refuse` or `allow` a call without the argument.
        then: the answer to a value that is on the list.
    """

    argument: str
    values: tuple[Any, ...] | str
    tool: str | tuple[str, ...] = EVERY
    missing: str = "refuse"
    then: Then = "refuse"
    parts: tuple[str, ...] = field(init=False, repr=False, compare=False)
    listed: tuple[Any, ...] = field(init=False, repr=False, compare=False)
    texts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        _prepare_values(self)

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        for value in _values(self, call.kwargs):
            if _is_denied(value, self.listed, self.texts):
                return answer(self.then, f"{call.tool}: {self.argument!r} is {shown(value)}, which is denied")
        return ALLOW


_PLAIN: Final = (str, int, bool, float, type(None))


def _prepare_values(rule: AllowValues | DenyValues) -> None:
    name = type(rule).__name__
    listed = (rule.values,) if isinstance(rule.values, str) else tuple(rule.values)
    if not listed or not all(type(value) in _PLAIN for value in listed):
        raise DeclarationError(f"{name}: values must be texts, numbers, True, False or None; they are {rule.values!r}")
    if rule.missing not in {"refuse", "allow"}:
        raise DeclarationError(f"{name}: missing must be 'refuse' or 'allow'; it is {rule.missing!r}")
    check_then(rule.then, name)
    texts = tuple(value for value in listed if type(value) is str)
    prepare(rule, values=listed, listed=listed, parts=check_path(rule.argument), texts=texts)


def _values(rule: AllowValues | DenyValues, kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the values at a rule's path, with lists and mappings at its end taken apart."""
    try:
        found = at_path(kwargs, rule.parts)
    except Missing:
        # With a wildcard, some values may be there and others not: those that are would go unchecked.
        if rule.missing == "allow" and (rule.parts[0] not in kwargs or _WILDCARDS.isdisjoint(rule.parts)):
            return []
        raise
    for value in found:
        if type(value) not in _PLAIN:
            raise Unreadable(f"{rule.argument!r} is {shown(value)} ({type(value).__name__}), which no list can hold")
    return found


def _is_listed(value: object, values: tuple[Any, ...], texts: tuple[str, ...]) -> bool:
    if type(value) is str:
        return bool(texts) and says(texts, value)
    return any(type(known) is type(value) and known == value for known in values)


def _is_denied(value: object, values: tuple[Any, ...], texts: tuple[str, ...]) -> bool:
    """Tell whether a value is on a deny list; a number is, in whatever type or text it comes."""
    if type(value) is str and texts and imitated(texts, value) is not None:
        return True
    return any(known == value or str(known) == str(value) for known in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum(Rule):
    """Asks for the word of several people before each call of some tools.

    Args:
        tool: names or shell patterns of the tools concerned.
        needed: how many distinct principals must approve.
        signed: each must sign with a registered key.
        expires_s: how long the question stands.
        suspend: suspend the saga until it is answered.
        reason: what is asked, in one line.
    """

    tool: str | tuple[str, ...]
    needed: int = 2
    signed: bool = False
    expires_s: float = 300.0
    suspend: bool = False
    reason: str = ""
    ask: Ask = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        people = "one person" if self.needed == 1 else f"{self.needed} people"
        ask = Ask(
            self.reason or f"it needs the word of {people}",
            quorum=self.needed,
            signed=self.signed,
            expires_s=float(self.expires_s),
            suspend=self.suspend,
        )
        check_then(ask, "Quorum")
        prepare(self, ask=ask)

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        return self.ask


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
    return ", ".join(names[:_LISTED_MAX]) + more
