"""`agent-saga verify`: everything that can be checked, and what could not be."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import TYPE_CHECKING

import click

from agent_saga.cli.session import FINE, Session, log_command
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_ANCHOR = "a rewrite of the whole log, or a cut of its end: give a checkpoint that was kept elsewhere (--anchor)"


@click.command(short_help="Check every record, chain and derived row of a log.")
@click.option("--anchor", metavar="FILE", help="A checkpoint of the log that was kept elsewhere.")
@click.option("--bundle", metavar="FOLDER", help="Check this bundle instead of a log.")
@click.option("--key", metavar="KEY", help="The public key that must have signed it (name+id+base64, or a file).")
@log_command()
def verify(session: Session, anchor: str | None, bundle: str | None, key: str | None) -> int:
    """Check a log: every record, chain, payload, position, derived row, key and leaf, as far as it had come.

    Live processes may write it meanwhile. Exit code 1 names the first damage: saga, record and reason. Without --anchor
    nothing can tell that the whole log was written anew, or that its newest records were removed together with what
    beside it says so.
    """
    if bundle is not None:
        from agent_saga.cli.bundle import verify_bundle

        if anchor is not None:
            raise UsageError("--anchor is about a log, and a bundle has a checkpoint of its own: give --key")
        return verify_bundle(session.out, bundle, key)
    from agent_saga.cli.evidence import check_anchor_file
    from agent_saga.store.verify import verify as verify_log

    with session.reading() as store, progress_bar(quiet=session.out.as_json) as progress, uncollected():
        report = verify_log(store, progress=progress, processes=processors())
        shown = [] if anchor is None else check_anchor_file(store, anchor, key)
    checked = [*report.checked, *shown]
    unchecked = [*report.unchecked, *([] if anchor else [NO_ANCHOR])]
    if session.out.as_json:
        session.out.document(
            "verify/1",
            {
                "log": session.place,
                "undamaged": True,
                "sagas": report.sagas,
                "records": report.records,
                "checked": checked,
                "not_checked": unchecked,
                "exit": FINE,
            },
        )
        return FINE
    for line in checked:
        session.out.line(f"checked      {line}")
    for line in unchecked:
        session.out.line(f"{session.out.paint('not checked', 'yellow')}  {line}")
    verdict = session.out.paint("no damage found", "green")
    session.out.line(f"{verdict}: {report.records} records of {report.sagas} sagas")
    return FINE


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector of cycles from looking at millions of records, none of which is part of a cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextlib.contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on stderr while a terminal is there to see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TextColumn("records"), TimeRemainingColumn())
    # Drawn when something is done, and not by a thread of its own: a process with threads cannot be forked safely.
    with Progress(*shown, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("verify", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total, refresh=True)
