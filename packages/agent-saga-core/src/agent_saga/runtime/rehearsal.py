"""A rehearsal: a test stands beside each effect of the real engine, to watch it and to break it.

`prove_rollback`, the chaos of pytest-agent-saga and its replay assertion are rehearsals. Without one, which is always
the case outside of tests, the engine looks at one global per call, compensation and scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.machine.view import StepView
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Call, Invoke, Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.writer import Writer


class Rehearsal:
    """What a test may do in the engine's place; this one changes nothing. All but `writer` are engine code.

    What these methods raise is, to the engine, raised by what they stand beside.
    """

    def writer(self, kit: object, log: str) -> Writer | None:
        """Return the writer that a kit uses meanwhile; None for its own."""
        return None

    def opened(self, saga: Saga) -> Generator[Op, Any, None]:
        """A saga or nested scope is open; nothing of it has run."""
        yield from ()

    def ended(self, saga: Saga) -> Generator[Op, Any, None]:
        """It has ended, in whatever way; `saga.report` is what its caller sees."""
        yield from ()

    def call(
        self, saga: Saga, declaration: Declaration, step: StepView | None, operation: Call
    ) -> Generator[Op, Any, Any]:
        """Run a tool, and return what it returns. The intent is durable; `step` is None for a read-only call."""
        return (yield operation)

    def recorded(self, saga: Saga, step: StepView) -> Generator[Op, Any, None]:
        """The outcome of a call that succeeded is recorded, and its result goes back now."""
        yield from ()

    def compensation(self, live: LiveSaga, step: StepView, operation: Invoke) -> Generator[Op, Any, Any]:
        """Run a compensator, and return what it returns. The attempt is durable."""
        return (yield operation)


_rehearsal: Rehearsal | None = None


def rehearsal() -> Rehearsal | None:
    """Return the rehearsal that goes on in this process, or None."""
    return _rehearsal


def use_rehearsal(new: Rehearsal | None) -> Rehearsal | None:
    """Begin or (with None) end a rehearsal for the whole process, and return the one before."""
    global _rehearsal
    before, _rehearsal = _rehearsal, new
    return before
