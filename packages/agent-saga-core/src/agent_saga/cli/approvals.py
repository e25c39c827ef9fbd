"""`agent-saga approvals`: what waits for somebody's word, and giving it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_saga.cli.session import FINE, Session, log_command
from agent_saga.cli.terminal import Output, columns, moment, visible
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga.machine.gate import ApprovalView
    from agent_saga.store.port import LogStore

_COLOURS = {"pending": "yellow", "approved": "green", "consumed": "green"}


@click.group(short_help="Show and answer calls that wait for an approval.")
def approvals() -> None:
    """Show and answer calls that wait for an approval.

    A word counts for one call, as it is shown, and is used once. A request ends by a rejection, with its time, or with
    its saga.
    """


@approvals.command("list", short_help="List the requests that wait, and the words that were not used yet.")
@log_command()
def list_(session: Session) -> int:
    """List the requests that wait, and those that are approved and not used yet, oldest first."""
    from agent_saga.runtime.operators import as_json, open_requests

    with session.reading() as store:
        found = open_requests(store)
    if session.out.as_json:
        told = [as_json(known) for known in found]
        session.out.document("approvals/1", {"log": session.place, "approvals": told, "exit": FINE})
        return FINE
    if not found:
        session.out.line("no requests for approval")
        return FINE
    head = ("APPROVAL", "STATE", "WORDS", "UNTIL", "TOOL", "REASON")
    lines = columns([head, *map(_cells, found)])
    session.out.line(session.out.paint(lines[0], "bold"))
    for known, line in zip(found, lines[1:], strict=True):
        session.out.line(session.out.paint(line, _COLOURS[known.state]))
    session.out.line(f"next: {session.command_line('approvals', 'show', found[0].id)}")
    return FINE


def _cells(known: ApprovalView) -> tuple[str, ...]:
    request = known.request
    words = f"{len(known.approved_by)} of {request.quorum}{', signed' if request.signed else ''}"
    reason = visible(request.reason, length_max=80)
    return known.id, _state(known), words, moment(request.expires_at), visible(request.tool), reason


def _state(known: ApprovalView) -> str:
    from agent_saga.runtime.clock import clock

    late = known.state in {"pending", "approved"} and known.request.expires_at <= clock().time_ns()
    return f"{known.state}, over" if late else known.state


@approvals.command(short_help="Show a request with all arguments of the call.")
@click.argument("approval")
@log_command()
def show(session: Session, approval: str) -> int:
    """Show APPROVAL (its id): the call with all its arguments, in full, who said what, and what can be done.

    The digest that words are bound to is checked against the call that is shown.
    """
    from agent_saga.gates import UIConfirmationArtifact
    from agent_saga.runtime.operators import as_json, check_digest

    with session.reading() as store:
        known = _find(store, approval)
        check_digest(store, known)
    if session.out.as_json:
        card = UIConfirmationArtifact.of_request(known).to_dict()
        session.out.document("approval/1", {"log": session.place, **as_json(known), "card": card, "exit": FINE})
        return FINE
    for line in _told(session, known):
        session.out.line(line)
    return FINE


def _find(store: LogStore, text: str) -> ApprovalView:
    """Return the request that `text` names: its id, where a key, or the beginning of an id, may stand for the saga."""
    from agent_saga.cli.find import find_saga
    from agent_saga.runtime.operators import find_approval

    saga, colon, number = text.rpartition(":")
    try:
        return find_approval(store, f"{find_saga(store, saga)}:{number}" if colon and saga else text)[1]
    except LookupError as error:
        raise UsageError(f"{visible(str(error), length_max=None)}; see: agent-saga approvals list") from None


def _told(session: Session, known: ApprovalView) -> Iterator[str]:
    request, out = known.request, session.out
    yield f"approval {known.id}: {out.paint(_state(known), _COLOURS.get(known.state, 'dim'))}"
    yield f"  tool      {out.paint(visible(request.tool, length_max=None), 'bold')}, {request.effect}"
    yield f"  because   {visible(request.reason, length_max=None)} ({visible(request.policy)})"
    yield f"  saga      {request.saga}"
    yield f"  asked     {moment(request.at)}, until {moment(request.expires_at)}"
    yield f"  needs     {_needs(known)}"
    yield f"  digest    {request.digest}, of exactly this call"
    yield "  arguments" if known.kwargs else "  arguments none"
    for name, text in known.kwargs.items():
        yield from _argument(name, text)
    for word in known.decided:
        note = f": {visible(word.note, length_max=None)}" if word.note else ""
        signed = ", signed" if word.signature else ""
        yield f"  {word.decision} by {visible(word.by)}{signed}, {moment(word.at)}{note}"
    if known.state in {"pending", "approved"}:
        key = ("--key", "FILE") if request.signed else ()
        yield f"next: {session.command_line('approvals', 'approve', known.id, '--by', 'NAME', *key)}"
        yield f"  or: {session.command_line('approvals', 'reject', known.id, '--by', 'NAME', '--note', 'WHY')}"


def _needs(known: ApprovalView) -> str:
    request = known.request
    words = f"{request.quorum} different people" if request.quorum > 1 else "one word"
    return words + (", signed with registered keys" if request.signed else "")


def _argument(name: str, text: str) -> Iterator[str]:
    """Yield an argument in full, nested values a line each, in the log's own form (docs/log-format.md)."""
    import json

    shown = json.dumps(json.loads(text), indent=2, ensure_ascii=False).split("\n")
    yield f"    {visible(name, length_max=None)} = {visible(shown[0], length_max=None)}"
    yield from (f"    {visible(line, length_max=None)}" for line in shown[1:])


def _word(fn: Callable[..., int]) -> Callable[..., None]:
    """Add what both words have."""
    command = log_command()(fn)
    command = click.option("--key", metavar="FILE", help="A file with an Ed25519 private key: signs the word.")(command)
    command = click.option("--note", default="", metavar="TEXT", help="Recorded, and shown to the caller.")(command)
    command = click.option("--by", required=True, metavar="NAME", help="Who you are; recorded.")(command)
    return click.argument("approval")(command)


@approvals.command(short_help="Let the call run, once.")
@_word
def approve(session: Session, approval: str, by: str, note: str, key: str | None) -> int:
    """Say that the call of APPROVAL may run, as it is shown, once. Look at it first: agent-saga approvals show."""
    return _decide(session, approval, "approved", by, note, key)


@approvals.command(short_help="Say that the call may not run.")
@_word
def reject(session: Session, approval: str, by: str, note: str, key: str | None) -> int:
    """Say that the call of APPROVAL may not run. This takes an approval back that was not used yet."""
    return _decide(session, approval, "rejected", by, note, key)


def _decide(  # noqa: PLR0917 - private, and called with the options at hand.
    session: Session, approval: str, decision: str, by: str, note: str, key: str | None
) -> int:
    from agent_saga.cli.keys import read_key
    from agent_saga.runtime.operators import as_json, decide_approval

    private_key = None if key is None else read_key(key)
    with session.writing() as writer:
        known = decide_approval(
            writer, _find(writer.store, approval).id, decision, by=by, note=note, private_key=private_key
        )
    if session.out.as_json:
        session.out.document("approval/1", {"log": session.place, **as_json(known), "exit": FINE})
    else:
        _say(session.out, known, decision, by)
    return FINE


def _say(out: Output, known: ApprovalView, decision: str, by: str) -> None:
    needed = known.request.quorum - len(known.approved_by)
    waits = f"; {needed} more needed" if decision == "approved" and needed > 0 else ""
    out.line(f"approval {known.id}: {decision} by {visible(by.strip())}, now {known.state}{waits}")
