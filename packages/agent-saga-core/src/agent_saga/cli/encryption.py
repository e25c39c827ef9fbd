"""`agent-saga key-ring`, `rewrap` and `shred`: the keys under which the values of a log are encrypted."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from agent_saga.cli.session import FINDING, FINE, Session, log_command, report_error
from agent_saga.cli.terminal import Output, visible
from agent_saga.errors import UsageError


@click.group("key-ring", short_help="Make the keys that encrypt a log, and add new ones.")
def key_ring() -> None:
    """Make the keys that encrypt the values of a log (needs the extra [encrypt]).

    A key ring is a file that only its owner can read: a line for each key, the one in use last. Without it the values
    of encrypted sagas are lost: keep a copy, and not where copies of the log are kept.
    """


@key_ring.command(short_help="Add a new key, which is used from then on; make the file if there is none.")
@click.argument("file")
@click.option("--id", "key_id", metavar="ID", help="The key's name, which logs hold; by default the date and time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
def add(file: str, key_id: str | None, *, as_json: bool) -> None:
    """Add a new random key to FILE. Processes use it when they are started anew; then: agent-saga rewrap."""
    from agent_saga.store.keyring import add_key

    out, path = Output(as_json=as_json), Path(file).absolute()
    key_id = key_id or dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    try:
        add_key(path, key_id)
    except UsageError as error:
        click.get_current_context().exit(report_error(out, error))
    if as_json:
        out.document("key-ring/1", {"file": str(path), "key_id": key_id, "exit": FINE})
        return
    out.line(f"key {visible(key_id)} added to {visible(path, length_max=None)}")
    out.line(f"next: export AGENT_SAGA_KEY_RING={visible(path, length_max=None)}")


@click.command(short_help="Wrap the data keys of a log by the key ring's newest key.")
@log_command()
def rewrap(session: Session) -> int:
    """Wrap the data keys of all sagas by the newest key of the key ring, so that older keys are needed no more.

    No payload is written anew, and sagas may go on meanwhile. Sagas that processes with the old key ring open later are
    found by running it again. Exit code 1: some data keys are wrapped by a key that the ring does not have.
    """
    from agent_saga.audit.rewrap import rewrap as wrap_anew

    with session.writing() as writer:
        ring = session.ring()
        if ring is None:
            raise UsageError("name the key ring: --key-ring FILE, or AGENT_SAGA_KEY_RING")
        done = wrap_anew(writer.store, ring)
    code = FINDING if done.locked else FINE
    if session.out.as_json:
        fields = {"key_id": ring.current, "wrapped": done.wrapped, "kept": done.kept, "locked": done.locked}
        session.out.document("rewrap/1", {"log": session.place, **fields, "exit": code})
        return code
    session.out.line(f"{done.wrapped} data keys wrapped by key {ring.current}; {done.kept} were already")
    for key_id, count in done.locked.items():
        session.out.line(f"{count} are wrapped by key {visible(key_id)}, which is not in the key ring")
    return code


@click.command(short_help="Destroy the data key of an encrypted saga; the log stays verifiable.")
@click.argument("saga")
@click.option("--by", required=True, metavar="NAME", help="Who you are; recorded.")
@click.option("--reason", default="", metavar="TEXT", help="Why; recorded.")
@log_command()
def shred(session: Session, saga: str, by: str, reason: str) -> int:
    """Destroy the data keys and payloads of SAGA (id, beginning of an id, or key) and of what amends it.

    It must be encrypted and sealed; the key ring is not needed. Chains, leaves, proofs and checkpoints stay. Every
    command says from then on who shredded it, and when. It cannot be taken back.
    """
    from agent_saga.audit.prune import shred as destroy
    from agent_saga.cli.find import find_saga

    with session.writing() as writer:
        done = destroy(writer.store, find_saga(writer.store, saga), by=by, reason=reason)
    if session.out.as_json:
        session.out.document("shred/1", {"log": session.place, "sagas": list(done), "exit": FINE})
    else:
        for saga_id in done:
            session.out.line(f"shredded  saga {saga_id}")
    return FINE
