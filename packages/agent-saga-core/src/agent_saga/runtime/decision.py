"""Asking one policy: whatever it does, what comes of it is a decision that can be acted on and recorded."""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol

from agent_saga.model.effects import Allow, Ask, Decision, Refuse
from agent_saga.model.requirements import Free, Within
from agent_saga.runtime.ops import Invoke
from agent_saga.runtime.refusal import recordable
from agent_saga.runtime.withheld import leaves, without

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agent_saga.model.call import Policy, ProposedCall, SagaFacts
    from agent_saga.runtime.ops import Op

POLICY_S_MAX: Final = 60.0
"""How long an async policy may take. A sync one runs in the caller's thread, and must return at once.

One that may not (it reads a file, say) states `decide_within_s`: it then runs in a thread of its own, and a call whose
decision takes longer is refused.
"""
EXPIRES_S_MAX: Final = 10 * 365 * 86_400.0
_DECISIONS: Final = (Allow, Refuse, Ask)
_PLAIN_LENGTH_MAX: Final = 500


class Waits(Protocol):
    """Who wants to know that a policy took time."""

    waited: bool


def decide(policy: Policy, call: ProposedCall, saga: SagaFacts, waits: Waits) -> Generator[Op, Any, Decision]:
    """Ask one policy; an exception, no answer in time, and whatever is not one of the three decisions refuse.

    Args:
        policy: the policy.
        call: the call.
        saga: its saga.
        waits: told when the policy takes time.
    """
    limit_s = getattr(policy, "decide_within_s", None)
    decision: Any
    try:
        if limit_s is not None:
            waits.waited = True
            decision = yield Invoke(functools.partial(policy.decide, call, saga), {}, _limit(limit_s))
        else:
            decision = policy.decide(call, saga)
            if type(decision) is Allow and decision.requires == ():
                return decision  # What most policies say of most calls.
            if not isinstance(decision, _DECISIONS) and inspect.isawaitable(decision):
                waits.waited = True
                decision = yield Invoke(_awaited(decision), {}, POLICY_S_MAX)
        flaw = _flaw(decision)
        decision = decision if flaw is None else Refuse(flaw)
    except TimeoutError:
        decision = Refuse("the policy gave no answer in time")
    except Exception as error:  # noqa: BLE001 - a policy that fails refuses.
        decision = Refuse(f"the policy failed: {_told(error)}")
    return decision if isinstance(decision, Allow) or not call.redact else _withheld(decision, call)


def _withheld(decision: Refuse | Ask, call: ProposedCall) -> Refuse | Ask:
    """Return a decision whose reason, which is recorded, quotes no redacted argument."""
    texts = {text for name in call.redact for text in leaves(call.kwargs.get(name))}
    return replace(decision, reason=without(str(decision.reason), texts))


def _flaw(decision: object) -> str | None:
    """Return why something that a policy returned cannot be acted on, or None."""
    match decision:
        case Allow(requires=requires):
            good = all(map(_is_requirement, requires))
        case Refuse(reason=reason):
            return None if isinstance(reason, str) and reason.strip() else "the policy gave no reason"
        case Ask(quorum=quorum, expires_s=expires_s, requires=requires):
            good = type(quorum) is int and quorum >= 1 and isfinite(expires_s) and 0 < expires_s <= EXPIRES_S_MAX
            good = good and all(map(_is_requirement, requires))
        case _:
            return f"the policy returned {decision!r}, which is no decision"
    return None if good else f"the policy returned {decision!r}, which cannot be acted on"


def _is_requirement(requirement: object) -> bool:
    """Tell whether the log can check, and record, what a policy demands."""
    if type(requirement) is Within:
        return _is_recordable(requirement.budget)
    return isinstance(requirement, Free | Within) and all(map(_is_recordable, _names(requirement)))


def _names(requirement: Free | Within) -> tuple[str, ...]:
    return requirement.names if isinstance(requirement, Free) else (requirement.budget,)


def _is_recordable(name: object) -> bool:
    """Tell whether records can hold a name as it is."""
    if type(name) is not str:
        return False
    return (name.isascii() and len(name) <= _PLAIN_LENGTH_MAX) or recordable(name) == name


def _limit(seconds: Any) -> float:
    """Return how long a policy may take, as it states.

    Raises:
        ValueError: that is no time.
    """
    limit_s = float(seconds)
    if not (isfinite(limit_s) and limit_s > 0):
        raise ValueError(f"its decide_within_s is {seconds!r}, which is no time")
    return limit_s


def _told(error: Exception) -> str:
    """Return what an exception says, where it can say it."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - its own text fails.
        return type(error).__name__


def _awaited(awaitable: Any) -> Callable[[], Any]:
    async def run() -> Any:
        return await awaitable

    return run
