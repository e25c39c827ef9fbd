"""Circuit breaker: after failures in a row, new calls of a tool wait until it may have recovered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent_saga.errors import DeclarationError
from agent_saga.gates.rule import ALLOW, Rule, Then, answer, check_then, prepare
from agent_saga.runtime.clock import clock

if TYPE_CHECKING:
    from agent_saga.model.call import ProposedCall, SagaFacts
    from agent_saga.model.effects import Decision
    from agent_saga.model.report import StepReport

SAGAS_WATCHED_MAX: Final = 64
_CUT_SHORT: Final = frozenset({"CancelledError", "KeyboardInterrupt", "SystemExit", "GeneratorExit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker(Rule):
    """Answers calls of a tool that has failed several times in a row, until it has been left alone for a while.

    After that, calls pass again: the next failure opens the circuit at once, a success closes it. Each tool has a
    circuit of its own, in this process. Refusals and cancelled calls are no failures. Compensations pass no gate, so
    none is held up.

    Args:
        tool: names or shell patterns of the tools concerned.
        failures: in a row, over all sagas of this process.
        open_for_s: how long calls are refused after the last failure.
        then: the answer meanwhile.

    Limits:
        It learns from the steps of the sagas that asked it, at the next question. It follows 64 of them at a time, and
        looks at what is new in them.
    """

    tool: str | tuple[str, ...]
    failures: int = 5
    open_for_s: float = 30.0
    then: Then = "refuse"
    memory: Memory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            DeclarationError: they cannot work.
        """
        check_then(self.then, "CircuitBreaker")
        if type(self.failures) is not int or self.failures < 1 or not self.open_for_s > 0:
            raise DeclarationError("CircuitBreaker needs at least 1 failure and a positive open_for_s")
        prepare(self, memory=Memory())

    def judge(self, call: ProposedCall, saga: SagaFacts) -> Decision:
        """See Rule.judge."""
        now = clock().monotonic()
        circuit = self.memory.look(call.tool, saga, now)
        left_s = circuit.failed_at + float(self.open_for_s) - now
        if circuit.failures < self.failures or left_s <= 0:
            return ALLOW
        return answer(
            self.then,
            f"{call.tool} failed {circuit.failures} times in a row; the next call may be tried in {left_s:.0f} s",
        )


@dataclass(slots=True)
class Circuit:
    """What is known of one tool: its failures since the last success, and when the last one was seen."""

    failures: int = 0
    failed_at: float = 0.0


@dataclass(slots=True)
class Watched:
    """A saga that asked: how many of its steps were looked at, and which of those have no answer yet."""

    saga: SagaFacts
    seen: int = 0
    open: set[str] = field(default_factory=set)


class Memory:
    """What a breaker has seen in this process. Asking twice about one call teaches it nothing new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._circuits: dict[str, Circuit] = {}
        self._watched: OrderedDict[str, Watched] = OrderedDict()

    def look(self, tool: str, saga: SagaFacts, now: float) -> Circuit:
        """Return what is known of a tool, after a look at the sagas that asked before."""
        with self._lock:
            if not getattr(saga, "previews", False):  # The calls of a preview are not made: they teach nothing.
                self._watch(saga)
            ended = [known for known in self._watched.values() if self._learn(known, now)]
            for known in ended:  # There is no more to learn from it.
                del self._watched[known.saga.id]
            return self._circuits.get(tool) or Circuit()

    def _watch(self, saga: SagaFacts) -> None:
        known = self._watched.get(saga.id)
        if known is not None:
            known.saga = saga
            self._watched.move_to_end(saga.id)
            return
        self._watched[saga.id] = Watched(saga)
        if len(self._watched) > SAGAS_WATCHED_MAX:
            self._watched.popitem(last=False)

    def _learn(self, known: Watched, now: float) -> bool:
        """Look at what is new in a saga; True when it has ended."""
        saga = known.saga
        ended = getattr(saga, "report", None) is not None
        new = saga.steps(known.seen)
        if not (new or known.open):
            return ended
        known.seen += len(new)
        again = [saga.step(step_id) for step_id in known.open]
        for step in (*again, *new):
            if step.state == "in_doubt" and step.error is None:
                known.open.add(step.step_id)
                continue
            known.open.discard(step.step_id)
            failed = _has_failed(step)
            if failed is None:
                continue
            circuit = self._circuits.setdefault(step.tool, Circuit())
            circuit.failures = circuit.failures + 1 if failed else 0
            circuit.failed_at = now if failed else circuit.failed_at
        return ended


def _has_failed(step: StepReport) -> bool | None:
    """Tell whether a step failed; None while it runs, and for what says nothing about its tool."""
    if step.state == "standing":
        return False
    if step.error is not None:
        return None if step.error in _CUT_SHORT else step.result is None
    # Compensated, or on the way there: it had succeeded. Absent or in doubt without an error: refused, or running.
    return None if step.state in {"absent", "in_doubt"} else False
