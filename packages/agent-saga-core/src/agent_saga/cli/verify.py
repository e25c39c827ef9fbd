"""`agent-saga verify`: everything that can be checked, and what could not be."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from agent_saga.cli.session import FINE, Session, log_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@click.command(short_help="Check every record, chain and derived row of a log.")
@log_command()
def verify(session: Session) -> int:
    """Check a log: every record, chain, payload, position, derived row, key and leaf, as far as it had come.

    Live processes may write it meanwhile. Exit code 1 names the first damage: saga, record and reason.
    """
    from agent_saga.store.verify import verify as verify_log

    with session.reading() as store, _progress(quiet=session.out.as_json) as progress:
        report = verify_log(store, progress=progress)
    if session.out.as_json:
        session.out.document(
            "verify/1",
            {
                "log": session.place,
                "undamaged": True,
                "sagas": report.sagas,
                "records": report.records,
                "checked": list(report.checked),
                "not_checked": list(report.unchecked),
                "exit": FINE,
            },
        )
        return FINE
    for line in report.checked:
        session.out.line(f"checked      {line}")
    for line in report.unchecked:
        session.out.line(f"{session.out.paint('not checked', 'yellow')}  {line}")
    verdict = session.out.paint("no damage found", "green")
    session.out.line(f"{verdict}: {report.records} records of {report.sagas} sagas")
    return FINE


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on stderr while a terminal is there to see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TextColumn("records"), TimeRemainingColumn())
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verify", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
