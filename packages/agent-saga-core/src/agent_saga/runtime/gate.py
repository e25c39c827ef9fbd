"""The gate: every policy in order, then whoever approves; a decision is a value that the engine acts on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from agent_saga.errors import GateRefused, UsageError
from agent_saga.model import records as r
from agent_saga.model.effects import Allow, Ask, Decision, Effect, Refuse
from agent_saga.runtime.ops import Invoke

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from agent_saga.model.call import Policy, ProposedCall, SagaFacts
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op

APPROVAL_TIMEOUT_S = 300.0


class IrreversibleAsks:
    """The default rule: a call whose effect has no inverse needs somebody's word."""

    def decide(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Policy.decide."""
        if call.effect is Effect.IRREVERSIBLE:
            again = " again, with the arguments of a call that stands" if call.repeats else ""
            return Ask(f"{call.tool} is irreversible{again}")
        return Allow()


def pass_gate(
    live: LiveSaga, saga: Any, call: ProposedCall, policies: tuple[Policy, ...], approver: Callable[..., Any] | None
) -> Generator[Op, Any, None]:
    """Return when the call may run.

    Raises:
        GateRefused: it may not; the refusal is recorded, and nothing happened.
    """
    for policy in policies:
        name = type(policy).__name__
        decision = yield from _decide(policy, call, saga)
        match decision:
            case Allow():
                continue
            case Refuse(reason):
                yield from _refuse(live, call, name, "refuse", reason)
            case Ask(reason):
                yield from _ask(live, call, name, reason, approver)


def _decide(policy: Policy, call: ProposedCall, saga: Any) -> Generator[Op, Any, Decision]:
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


def _ask(
    live: LiveSaga, call: ProposedCall, policy: str, reason: str, approver: Callable[..., Any] | None
) -> Generator[Op, Any, None]:
    if approver is None:
        why = (
            f"{reason}: it needs an approval, and this kit has no approver. Pass AgentKit(approver=...), a function of "
            "the call that returns True to let it run"
        )
        yield from _refuse(live, call, policy, "ask", why)
        return
    try:
        answer = yield Invoke(functools.partial(approver, call), {}, APPROVAL_TIMEOUT_S)
    except TimeoutError:
        yield from _refuse(
            live, call, policy, "expired", f"{reason}: nobody answered within {APPROVAL_TIMEOUT_S:.0f} s"
        )
        return
    except Exception as error:  # noqa: BLE001 - an approver that fails has approved nothing.
        yield from _refuse(live, call, policy, "ask", f"{reason}: the approver failed: {type(error).__name__}: {error}")
        return
    if answer is not True:
        yield from _refuse(live, call, policy, "reject", f"{reason}: rejected")
        return
    live.emit(r.Decided, tool=call.tool, decision="approve", policy=policy, reason=reason, hold=True)


def _refuse(live: LiveSaga, call: ProposedCall, policy: str, decision: str, reason: str) -> Generator[Op, Any, None]:
    """Record a refusal and raise it. It is committed without waiting for the device: nothing happened."""
    ticket = live.emit(r.Decided, tool=call.tool, decision=decision, policy=policy, reason=reason)
    yield from live.committed(ticket)
    raise GateRefused(f"{call.tool!r} was refused in saga {live.id!r}, before any effect: {reason}")


def check_approver(approver: object) -> None:
    """Raise when a kit's `approver` is nothing that can decide."""
    if approver is not None and not callable(approver):
        raise UsageError(f"approver must be a function of the call, or None; it is {approver!r}")
