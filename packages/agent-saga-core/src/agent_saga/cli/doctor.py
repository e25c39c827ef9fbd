"""`agent-saga doctor`: is this deployment one that can be recovered?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from agent_saga.cli.session import FINDING, FINE, Session, report_error
from agent_saga.cli.terminal import Output, visible
from agent_saga.errors import LogMissing, SagaError, UsageError


@click.command(short_help="Look for what would keep a crash from being recovered.")
@click.option("--log", "url", envvar="AGENT_SAGA_LOG", default="./agent-saga.db", show_default=True, metavar="PATH")
@click.option("--against", metavar="LOG", help="Compare the loaded code with the open sagas of this log instead.")
@click.option("--import", "imports", multiple=True, metavar="M", help="A module or file to load; repeatable.")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
def doctor(url: str, against: str | None, imports: tuple[str, ...], *, strict: bool, as_json: bool) -> None:
    """Look at the log's place, the declarations, and the open sagas; say what is wrong, with the numbers.

    Exit code 1: a blocker was found (with --strict: or a warning).
    """
    out = Output(as_json=as_json)
    try:
        code = _doctor(out, url, against or url, imports, strict=strict)
    except SagaError as error:
        code = report_error(out, error)
    click.get_current_context().exit(code)


def _doctor(out: Output, url: str, against: str, imports: tuple[str, ...], *, strict: bool) -> int:
    from agent_saga.cli.checks import Finding, check_handlers, check_log, check_place, check_undecided
    from agent_saga.cli.imports import load_handlers

    found = [*check_place(url), *check_undecided(Path())]
    try:
        load_handlers(imports)
    except UsageError as error:
        found.append(
            Finding(level="blocker", code="not-importable", text=str(error), todo="recovery loads the same modules")
        )
    found += check_handlers()
    read = "not there yet"
    if against != "memory:":
        try:
            with Session(out, against, allow_fs=True).reading() as store:
                found += check_log(store)
                read = "read"
        except LogMissing:
            pass
    bad = [one for one in found if strict or one.level == "blocker"]
    if out.as_json:
        out.document(
            "doctor/1", {"findings": [asdict(one) for one in found], "log": read, "exit": FINDING if bad else FINE}
        )
    for one in [] if out.as_json else found:
        out.line(f"{one.level}: {one.code}: {visible(one.text, length_max=400)}")
        out.line(f"  next: {visible(one.todo, length_max=200)}")
    if not out.as_json:
        blockers = sum(one.level == "blocker" for one in found)
        out.line(f"{blockers} blockers, {len(found) - blockers} warnings; the log was {read}")
    return FINDING if bad else FINE
