"""`agent-saga export`: the records of a log, checked, as JSON lines."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from agent_saga.cli.session import FINE, Session, log_command
from agent_saga.cli.terminal import visible
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command(short_help="Write the records of a log as JSON lines.")
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "csv", "cloudevents"]), default="jsonl", show_default=True
)
@click.option("--out", metavar="FILE", help="A new file, made when all is written; by default stdout.")
@click.option("--saga", metavar="ID", help="Only this saga, with what amends it.")
@log_command(data=True)
def export(session: Session, form: str, out: str | None, saga: str | None) -> int:
    """Write every record of a log, oldest first, one JSON object on a line, each checked before it is written.

    A line has the record's body (position, saga, number, kind, time in nanoseconds, ...), `values` (arguments,
    results, errors; in the tagged form of the log), `salts` and `commitments` by which the values are committed to,
    and `hash`. At the first damage it stops with exit code 1.
    """
    from agent_saga.cli.find import find_saga
    from agent_saga.cli.forms import as_cloudevents, as_csv
    from agent_saga.cli.lines import log_lines, saga_lines

    with session.reading() as store:
        lines = log_lines(store) if saga is None else saga_lines(store, find_saga(store, saga))
        formed = as_csv(lines) if form == "csv" else as_cloudevents(lines, store.log_id())
        with _target(out) as file:
            count = -1 if form == "csv" else 0  # A header is no record.
            for line in lines if form == "jsonl" else formed:
                file.write(line)
                count += 1
    if session.out.as_json and out is not None:
        fields: dict[str, Any] = {"log": session.place, "format": form, "out": str(Path(out).absolute())}
        session.out.document("export/1", {**fields, "records": count, "exit": FINE})
    else:
        where = "" if out is None else f" to {visible(Path(out).absolute(), length_max=None)}"
        session.out.line(f"{count} records{where}")
    return FINE


@contextlib.contextmanager
def _target(out: str | None) -> Iterator[BinaryIO]:
    """Give the file to write: stdout, a pipe or device that exists, or a file that appears when it is complete."""
    if out is None or out == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    except OSError as error:
        raise UsageError(f"--out {visible(out, length_max=None)}: {error.strerror}") from error
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        raise UsageError(f"--out {visible(out, length_max=None)} exists already: nothing is overwritten")
    with _pipe(path) if mode else _new_file(path) as file:
        yield file


@contextlib.contextmanager
def _pipe(path: Path) -> Iterator[BinaryIO]:
    with path.open("wb") as file:
        yield file


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Write beside the file, and link it to its name at the end: a stopped export leaves nothing that looks whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        file = os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
    except OSError as error:
        raise UsageError(f"--out {visible(path, length_max=None)} cannot be made: {error.strerror}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(partial)
    except FileExistsError:
        raise UsageError(f"--out {visible(path, length_max=None)} exists already: nothing is overwritten") from None
    finally:
        partial.unlink(missing_ok=True)
