"""The gate: kill switch, every policy in order, then whoever approves. A decision is a value; the engine acts on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import UsageError
from agent_saga.model.effects import Allow, Ask, Decision, Effect, Refuse
from agent_saga.model.requirements import Approved, Free, Requirement
from agent_saga.model.values import encode
from agent_saga.runtime import approval, halts, resources
from agent_saga.runtime.clock import clock
from agent_saga.runtime.decision import decide
from agent_saga.runtime.declaration import encode_kwargs
from agent_saga.runtime.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from agent_saga.model.call import Policy, ProposedCall, SagaFacts
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall

DECISION_NS: Final = 1_000_000_000
"""How old the policies' decisions may be when the intent is made after a wait."""
LOOKS_MAX: Final = 20
_FIXED: Final = frozenset({str, int, float, bool, type(None), bytes, Decimal})
"""Types of arguments that nobody can change while policies look at them."""


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


def unasked(saga: Saga, call: ToolCall) -> Passed | None:
    """Return the answer of `pass_gate` where it asks nobody: the default rule is the only one, and has nothing to say.

    Most calls are like that, and need not be described to policies first. The kill switch is looked at all the same.

    Raises:
        SagaSuspended: the saga is halted.
    """
    policies, declaration = saga.policies, call.declaration
    if len(policies) != 1 or type(policies[0]) is not IrreversibleAsks:
        return None
    if declaration.effect is Effect.IRREVERSIBLE or declaration.resources:
        return None
    halts.check(saga, declaration.name)
    return NOTHING_ASKED


def pass_gate(saga: Saga, call: ToolCall, proposed: ProposedCall) -> Generator[Op, Any, Passed]:
    """Return what the intent of a call must bring along.

    Every policy is asked before anybody is bothered, so a question hides no refusal. Where time has passed since the
    call was looked at first, or a policy could have changed an argument, the kill switch and the arguments are looked
    at again before the intent; and where it waited, for a word or a resource, so are the policies.

    Raises:
        GateRefused: it may not run; the refusal is recorded, and nothing happened.
        SagaSuspended: it waits for a decision, or the saga is halted.
    """
    halts.check(saga, proposed.tool)
    secrets = _secrets(call)
    changeable = not _FIXED.issuperset(map(type, call.kwargs.values()))
    for _ in range(LOOKS_MAX):
        asked = yield from _ask_policies(saga, proposed)
        asked_at = clock().time_ns()
        held = yield from resources.wanted(saga, call, asked.names)
        if not (asked.requires or asked.questions or asked.waited or held):
            if changeable:
                yield from _look_again(saga, call, proposed, secrets)
            return NOTHING_ASKED
        approvals: list[str] = []
        for name, question in asked.questions:
            approvals.append((yield from approval.ask(saga, call, proposed, name, question, taken=approvals)))
        if changeable or asked.waited or held or approvals:
            yield from _look_again(saga, call, proposed, secrets)
        now_ns = clock().time_ns()
        if (held or approvals) and abs(now_ns - asked_at) > DECISION_NS:
            continue  # A freeze may have begun, a circuit opened, a day ended. The words that were given still count.
        good = [Approved(approval=known, now_ns=now_ns) for known in approvals]
        free = [Free(names=held)] if held else []
        return Passed(requires=(*asked.requires, *good, *free), approvals=tuple(approvals), resources=held)
    yield from refuse(saga, proposed.tool, "gate", f"the policies demanded new waits {LOOKS_MAX} times in a row")
    raise AssertionError


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
        decision = yield from decide(policy, proposed, saga, asked)
        if isinstance(decision, Refuse):
            yield from refuse(saga, proposed.tool, name, decision.reason)
            continue
        for one in decision.requires:
            if isinstance(one, Free):
                asked.names.extend(one.names)
            else:
                asked.requires.append(one)
        if isinstance(decision, Ask):
            asked.questions.append((name, decision))
    # The default rule wants somebody's word. Where a policy of the user asks for one, that is the word.
    asked.questions = [one for one in asked.questions if one[0] != IrreversibleAsks.__name__] or asked.questions
    return asked


def _secrets(call: ToolCall) -> dict[str, str]:
    """Return what the redacted arguments are now; their stored form does not say."""
    names = {path.partition(".")[0] for path in call.declaration.redact}
    return {name: encode(call.kwargs[name]).text for name in names & call.kwargs.keys()}


def _look_again(
    saga: Saga, call: ToolCall, proposed: ProposedCall, secrets: dict[str, str]
) -> Generator[Op, Any, None]:
    """What was approved, or allowed while time passed, is what was looked at: mutable arguments may have changed."""
    halts.check(saga, proposed.tool)
    if encode_kwargs(call.declaration, call.kwargs) != call.encoded or _secrets(call) != secrets:
        yield from refuse(
            saga,
            proposed.tool,
            "arguments",
            "an argument was changed while the gate looked at it; what was seen is not run",
        )


def check_approver(approver: object) -> None:
    """Raise when a kit's `approver` is nothing that can decide."""
    if approver is not None and approver != "log" and not callable(approver):
        raise UsageError(f"approver must be a function of the call, 'log' or None; it is {approver!r}")


def checked_policies(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """Return the policies that a user gave.

    Raises:
        UsageError: one of them is nothing that can decide.
    """
    checked = tuple(policies)
    for policy in checked:
        if isinstance(policy, type) or not callable(getattr(policy, "decide", None)):
            raise UsageError(f"{policy!r} is no policy: that is an object with a method `decide(call, saga)`")
    return checked
