"""`agent-saga keys`: the Ed25519 keys by which words on approvals are signed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_saga.cli.session import FINE, Session, log_command, report_error
from agent_saga.cli.terminal import Output, columns, moment, visible
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from agent_saga.store.port import LogStore

_KEY_BYTES_MAX = 4096


@click.group(short_help="Make and register keys for signed approvals.")
def keys() -> None:
    """Make and register keys for signed approvals (needs the extra [keys]).

    A private key stays with its owner; the log holds the public one, under the name that `--by` of an approval says.
    """


@keys.command(short_help="Make a key: the private one into a new file.")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
def new(file: str, *, as_json: bool) -> None:
    """Make a key. The private one goes into FILE, a new file that only you can read; the public one is printed."""
    out = Output(as_json=as_json)
    try:
        public = _make(Path(file))
    except UsageError as error:
        click.get_current_context().exit(report_error(out, error))
    if as_json:
        out.document("key/1", {"file": str(Path(file).absolute()), "public": public, "exit": FINE})
        return
    out.line(f"private key: {visible(Path(file).absolute(), length_max=None)}")
    out.line(f"public key:  {public}")
    out.line(f"next: agent-saga keys add NAME {public} --by OPERATOR")


def _make(path: Path) -> str:
    from agent_saga.runtime.signatures import make_key

    private, public = make_key()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(private + "\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}; no key was kept") from error
    return public


def read_key(file: str) -> str:
    """Return the private key in a file.

    Raises:
        UsageError: it cannot be read, or holds no key.
    """
    from agent_saga.runtime.signatures import public_of

    try:
        with Path(file).open("rb") as opened:
            text = opened.read(_KEY_BYTES_MAX).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the key {file!r} cannot be read: {error}") from error
    public_of(text)  # Says what is wrong with it, without showing it.
    return text


@keys.command(short_help="Register the public key of a person.")
@click.argument("name")
@click.argument("public")
@click.option("--by", required=True, metavar="NAME", help="Who registers it; recorded.")
@click.option("--reason", default="", metavar="TEXT", help="Recorded.")
@log_command()
def add(session: Session, name: str, public: str, by: str, reason: str) -> int:
    """Register PUBLIC (hex) as a key of NAME; signed words of NAME count from now on. One may have several keys."""
    from agent_saga.runtime.operators import act

    with session.writing() as writer:
        saga_id = act(writer, "key_added", name, by=by, reason=reason, data=public)
    if session.out.as_json:
        fields = {"log": session.place, "name": name.strip(), "saga": saga_id, "exit": FINE}
        session.out.document("key_added/1", fields)
    else:
        session.out.line(f"a key of {visible(name.strip())} is registered, in saga {saga_id}")
    return FINE


@keys.command(short_help="Remove the keys of a person.")
@click.argument("name")
@click.option("--by", required=True, metavar="NAME", help="Who removes them; recorded.")
@click.option("--reason", default="", metavar="TEXT", help="Recorded.")
@log_command()
def remove(session: Session, name: str, by: str, reason: str) -> int:
    """Remove all keys of NAME; words that they signed, and that were not used yet, count no more."""
    from agent_saga.runtime.operators import lift

    with session.writing() as writer:
        removed = lift(writer, name.strip(), by=by, reason=reason, kinds=("key",))
    if not removed:
        raise UsageError(f"{name.strip()!r} has no registered key; see: agent-saga keys list")
    if session.out.as_json:
        fields = {"log": session.place, "name": name.strip(), "removed": removed, "exit": FINE}
        session.out.document("key_removed/1", fields)
    else:
        session.out.line(f"{removed} key{'' if removed == 1 else 's'} of {visible(name.strip())} removed")
    return FINE


@keys.command("list", short_help="List the registered keys.")
@log_command()
def list_(session: Session) -> int:
    """List the registered keys, from the records of those who registered them."""
    with session.reading() as store:
        found = _registered(store)
    if session.out.as_json:
        session.out.document("keys/1", {"log": session.place, "keys": found, "exit": FINE})
        return FINE
    if not found:
        session.out.line("no keys")
        return FINE
    head = ("NAME", "KEY", "SINCE", "BY")
    rows = [(visible(key["name"]), key["public"], moment(key["at"]), visible(key["by"])) for key in found]
    for line in columns([head, *rows]):
        session.out.line(line)
    return FINE


def _registered(store: LogStore) -> list[dict[str, Any]]:
    from agent_saga.store.reader import load

    found = []
    for fact in store.facts("key"):
        loaded = load(store, fact.saga_id)
        gate = None if loaded is None else loaded.view.gate
        action = None if gate is None or gate.lifted else gate.action
        if action is not None and action.action == "key_added":
            names = {"name": action.scope, "public": action.data, "by": action.by, "at": action.at}
            found.append({**names, "saga": fact.saga_id})
    return found
