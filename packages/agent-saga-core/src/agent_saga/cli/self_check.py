"""`agent-saga self-check`: the installed engine is broken in every small way, and its promises are checked."""

from __future__ import annotations

import dataclasses
import sys

import click

from agent_saga.cli.session import FINDING, FINE
from agent_saga.cli.terminal import Output

STEPS_MAX = 6


@click.command("self-check", short_help="Break the installed engine in every small way, and check what it promises.")
@click.option(
    "--max-steps",
    type=click.IntRange(1, STEPS_MAX),
    default=STEPS_MAX,
    show_default=True,
    metavar="N",
    help="The longest sagas that are tried; fewer steps take less time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
@click.pass_context
def self_check(ctx: click.Context, *, max_steps: int, as_json: bool) -> None:
    """Check that this installation keeps its promises: every failing step, failing compensation and death.

    The engine, its recovery and its log format are the installed ones; log, world, clock and processes are simulated,
    so no log and no saga of yours is touched. It also plants known bugs and tells whether each of them is noticed.
    Exit code 1: an invariant is broken, or a planted bug went unnoticed; the output has a token that replays it.
    """
    from agent_saga.errors import InvariantViolation
    from agent_saga.testing.sim.verify import run

    out = Output(as_json=as_json)
    if sys.stderr.isatty():
        click.echo("checking; this takes some seconds ...", err=True)
    try:
        verified = run(max_steps)
    except InvariantViolation as error:
        out.error(str(error))
        ctx.exit(FINDING)
    code = FINE if verified.holds else FINDING
    if as_json:
        numbers = dataclasses.asdict(verified)
        text = numbers.pop("text")
        out.document("self-check/1", {**numbers, "report": text.splitlines(), "exit": code})
    else:
        out.line(verified.text)
    ctx.exit(code)
