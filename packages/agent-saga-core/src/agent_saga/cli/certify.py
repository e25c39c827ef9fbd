"""`agent-saga certify`: is every effect in the log accounted for?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_saga.cli.session import FINDING, FINE, Session, log_command
from agent_saga.cli.terminal import visible
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from agent_saga.audit.certify import Certificate


@click.command(short_help="Certify that every effect in the log is accounted for.")
@click.option("--saga", metavar="ID", help="Only this saga, with what amends it.")
@click.option("--anchor", metavar="FILE", help="A checkpoint of the log that was kept elsewhere.")
@click.option("--key", metavar="KEY", help="The public key that must have signed the anchor.")
@click.option("--import", "imports", multiple=True, metavar="MODULE", help="Load the compensators from here.")
@click.option("--out", metavar="FILE", help="Also write the certificate here, as JSON; nothing is overwritten.")
@log_command()
def certify(
    session: Session,
    *,
    saga: str | None,
    anchor: str | None,
    key: str | None,
    imports: tuple[str, ...],
    out: str | None,
) -> int:
    """Verify the log, and look at every effect in it. Exit code 0 only when each one is accounted for.

    A finding is: an effect that stands as an orphan, in doubt, with a conflict or with a compensation that fails; a
    saga that nobody finishes, or is past its deadline; a compensation that is still needed and has no handler; an empty
    or damaged log. What could not be checked is listed apart: it is neither fine nor found.
    """
    from agent_saga.audit.certify import certify as make_certificate
    from agent_saga.audit.note import parse_checkpoint
    from agent_saga.cli.evidence import opened_note
    from agent_saga.cli.find import find_saga
    from agent_saga.cli.imports import load_handlers
    from agent_saga.cli.verify import processors, progress_bar, uncollected

    loaded = load_handlers(imports)
    trusted = None if anchor is None else parse_checkpoint(opened_note(anchor, key))
    with session.reading() as store, progress_bar(quiet=session.out.as_json) as progress, uncollected():
        certificate = make_certificate(
            store,
            saga_id=None if saga is None else find_saga(store, saga),
            anchor=trusted,
            handlers=bool(loaded),
            progress=progress,
            processes=processors(),
        )
    code = FINE if certificate.certified else FINDING
    document = {"log": session.place, "certificate": certificate.to_dict(), "exit": code}
    if out is not None:
        _write(out, json.dumps({"schema": "agent-saga/certify/1", **document}, indent=2) + "\n")
    if session.out.as_json:
        session.out.document("certify/1", document)
    else:
        _say(session, certificate)
    return code


def _write(file: str, text: str) -> None:
    try:
        with Path(file).open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise UsageError(f"--out {visible(file, length_max=None)} cannot be made: {error.strerror}") from error


def _say(session: Session, certificate: Certificate) -> None:
    out = session.out
    for line in certificate.checked:
        out.line(f"checked      {line}")
    for line in certificate.not_checked:
        out.line(f"{out.paint('not checked', 'yellow')}  {line}")
    for finding in certificate.findings:
        where = (
            "" if finding.saga_id is None else f"{finding.saga_id}{'' if finding.step is None else f':{finding.step}'} "
        )
        out.line(f"{out.paint('found', 'red')}        {where}{visible(finding.text, length_max=None)}")
        if finding.saga_id is not None:
            out.line(f"             next: {session.command_line('show', finding.saga_id)}")
    effects = ", ".join(f"{count} {bucket.replace('_', ' ')}" for bucket, count in certificate.effects.items() if count)
    out.line(f"effects      {effects or 'none'}")
    out.line(f"tree         {certificate.size} leaves, root {certificate.root}")
    if certificate.certified:
        verdict = out.paint("certified: every effect is accounted for", "green")
    else:
        verdict = out.paint(f"not certified: {len(certificate.findings)} findings", "red")
    out.line(f"{verdict} ({certificate.records} records of {certificate.sagas} sagas)")
