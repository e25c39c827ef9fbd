"""The command `agent-saga demo`."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.demo.death import ActThree
    from agent_saga.demo.stage import Played, Stage

LINE_PAUSE_S: Final = 0.2
"""Between two lines on a terminal."""


@click.command(name="demo")
@click.option("--fast", is_flag=True, help="Do not pause between lines.")
@click.option("--no-color", is_flag=True, help="Print without colours; so does NO_COLOR in the environment.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts of each act as JSON.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Leave the log and the world in DIR, which must be empty or new; else in a new temporary folder.",
)
def command(*, fast: bool, no_color: bool, as_json: bool, keep: Path | None) -> None:
    """Show a saga at work: a failure, a rollback, a kill -9 and its recovery.

    Everything is real, needs no network and no keys, and is read back before it is printed: from the world (an SQLite
    file of its own), from the log and from the report. Exit code 1 means that something was not as it should be.
    """
    from agent_saga.demo.stage import DemoFailed
    from agent_saga.errors import SagaError

    folder = _folder(keep)
    printer = _Printer(paced=not fast and not as_json and sys.stdout.isatty(), plain=no_color, silent=as_json)
    try:
        facts = _play(folder, printer)
    except (DemoFailed, SagaError, OSError, sqlite3.Error) as error:
        reason = str(error) if isinstance(error, DemoFailed) else f"{type(error).__name__}: {error}"
        raise click.ClickException(f"the demo failed. {reason}\nThe log and the world are in {folder}") from error
    if as_json:
        click.echo(json.dumps(facts, indent=2))


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="agent-saga-demo-")).resolve()
    try:
        keep.mkdir(parents=True, exist_ok=True)
        used = any(keep.iterdir())
    except OSError as error:
        raise click.BadParameter(f"{keep} cannot be used: {error.strerror}", param_hint="--keep") from error
    if used:
        raise click.BadParameter(f"{keep} is not empty; name a new folder", param_hint="--keep")
    return keep.resolve()


class _Printer:
    """Prints the lines of an act, calmly on a terminal."""

    def __init__(self, *, paced: bool, plain: bool, silent: bool) -> None:
        self._paced, self._silent = paced, silent
        self._color = False if plain or os.environ.get("NO_COLOR") else None  # None: only on a terminal.
        self._begun = False

    def act(self, lines: Iterator[str]) -> None:
        """Print one act, after an empty line unless it is the first."""
        if self._silent:
            return
        if self._begun:
            self._echo("")
        self._begun = True
        for line in lines:
            self._echo(line)

    def _echo(self, line: str) -> None:
        click.echo(line, color=self._color)
        if self._paced:
            time.sleep(LINE_PAUSE_S)


def _play(folder: Path, printer: _Printer) -> dict[str, Any]:
    """Play the acts, print each when its facts are read back, and return the facts."""
    from agent_saga.demo import acts, death, text
    from agent_saga.demo.program import next_commands
    from agent_saga.demo.stage import Stage

    stage = Stage.build(folder)
    first = acts.without_saga(stage)
    printer.act(text.act_one(first))
    second = acts.with_saga(stage)
    printer.act(text.act_two(second))
    third = death.killed_in_the_middle(stage)
    printer.act(text.act_three(third))
    commands = next_commands(stage.log, third.saga_id)
    printer.act(text.next_steps(commands))
    return _facts(stage, first, second, third) | {"next": commands}


def _facts(stage: Stage, first: Played, second: Played, third: ActThree) -> dict[str, Any]:
    last = {
        "saga_id": third.saga_id,
        "key": third.key,
        "killed": asdict(third.killed),
        "probed": third.probed,
        "recovered_after_s": third.recovered_after_s,
        "recoveries": [asdict(recovery) for recovery in third.recoveries],
    }
    return {
        "schema": "agent-saga/demo/1",
        "log": str(stage.log),
        "world": str(stage.world.path),
        "acts": [_played(first), _played(second), _played(third.played) | last],
    }


def _played(played: Played) -> dict[str, Any]:
    return {
        "attempts": [asdict(attempt) for attempt in played.attempts],
        "effects": sum(attempt.effect for attempt in played.attempts),
        "standing": played.standing,
        "report": None if played.report is None else played.report.to_dict(),
    }
