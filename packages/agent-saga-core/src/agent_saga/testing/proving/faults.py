"""What is broken: the ways in which a call or a compensation can go wrong, as far as the engine can tell them apart."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

How = Literal[
    "error_before",
    "answer_lost",
    "error_after",
    "fails_next",
    "stopped_before",
    "stopped_after",
    "fails_throughout",
]

CALL_FAULTS: Final[tuple[How, ...]] = (
    "error_before",
    "answer_lost",
    "error_after",
    "fails_next",
    "stopped_before",
    "stopped_after",
)
COMPENSATION_FAULTS: Final[tuple[How, ...]] = (
    "error_before",
    "answer_lost",
    "error_after",
    "stopped_before",
    "stopped_after",
    "fails_throughout",
)
BEFORE: Final = frozenset({"error_before", "stopped_before", "fails_throughout"})
"""The tool or compensator does not run."""
STOPS: Final = frozenset({"stopped_before", "stopped_after"})
_TEXTS: Final[dict[How, str]] = {
    "error_before": "{} raises before it does anything",
    "answer_lost": "{} takes effect and its answer is lost",
    "error_after": "{} takes effect and raises an ordinary error",
    "fails_next": "the workflow fails right after {}",
    "stopped_before": "the run is {stopped} before {} does anything",
    "stopped_after": "the run is {stopped} when {} has taken effect",
    "fails_throughout": "{} raises each time, until recovery",
}


class InjectedError(Exception):
    """An ordinary error, raised by the test in the tool's place."""


class InjectedTimeout(TimeoutError):
    """The answer was lost."""


class InjectedInterrupt(KeyboardInterrupt):
    """Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One call of a tool or compensator in an execution.

    Attributes:
        name: of the tool or compensator.
        nth: its how many-th call in this execution, from 1.
    """

    of: Literal["call", "compensation"]
    name: str
    nth: int

    def __str__(self) -> str:
        """Return it for people."""
        return self.name if self.nth == 1 else f"{self.name} #{self.nth}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is broken in an execution."""

    how: How
    at: Place

    def describe(self, *, is_async: bool) -> str:
        """Return it for people."""
        return _TEXTS[self.how].format(self.at, stopped="cancelled" if is_async else "interrupted")


def strike(fault: Fault, stop: Callable[[], None]) -> None:
    """Raise what the fault raises.

    Args:
        fault: what happens.
        stop: stops the run from outside: cancels its task, or raises Ctrl-C.
    """
    if fault.how in {"error_before", "error_after", "fails_next", "fails_throughout"}:
        raise InjectedError(f"broken by the test: {fault.at}")
    if fault.how == "answer_lost":
        raise InjectedTimeout(f"broken by the test: the answer of {fault.at} was lost")
    stop()


@contextlib.contextmanager
def quiet_threads() -> Iterator[None]:
    """Say nothing of threads of the workflow that end by what the test raised in them."""
    hook = threading.excepthook

    def told(args: threading.ExceptHookArgs) -> None:
        if not isinstance(args.exc_value, INJECTED):
            hook(args)

    threading.excepthook = told
    try:
        yield
    finally:
        threading.excepthook = hook


INJECTED: Final = (InjectedError, InjectedTimeout, InjectedInterrupt, asyncio.CancelledError)
