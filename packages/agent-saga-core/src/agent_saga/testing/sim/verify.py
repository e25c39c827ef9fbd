"""The user's face of the simulator: all failure shapes up to a size, in seconds, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import InvariantViolation, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_MAX: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `verify_rollback_invariants` did.

    Attributes:
        executions: times that the real engine was run: programs and recoveries.
        crash_points: distinct states in which every process died.
        invariants: how many are checked, after each change and at the end.
        twins: seeded bugs that were planted, one after the other.
        caught: those that an invariant noticed.
        holds: no invariant was broken, and every seeded bug was caught.
        seconds: how long it took.
        bound: what was covered completely, in words; nothing is said about what lies beyond it.
        text: the whole, for people.
    """

    executions: int
    crash_points: int
    invariants: int
    twins: int
    caught: int
    holds: bool
    seconds: float
    bound: str
    text: str


async def verify_rollback_invariants(
    max_steps: int = STEPS_MAX, *, say: Callable[[str], object] | None = print
) -> Verified:
    """Break this installation's engine in every way that a small saga can break, and check what is promised.

    Every failing step x failing compensations x a death of the process after each commit, effect and compensation,
    with and without loss of power; then recovery by another process, and each invariant of docs/guarantees.md. The
    engine, fold, codec and recovery are the installed ones; log, world, clock and processes are simulated. It runs in
    a process of its own, so it touches no log and no saga of yours.

    Args:
        max_steps: how long the sagas are, at most; 1 to 6.
        say: gets the printed result; None prints nothing.

    Returns:
        The numbers, the verdict and its bound.

    Raises:
        InvariantViolation: one was broken; the message is a trace and the token that replays it.
        UsageError: `max_steps` is out of range.
    """
    process = await asyncio.create_subprocess_exec(
        *_command(max_steps), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return _told(out, errors, say)


def verify_rollback_invariants_sync(
    max_steps: int = STEPS_MAX, *, say: Callable[[str], object] | None = print
) -> Verified:
    """Do the same in a blocking call. See `verify_rollback_invariants`."""
    verified = run(max_steps)
    return _judged(verified, say)


def run(max_steps: int = STEPS_MAX) -> Verified:
    """Return what it did, whatever the verdict.

    Raises:
        InvariantViolation: the simulator itself failed.
        UsageError: `max_steps` is out of range.
    """
    done = subprocess.run(_command(max_steps), capture_output=True, check=False)  # noqa: S603 - our own module.
    return _read(done.stdout, done.stderr)


def _command(max_steps: int) -> list[str]:
    if not 1 <= max_steps <= STEPS_MAX:
        raise UsageError(f"max_steps is 1 to {STEPS_MAX}, not {max_steps}: larger sagas are drawn by scripts/prove")
    return [sys.executable, "-m", "agent_saga.testing.sim", "--max-steps", str(max_steps), "--json"]


def _told(out: bytes, errors: bytes, say: Callable[[str], object] | None) -> Verified:
    return _judged(_read(out, errors), say)


def _read(out: bytes, errors: bytes) -> Verified:
    try:
        numbers: dict[str, Any] = json.loads(out)
    except ValueError:
        raise InvariantViolation(f"the simulator itself failed: {errors.decode(errors='replace')[-2000:]}") from None
    return Verified(**numbers)


def _judged(verified: Verified, say: Callable[[str], object] | None) -> Verified:
    if say is not None:
        say(verified.text)
    if not verified.holds:
        raise InvariantViolation(f"please report this:\n{verified.text}")
    return verified
