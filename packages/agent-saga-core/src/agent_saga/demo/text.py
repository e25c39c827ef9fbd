"""The facts of the acts as lines of text. What they say of the world, the log and the report was read from there."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.demo.death import ActThree
    from agent_saga.demo.stage import Played
    from agent_saga.demo.world import Attempt

COMPENSATIONS: Final = frozenset({"refund", "stop_server", "release_domain"})


def act_one(played: Played) -> Iterator[str]:
    """Yield the lines of Act I."""
    yield _title("Act I", "an agent without a saga")
    yield from map(_attempt, played.attempts)
    yield _standing(played)


def act_two(played: Played) -> Iterator[str]:
    """Yield the lines of Act II."""
    yield _title("Act II", "the same functions in a saga")
    yield from map(_attempt, played.attempts)
    yield _standing(played)


def act_three(act: ActThree) -> Iterator[str]:
    """Yield the lines of Act III."""
    killed, (first, again) = act.killed, act.recoveries
    worker = act.played.attempts[: -len(first.attempts)]
    yield _title("Act III", "killed after the charge has landed, before its outcome is written")
    yield from map(_attempt, worker)
    end = f"the log ends with: {killed.records[-1]}"
    yield _line(signal.Signals(killed.signal).name, f"to process {killed.pid}", end, "red")
    lock = f"{killed.lock_before}, then {killed.lock_after}"
    yield _line("its kernel lock", lock, "proves its death; a lease would only prove its silence")
    yield _command(first.command)
    yield _line("probe", "by the same key", f"{act.probed['answer']}: {act.probed['values']['result']['id']}")
    yield from map(_attempt, first.attempts)
    yield _line("the same again", f"{len(again.attempts)} requests", f"{len(again.records)} records")
    yield _standing(act.played)


def next_steps(commands: list[str]) -> Iterator[str]:
    """Yield the lines that end the demo."""
    yield click.style("Next, on the log that stays", bold=True)
    yield from map(_command, commands)


def _title(name: str, what: str) -> str:
    return click.style(f"{name:<7}", bold=True) + f"  {what}"


def _command(command: str) -> str:
    return click.style(f"  $ {command}", fg="cyan")


def _attempt(attempt: Attempt) -> str:
    refused = None if attempt.effect else "red"
    return _line(attempt.tool, attempt.subject, attempt.answer, "green" if attempt.tool in COMPENSATIONS else refused)


def _standing(played: Played) -> str:
    what = ", ".join(played.standing) or "nothing"
    if played.report is None:
        return click.style(f"  {'left standing':<17}{what}", fg="red", bold=True)
    return click.style(_line("left standing", what, f"report.clean: {played.report.clean}"), fg="green", bold=True)


def _line(first: str, second: str, third: str, colour: str | None = None) -> str:
    return f"  {first:<17}{second:<20}{third if colour is None else click.style(third, fg=colour)}".rstrip()
