"""The simulated gate: policies that refuse, ask and spend, and whoever answers them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from agent_saga.model.effects import Allow, Ask, Refuse
from agent_saga.model.requirements import Within
from agent_saga.testing.sim.world import Refused

if TYPE_CHECKING:
    from agent_saga.model.call import ProposedCall
    from agent_saga.model.effects import Decision
    from agent_saga.testing.sim.stage import Process, Stage

MODES: Final = ("budget", "short", "asked", "denied", "mute", "broken", "word", "noword", "slowword")
"""`budget` takes one of a purse for each call, and `short` finds it one too small; `asked` has each call approved by a
function, `denied` has it reject the last one, `mute` fail there; `broken` has a policy that fails at the last call;
`word` and `noword` suspend until somebody else gives a word, for the last call a good or a bad one, and `slowword`
gives it when the request has expired."""
PURSE: Final = "purse"
EXPIRES_S: Final = 30.0
_BAD: Final = frozenset({"refuse", "denied", "mute", "broken", "noword", "slowword"})


def waits_for_words(mode: str) -> bool:
    """Tell whether calls suspend their saga until somebody gives a word."""
    return bool({"word", "noword", "slowword"} & set(mode.split("+")))


def of(process: Process, mode: str, items: list[str]) -> tuple[Any, ...]:
    """Return the policies of a saga, and tell the stage what must hold because of them."""
    modes, stage, last = set(mode.split("+")), process.stage, items[-1]
    found: list[Any] = []
    if modes & _BAD:
        stage.forbidden |= {last}
    if modes & {"refuse", "broken"}:
        found.append(RefuseItem(last, fails="broken" in modes))
    if modes & {"budget", "short"}:
        if stage.purse is None:
            stage.purse = len(items) - ("short" in modes)
        found.append(Spends(stage))
    if modes & {"asked", "denied", "mute"}:
        stage.asks = True
        found.append(Asks(suspend=False))
        process.environment.approver = Approver(last, says=None if "mute" in modes else "denied" not in modes)
    elif waits_for_words(mode):
        stage.asks = True
        found.append(Asks(suspend=True))
        process.environment.approver = "log"
    return tuple(found)


class RefuseItem:
    """A policy that refuses one tool, or fails when it is asked about it."""

    def __init__(self, item: str, *, fails: bool = False) -> None:
        self._item, self._fails = item, fails

    def decide(self, call: ProposedCall, saga: Any) -> Decision:
        """See Policy.decide."""
        if base(call.kwargs.get("item")) != self._item:
            return Allow()
        if self._fails:
            raise Refused(self._item)
        return Refuse("simulated")


class Spends:
    """A policy that takes one of the purse for each call."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def decide(self, call: ProposedCall, saga: Any) -> Decision:
        """See Policy.decide."""
        return Allow(requires=(Within(budget=PURSE, amount=Decimal(1), limit=Decimal(self._stage.purse or 0)),))


class Asks:
    """A policy that has each call approved."""

    def __init__(self, *, suspend: bool, expires_s: float = EXPIRES_S) -> None:
        self._suspend, self._expires_s = suspend, expires_s

    def decide(self, call: ProposedCall, saga: Any) -> Decision:
        """See Policy.decide."""
        return Ask("simulated", suspend=self._suspend, expires_s=self._expires_s)


class Approver:
    """A function that approves all calls but one, which it rejects, or at which it fails."""

    def __init__(self, item: str, *, says: bool | None) -> None:
        self._item, self._says = item, says

    def __call__(self, call: ProposedCall) -> bool:
        """Return the word."""
        if base(call.kwargs.get("item")) != self._item:
            return True
        if self._says is None:
            raise Refused(self._item)
        return self._says


def base(item: object) -> str:
    """Return the item of the first incarnation."""
    return str(item).partition("~")[0]
