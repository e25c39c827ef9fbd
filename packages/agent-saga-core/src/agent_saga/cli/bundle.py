"""`agent-saga bundle`, and what `agent-saga verify --bundle` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_saga.cli.session import FINE, Session, log_command
from agent_saga.cli.terminal import visible
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from agent_saga.audit.note import Checkpoint
    from agent_saga.cli.terminal import Output


@click.command(short_help="Write the log as read-only files with digests, to archive.")
@click.argument("folder")
@click.option("--key", metavar="FILE", help="Sign its checkpoint with this private key (`agent-saga keys new`).")
@click.option("--name", help="The name under which the key signs; by default the log's origin.")
@log_command()
def bundle(session: Session, folder: str, key: str | None, name: str | None) -> int:
    """Verify the log, and write it into FOLDER, a new folder: tables as JSON lines, a checkpoint, and SHA256SUMS.

    The same log gives the same bytes, so two bundles of one moment are equal. Put FOLDER on storage that keeps what is
    written (object lock, tape, write-once disk): its files are read-only, which stops accidents only. Check it there
    with `sha256sum -c SHA256SUMS`, which knows nothing of sagas, or with `agent-saga verify --bundle FOLDER`.
    """
    from agent_saga.audit.bundle import write_bundle
    from agent_saga.audit.note import sign, verifier_of
    from agent_saga.cli.keys import read_key

    private = None if key is None else read_key(key)

    def signed(checkpoint: Checkpoint) -> str:
        text = checkpoint.text()
        return text if private is None else sign(text, name or checkpoint.origin, private)

    with session.reading() as store:
        path = Path(store.location)
    if not path.is_file():
        raise UsageError(f"{session.place} is no file, and only a log in a file can be bundled")
    to = Path(folder).absolute()
    checkpoint = write_bundle(path, to, signed=signed)
    public = None if private is None else verifier_of(name or checkpoint.origin, private).text()
    if session.out.as_json:
        fields = {"log": session.place, "folder": str(to), "origin": checkpoint.origin, "size": checkpoint.size}
        fields |= {"root": checkpoint.root.hex(), "verifier": public, "exit": FINE}
        session.out.document("bundle/1", fields)
        return FINE
    session.out.line(f"bundled     {checkpoint.size} sealed sagas into {visible(to, length_max=None)}")
    session.out.line(f"checkpoint  {'not signed' if public is None else 'public key: ' + public}")
    return FINE


def verify_bundle(out: Output, folder: str, key: str | None) -> int:
    """Check a bundle, and print what was found.

    Raises:
        SagaError: it is none, or something in it was changed.
    """
    from agent_saga.audit.bundle import check_bundle
    from agent_saga.cli.evidence import verifier_in

    report, checkpoint = check_bundle(Path(folder), verifier=verifier_in(key))
    checked = ["bundle: each file has the digest in SHA256SUMS, and there is no other", *report.checked]
    checked.append("bundle: the records are those of its checkpoint, to the last one")
    unchecked = [line for line in report.unchecked if "mark" not in line]
    if key is None:
        unchecked.append("who made the bundle: name the key that signed its checkpoint (--key)")
    else:
        checked.append("bundle: its checkpoint is signed by that key")
    if out.as_json:
        fields = {"bundle": str(Path(folder).absolute()), "undamaged": True, "sagas": report.sagas}
        fields |= {"records": report.records, "origin": checkpoint.origin, "checked": checked}
        out.document("verify/1", {**fields, "not_checked": unchecked, "exit": FINE})
        return FINE
    for line in checked:
        out.line(f"checked      {line}")
    for line in unchecked:
        out.line(f"{out.paint('not checked', 'yellow')}  {line}")
    out.line(f"{out.paint('no damage found', 'green')}: {report.records} records of {report.sagas} sagas")
    return FINE
