"""The gate: kill switch, every policy in order, then whoever approves. A decision is a value; the engine acts on it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import UsageError
from agent_saga.model.effects import Allow, Ask, Decision, Effect, Refuse
from agent_saga.model.requirements import Approved, Free, Requirement, Within
from agent_saga.runtime import approval, halts, resources
from agent_saga.runtime.clock import clock
from agent_saga.runtime.declaration import encode_kwargs
from agent_saga.runtime.ops import Invoke
from agent_saga.runtime.refusal import recordable, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agent_saga.model.call import Policy, ProposedCall, SagaFacts
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall

POLICY_S_MAX: Final = 60.0
"""How long an async policy may take. A sync one runs in the caller's thread, and must return at once."""
EXPIRES_S_MAX: Final = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Passed:
    """A call that may run.

    Attributes:
        requires: what the log checks in the transaction of the intent.
        approvals: the approvals that the intent uses up.
        resources: what the saga holds alone from the intent on.
    """

    requires: tuple[Requirement, ...] = ()
    approvals: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


NOTHING_ASKED = Passed()


class IrreversibleAsks:
    """The default rule: a call whose effect has no inverse needs somebody's word."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IrreversibleAsks)  # The same rule in every kit.

    def __hash__(self) -> int:
        return hash(IrreversibleAsks)

    def decide(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Policy.decide."""
        if call.effect is Effect.IRREVERSIBLE:
            again = " again, with the arguments of a call that stands" if call.repeats else ""
            return Ask(f"{call.tool} is irreversible{again}")
        return Allow()


@dataclass(slots=True)
class _Asked:
    """What the policies said.

    Attributes:
        names: resources that they demand.
        waited: time has passed since the first one was asked.
    """

    requires: list[Requirement] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    questions: list[tuple[str, Ask]] = field(default_factory=list)
    waited: bool = False


def pass_gate(saga: Saga, call: ToolCall, proposed: ProposedCall) -> Generator[Op, Any, Passed]:
    """Return what the intent of a call must bring along.

    Every policy is asked before anybody is bothered, so a question hides no refusal. Where time has passed since the
    call was looked at first, the kill switch and the arguments are looked at again before the intent.

    Raises:
        GateRefused: it may not run; the refusal is recorded, and nothing happened.
        SagaSuspended: it waits for a decision, or the saga is halted.
    """
    halts.check(saga, proposed.tool)
    asked = yield from _ask_policies(saga, proposed)
    held = yield from resources.wanted(saga, call, asked.names)
    if not (asked.requires or asked.questions or asked.waited or held):
        return NOTHING_ASKED
    approvals: list[str] = []
    for name, question in asked.questions:
        approvals.append((yield from approval.ask(saga, call, proposed, name, question, taken=approvals)))
    if asked.waited or held or approvals:
        yield from _look_again(saga, call, proposed)
    now_ns = clock().time_ns()
    good = [Approved(approval=known, now_ns=now_ns) for known in approvals]
    free = [Free(names=held)] if held else []
    return Passed(requires=(*asked.requires, *good, *free), approvals=tuple(approvals), resources=held)


def pass_again(saga: Saga, tool: str, passed: Passed) -> Passed:
    """Return what the intent of a further attempt must bring along: all but the approvals, which the first one used.

    Raises:
        SagaSuspended: the saga is halted.
    """
    halts.check(saga, tool)
    requires = tuple(one for one in passed.requires if not isinstance(one, Approved))
    return replace(passed, requires=requires, approvals=())


def _ask_policies(saga: Saga, proposed: ProposedCall) -> Generator[Op, Any, _Asked]:
    asked = _Asked()
    for policy in saga.policies:
        name = type(policy).__name__
        match (yield from decide(policy, proposed, saga, asked)):
            case Allow(requires=more):
                for one in more:
                    if isinstance(one, Free):
                        asked.names.extend(one.names)
                    else:
                        asked.requires.append(one)
            case Refuse(reason):
                yield from refuse(saga, proposed.tool, name, reason)
            case Ask() as question:
                asked.questions.append((name, question))
    # The default rule wants somebody's word. Where a policy of the user asks for one, that is the word.
    asked.questions = [one for one in asked.questions if one[0] != IrreversibleAsks.__name__] or asked.questions
    return asked


def _look_again(saga: Saga, call: ToolCall, proposed: ProposedCall) -> Generator[Op, Any, None]:
    """What was approved, or allowed while time passed, is what was looked at: mutable arguments may have changed."""
    halts.check(saga, proposed.tool)
    if encode_kwargs(call.declaration, call.kwargs) != call.encoded:
        yield from refuse(
            saga, proposed.tool, "arguments", "an argument was changed while the call waited; what was seen is not run"
        )


def decide(
    policy: Policy, call: ProposedCall, saga: SagaFacts, asked: _Asked | None = None
) -> Generator[Op, Any, Decision]:
    """Ask one policy; an exception, no answer in time, and whatever is not one of the three decisions refuse.

    Args:
        policy: the policy.
        call: the call.
        saga: its saga.
        asked: told when the policy takes time.
    """
    try:
        decision = policy.decide(call, saga)
        if not isinstance(decision, Allow | Refuse | Ask) and inspect.isawaitable(decision):
            if asked is not None:
                asked.waited = True
            decision = yield Invoke(_awaited(decision), {}, POLICY_S_MAX)
        flaw = _flaw(decision)
    except TimeoutError:
        return Refuse("the policy gave no answer in time")
    except Exception as error:  # noqa: BLE001 - a policy that fails refuses.
        return Refuse(f"the policy failed: {type(error).__name__}: {error}")
    return decision if flaw is None else Refuse(flaw)


def _flaw(decision: object) -> str | None:
    """Return why something that a policy returned cannot be acted on, or None."""
    match decision:
        case Allow(requires=requires):
            good = all(isinstance(one, Within | Free) and _is_recordable(one) for one in requires)
        case Refuse():
            good = True
        case Ask(quorum=quorum, expires_s=expires_s):
            good = type(quorum) is int and quorum >= 1 and isfinite(expires_s) and 0 < expires_s <= EXPIRES_S_MAX
        case _:
            return f"the policy returned {decision!r}, which is no decision"
    return None if good else f"the policy returned {decision!r}, which cannot be acted on"


def _is_recordable(requirement: Within | Free) -> bool:
    names = requirement.names if isinstance(requirement, Free) else (requirement.budget,)
    return all(type(name) is str and recordable(name) == name for name in names)


def _awaited(awaitable: Any) -> Callable[[], Any]:
    async def run() -> Any:
        return await awaitable

    return run


def check_approver(approver: object) -> None:
    """Raise when a kit's `approver` is nothing that can decide."""
    if approver is not None and approver != "log" and not callable(approver):
        raise UsageError(f"approver must be a function of the call, 'log' or None; it is {approver!r}")
