"""`agent-saga checkpoint`, `audit-root`, `prove` and `verify-proof`: evidence for those who do not have the log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_saga.cli.session import FINE, Session, log_command, report_error
from agent_saga.cli.terminal import Output, visible
from agent_saga.errors import CorruptLog, SagaError, UsageError

if TYPE_CHECKING:
    from agent_saga.audit.note import Verifier
    from agent_saga.audit.proof import Proven
    from agent_saga.store.port import LogStore

_FILE_BYTES_MAX = 1 << 30


@click.command(name="audit-root", short_help="Print the root of the log's tree of sealed sagas.")
@click.option("--since", metavar="FILE", help="Also print the proof that this checkpoint's tree is a beginning of it.")
@log_command()
def audit_root(session: Session, since: str | None) -> int:
    """Verify the log, and print the root of its Merkle tree (RFC 9162): a leaf for each sealed saga, in that order.

    With --since, also a consistency proof (section 2.1.4) from the tree of an earlier checkpoint to this one: hashes in
    hex, by which somebody without the log can tell that nothing that was in that tree was changed or removed.
    """
    from agent_saga.audit.anchor import check_anchor
    from agent_saga.audit.leaves import checkpoint_of, leaves_of
    from agent_saga.audit.note import parse_checkpoint
    from agent_saga.audit.tree import consistency_path, root_of

    old = None if since is None else parse_checkpoint(opened_note(since, None))
    with session.reading() as store:
        now = checkpoint_of(store)
        _verified(store)
        leaves = leaves_of(store)[: now.size]
        if old is not None:
            check_anchor(store, old, leaves)
    if root_of(leaves) != now.root:
        raise CorruptLog("its tree changed while it was read")
    path = [] if old is None else [digest.hex() for digest in consistency_path(old.size, leaves)]
    if session.out.as_json:
        fields: dict[str, Any] = {"log": session.place, "origin": now.origin, "size": now.size, "root": now.root.hex()}
        if old is not None:
            fields["consistency"] = {"size": old.size, "root": old.root.hex(), "path": path}
        session.out.document("audit-root/1", {**fields, "exit": FINE})
        return FINE
    session.out.line(f"{now.root.hex()} over {now.size} sealed sagas of {now.origin}")
    if old is not None:
        session.out.line(f"extends {old.root.hex()} over {old.size}, by {len(path)} hashes")
        for digest in path:
            session.out.line(f"  {digest}")
    return FINE


def _verified(store: LogStore) -> None:
    """Verify a whole log, so that nothing is said of rows that nobody has checked.

    Raises:
        CorruptLog: it is damaged.
    """
    from agent_saga.cli.verify import processors, uncollected
    from agent_saga.store.verify import verify

    with uncollected():
        verify(store, processes=processors())


@click.command(short_help="Verify the log, and print a signed checkpoint of it to keep elsewhere.")
@click.option("--key", metavar="FILE", required=True, help="The private key, as `agent-saga keys new` makes it.")
@click.option("--name", help="The name under which the key signs; by default the log's origin.")
@click.option("--anchor", metavar="FILE", help="An earlier checkpoint: the log must be an extension of it.")
@log_command(data=True)
def checkpoint(session: Session, key: str, name: str | None, anchor: str | None) -> int:
    """Verify the log, then print a checkpoint of it on stdout: a signed note (C2SP tlog-checkpoint).

    Keep it where whoever writes the log cannot write, or publish it. `agent-saga verify --anchor FILE` later tells
    whether the log was cut, or written anew. The public key is printed on stderr, in the form that verifiers take.
    """
    from agent_saga.audit.leaves import checkpoint_of
    from agent_saga.audit.note import sign, verifier_of
    from agent_saga.cli.keys import read_key

    private = read_key(key)
    with session.reading() as store:
        now = checkpoint_of(store)  # First: what live processes add meanwhile is verified with the rest.
        signer = name or now.origin
        verifier_of(signer, private)
        _verified(store)
        if anchor is not None:
            check_anchor_file(store, anchor, None)
    note = sign(now.text(), signer, private)
    public = verifier_of(signer, private).text()
    if session.out.as_json:
        session.out.document("checkpoint/1", {"log": session.place, "note": note, "verifier": public, "exit": FINE})
        return FINE
    sys.stdout.write(note)
    sys.stdout.flush()
    session.out.line(f"public key: {public}")
    return FINE


def check_anchor_file(store: Any, file: str, key: str | None) -> list[str]:
    """Check a log against the checkpoint in a file; return what that shows, a line each.

    Raises:
        UsageError: the file holds no checkpoint of this log.
        BadEvidence: `key` did not sign it.
        CorruptLog: the log is no extension of it.
    """
    from agent_saga.audit.anchor import check_anchor
    from agent_saga.audit.leaves import leaves_of
    from agent_saga.audit.note import parse_checkpoint

    return check_anchor(store, parse_checkpoint(opened_note(file, key)), leaves_of(store))


def opened_note(file: str, key: str | None) -> str:
    """Return the text of the note in a file; with a key, only if that key signed it.

    Raises:
        UsageError: it cannot be read, or is no note.
        BadEvidence: it is not signed by that key.
    """
    from agent_saga.audit.note import open_note

    verifier = verifier_in(key)
    return read_text(file) if verifier is None else open_note(read_text(file), verifier)


def verifier_in(key: str | None) -> Verifier | None:
    """Return the public key that an option names, by its text or a file with it; None without one."""
    from agent_saga.audit.note import verifier_key

    return None if key is None else verifier_key(key if "+" in key else read_text(key))


@click.command(short_help="Prove one sealed saga to somebody who does not get the log.")
@click.argument("saga")
@click.option(
    "--withhold", multiple=True, metavar="NAME", help="Do not show this value: kwargs.card, kwargs.*, result."
)
@click.option("--checkpoint", "note", metavar="FILE", help="A checkpoint that contains it; by default the present one.")
@log_command(data=True)
def prove(session: Session, saga: str, withhold: tuple[str, ...], note: str | None) -> int:
    """Print a proof of SAGA on stdout: all its records, and the path from its leaf to the root of a checkpoint.

    It shows the whole saga, to its closing record, and nothing of any other. Values that are withheld stay committed
    to: they can be shown later, and cannot be changed. Check it with `agent-saga verify-proof`.
    """
    from agent_saga.audit.proof import prove as make_proof
    from agent_saga.cli.find import find_saga

    with session.reading() as store:
        text = None if note is None else read_text(note)
        if note is None:  # The checkpoint is made here, of rows that stand for all other sagas.
            _verified(store)
        document = make_proof(store, find_saga(store, saga), withhold=withhold, note=text)
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    sys.stdout.flush()
    return FINE


@click.command(name="verify-proof", short_help="Check a proof, without the log.")
@click.argument("file")
@click.option("--checkpoint", "note", metavar="FILE", help="The checkpoint that you trust, instead of the proof's own.")
@click.option("--key", metavar="KEY", help="The public key that must have signed it (name+id+base64, or a file).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
def verify_proof(file: str, note: str | None, key: str | None, *, as_json: bool) -> None:
    """Check the proof in FILE, as `agent-saga prove` made it; - reads stdin.

    Without --key it shows only that the proof fits its own checkpoint, which anybody can make.
    """
    from agent_saga.audit.proof import check_proof

    out = Output(as_json=as_json)
    try:
        document = json.loads(read_text(file))
        text = None if note is None else read_text(note)
        proven = check_proof(document, verifier=verifier_in(key), checkpoint=text)
    except ValueError as error:
        click.get_current_context().exit(report_error(out, UsageError(f"{file} is no proof: {error}")))
    except SagaError as error:
        click.get_current_context().exit(report_error(out, error))
    _say(out, proven)


def _say(out: Output, proven: Proven) -> None:
    from agent_saga.machine.report import report_of

    report = report_of(proven.view)
    trusted = proven.checkpoint
    if out.as_json:
        fields = {"origin": trusted.origin, "size": trusted.size, "root": trusted.root.hex()}
        fields |= {"signed_by": proven.signed_by, "records": proven.records, "withheld": proven.withheld}
        out.document("verify-proof/1", {**fields, "report": report.to_dict(), "exit": FINE})
        return
    signed = f"signed by {proven.signed_by}" if proven.signed_by else "NOT signed by a key that you named (--key)"
    out.line(f"proved: the {proven.records} records of saga {proven.view.id}, complete to its closing record")
    out.line(f"checkpoint: {trusted.size} sealed sagas of {trusted.origin}, {signed}")
    out.line(f"withheld values: {proven.withheld}")
    out.line("not shown: whether more facts amend it, that came later or were left out")
    out.line()
    for line in report.format_text().splitlines():
        out.line(visible(line, length_max=None))


def read_text(file: str) -> str:
    """Return the text of a file; - is stdin.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        if file == "-":
            return sys.stdin.read()
        with Path(file).open("rb") as opened:
            return opened.read(_FILE_BYTES_MAX).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{visible(file, length_max=None)} cannot be read: {error}") from error
