"""The gate: kill switch, every policy in order, then whoever approves. A decision is a value; the engine acts on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_saga.errors import GateRefused, UsageError
from agent_saga.model import records as r
from agent_saga.model.effects import Allow, Ask, Decision, Effect, Refuse
from agent_saga.model.requirements import Approved, Requirement
from agent_saga.runtime import approval, halts, resources
from agent_saga.runtime.clock import clock
from agent_saga.runtime.ops import Invoke

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agent_saga.model.call import Policy, ProposedCall, SagaFacts
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall


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


def pass_gate(saga: Saga, call: ToolCall, proposed: ProposedCall) -> Generator[Op, Any, Passed]:
    """Return what the intent of a call must bring along.

    Every policy is asked before anybody is bothered, so a question hides no refusal.

    Raises:
        GateRefused: it may not run; the refusal is recorded, and nothing happened.
        SagaSuspended: it waits for a decision, or the saga is halted.
    """
    live = saga.live
    halts.check(saga, proposed)
    requires: list[Requirement] = []
    questions: list[tuple[str, Ask]] = []
    for policy in saga.policies:
        name = type(policy).__name__
        match (yield from decide(policy, proposed, saga)):
            case Allow(requires=more):
                requires.extend(more)
            case Refuse(reason):
                yield from refuse(live, proposed.tool, name, reason)
            case Ask() as question:
                questions.append((name, question))
    held = yield from resources.wanted(saga, call)
    if not questions and not requires and not held:
        return NOTHING_ASKED
    approvals: list[str] = []
    for name, question in questions:
        approvals.append((yield from approval.ask(saga, call, proposed, name, question, taken=approvals)))
    now_ns = clock().time_ns()
    requires.extend(Approved(approval=known, now_ns=now_ns) for known in approvals)
    requires.extend(resources.requirement(live, held))
    return Passed(requires=tuple(requires), approvals=tuple(approvals), resources=held)


def decide(policy: Policy, call: ProposedCall, saga: SagaFacts) -> Generator[Op, Any, Decision]:
    """Ask one policy; whatever is not one of the three decisions refuses."""
    try:
        decision = policy.decide(call, saga)
        if not isinstance(decision, Allow | Refuse | Ask):
            decision = yield Invoke(_awaited(decision), {})
    except Exception as error:  # noqa: BLE001 - a policy that fails refuses.
        return Refuse(f"the policy failed: {type(error).__name__}: {error}")
    if not isinstance(decision, Allow | Refuse | Ask):
        return Refuse(f"the policy returned {decision!r}, which is no decision")
    return decision


def _awaited(awaitable: Any) -> Callable[[], Any]:
    async def run() -> Any:
        return await awaitable

    return run


def refuse(
    live: LiveSaga, tool: str, policy: str, reason: str, *, decision: str = "refuse"
) -> Generator[Op, Any, None]:
    """Record a refusal and raise it. It is committed without waiting for the device: nothing happened."""
    ticket = live.emit(r.Decided, tool=tool, decision=decision, policy=policy, reason=reason)
    yield from live.committed(ticket)
    raise GateRefused(f"{tool!r} was refused in saga {live.id!r}, before any effect: {reason}")


def check_approver(approver: object) -> None:
    """Raise when a kit's `approver` is nothing that can decide."""
    if approver is not None and approver != "log" and not callable(approver):
        raise UsageError(f"approver must be a function of the call, 'log' or None; it is {approver!r}")
