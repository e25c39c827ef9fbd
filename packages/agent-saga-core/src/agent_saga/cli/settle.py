"""`agent-saga settle`: a human's word about a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agent_saga.cli.session import FINE, Session, log_command
from agent_saga.cli.terminal import visible
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from agent_saga.cli.next_steps import WorkItem
    from agent_saga.machine.view import SagaView

WORDS = ("happened", "did-not-happen", "compensated-by-hand", "accept")


@click.command(short_help="Record what a human found out about a step.")
@click.argument("saga")
@click.argument("step")
@click.option(
    "--as",
    "verdict",
    required=True,
    type=click.Choice(WORDS),
    help="happened: the next recovery compensates it. did-not-happen: there is no effect. compensated-by-hand: "
    "somebody compensated it. accept: it stays as it is.",
)
@click.option("--evidence", required=True, metavar="TEXT", help="What you saw; recorded.")
@click.option("--by", required=True, metavar="NAME", help="Who you are; recorded.")
@click.option("--result", metavar="JSON", help="For `happened`: what the call returned; its compensation needs it.")
@log_command()
def settle(session: Session, *, saga: str, step: str, verdict: str, evidence: str, by: str, result: str | None) -> int:
    """Record what a human found out about STEP (its number) of SAGA (id, beginning of an id, or key).

    The word becomes part of the log, and cannot be taken back. Nothing is run: `agent-saga recover` goes on from it.
    """
    import json

    from agent_saga.cli.find import find_saga, step_number
    from agent_saga.cli.next_steps import VALUE, work_items
    from agent_saga.runtime.verdict import settle_by_hand

    for option, text in (("--evidence", evidence), ("--by", by)):
        if not text.strip():
            raise UsageError(f"{option} is empty: it is recorded, so that others can follow what you found")
    if result is not None and verdict != "happened":
        raise UsageError(f"--result belongs to --as happened, not to --as {verdict}")
    if result is not None and json.dumps(VALUE) in result:
        raise UsageError(f"write what the call returned in the place of {VALUE}: its compensation is bound from that")
    with session.writing() as writer:
        saga_id = find_saga(writer.store, saga)
        number = step_number(step)
        try:
            view = settle_by_hand(writer, saga_id, number, verdict, evidence=evidence, by=by, result=result)
        except LookupError as error:
            raise UsageError(str(error)) from error
    items = work_items(view, session.command_line)
    _tell(session, view, number, items)
    return FINE


def _tell(session: Session, view: SagaView, number: int, items: list[WorkItem]) -> None:
    from agent_saga.cli.next_steps import lines_of, recover_command

    out, step = session.out, view.steps[number]
    unfinished = not view.ended
    if out.as_json:
        fields: dict[str, Any] = {"log": session.place, "saga": view.id, "step": number, "state": step.state.value}
        fields["left"] = [item.to_dict() for item in items]
        if unfinished:
            fields["next"] = recover_command(view.id, session.command_line)
        out.document("settle/1", {**fields, "exit": FINE})
        return
    out.line(f"saga {view.id}, step {number} {visible(step.tool)}: {visible(step.reason)}")
    if unfinished:
        out.line(f"the saga is {view.state.value.replace('_', ' ')}")
        out.line(f"  next: {recover_command(view.id, session.command_line)}")
    elif not items:
        out.line("nothing is left of this saga")
    for item in items:
        for line in lines_of(item):
            out.line(line)
