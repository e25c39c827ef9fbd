"""`agent-saga graph`, `animate`, `viz` and `replay`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from agent_saga.cli.find import find_saga
from agent_saga.cli.session import FINDING, FINE, Session, log_command
from agent_saga.cli.terminal import visible
from agent_saga.cli.verify import uncollected
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from agent_saga.store.port import LogStore

_SAGAS_MAX = 10_000


@click.command(short_help="Draw one saga: what happened, what was undone, what stands.")
@click.argument("saga", required=False)
@click.option("--format", "form", type=click.Choice(["svg", "mermaid", "dot"]), default="svg", show_default=True)
@click.option("--out", metavar="FILE", help="A new file; by default stdout.")
@log_command(data=True)
def graph(session: Session, *, saga: str | None, form: str, out: str | None) -> int:
    """Draw SAGA (id, beginning of an id, or key; by default the newest one). Exit code 1 when its records are damaged.

    Kept, compensated, failed, in doubt, conflicted and orphaned effects differ in shape and word, not only in colour.
    """
    from agent_saga_visuals.graph import dot, mermaid, svg_graph
    from agent_saga_visuals.picture import picture_of

    with session.reading() as store, uncollected():
        picture = picture_of(store, _chosen(store, saga))
    _write(out, {"svg": svg_graph, "mermaid": mermaid, "dot": dot}[form](picture))
    return _verdict(session, [] if picture.damage is None else [picture.damage])


@click.command(short_help="Draw one saga as it happened, step by step.")
@click.argument("saga", required=False)
@click.option("--out", metavar="FILE", help="A new file; by default stdout.")
@log_command(data=True)
def animate(session: Session, *, saga: str | None, out: str | None) -> int:
    """Draw SAGA as an animated SVG: self-contained, without a script, still where less motion is asked for."""
    from agent_saga_visuals.animate import animation
    from agent_saga_visuals.picture import changes

    with session.reading() as store:
        picture, told = changes(store, _chosen(store, saga))
    _write(out, animation(picture, told))
    return _verdict(session, [] if picture.damage is None else [picture.damage])


@click.command(short_help="Draw many sagas, the records of one, or what became of each tool's calls.")
@click.argument("saga", required=False)
@click.option("--kind", type=click.Choice(["fleet", "chain", "outcomes"]), default="fleet", show_default=True)
@click.option(
    "--limit", type=click.IntRange(1, _SAGAS_MAX), default=400, show_default=True, help="Newest sagas to read."
)
@click.option("--out", metavar="FILE", help="A new file; by default stdout.")
@log_command(data=True)
def viz(session: Session, *, saga: str | None, kind: str, limit: int, out: str | None) -> int:
    """Draw the fleet of sagas, the chain of SAGA's records, or the outcomes by tool.

    Whatever is drawn was read and checked for it. Exit code 1 when something that was to be drawn is damaged.
    """
    with session.reading() as store, uncollected():
        drawn, damage = _PICTURES[kind](store, saga, limit)
    _write(out, drawn)
    return _verdict(session, damage)


def _fleet(store: LogStore, _saga: str | None, limit: int) -> tuple[str, list[str]]:
    from agent_saga_visuals.fleet import cells, svg_fleet

    found = cells(store, limit=limit + 1)
    drawn = svg_fleet(found[:limit], more=len(found) > limit)
    return drawn, [f"saga {cell.saga_id} cannot be read" for cell in found[:limit] if cell.word == "damaged"]


def _chain(store: LogStore, saga: str | None, _limit: int) -> tuple[str, list[str]]:
    from agent_saga_visuals.chain import chain_damage, links, svg_chain

    saga_id = _chosen(store, saga)
    found = links(store, saga_id)
    damage = chain_damage(store, saga_id, found)
    return svg_chain(saga_id, found, damage), damage


def _outcomes(store: LogStore, _saga: str | None, limit: int) -> tuple[str, list[str]]:
    from agent_saga_visuals.outcomes import svg_outcomes, tallies

    found, damaged = tallies(store, limit=limit)
    return svg_outcomes(found, damaged), [f"{damaged} sagas cannot be read"] if damaged else []


_PICTURES = {"fleet": _fleet, "chain": _chain, "outcomes": _outcomes}


@click.command(short_help="Travel through one saga, record by record.")
@click.argument("saga", required=False)
@click.option("--at", type=int, metavar="N", help="Only the state after the N-th record (from 1; -1 is the last).")
@click.option("--html", metavar="FILE", help="Write a page with every state instead; nothing is overwritten.")
@log_command()
def replay(session: Session, *, saga: str | None, at: int | None, html: str | None) -> int:
    """Show the state of the world after each record of SAGA, as the log knew it then. On a terminal, Enter goes on."""
    from agent_saga_visuals.picture import frames
    from agent_saga_visuals.replay import frame_lines, page

    with session.reading() as store:
        told = list(frames(store, _chosen(store, saga)))
    damage = told[-1].picture.damage
    if html is not None:
        _write(html, page(told))
    elif session.out.as_json:
        states = [{"n": f.n, "pos": f.pos, "at": f.at, "said": f.said, "verdict": f.picture.verdict} for f in told]
        session.out.document("replay/1", {"log": session.place, "frames": states, "damage": damage})
    else:
        chosen = range(len(told)) if at is None else [_index(at, len(told))]
        for number in chosen:
            for line in frame_lines(told[number], number + 1, len(told)):
                session.out.line(line)
            if number != chosen[-1] and sys.stdin.isatty() and sys.stdout.isatty():
                click.pause("")
    return FINE if damage is None else FINDING


def _index(at: int, total: int) -> int:
    if not (1 <= at <= total or -total <= at <= -1):
        raise UsageError(f"--at {at}: the saga has {total} records")
    return at - 1 if at > 0 else total + at


def _chosen(store: LogStore, saga: str | None) -> str:
    from agent_saga.store.port import Query

    if saga is not None:
        return find_saga(store, saga)
    newest = store.rows(Query(limit=1))
    if not newest:
        raise UsageError("the log holds no saga")
    return newest[0].saga_id


def _write(out: str | None, text: str) -> None:
    from pathlib import Path

    if out is None or out == "-":
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
        return
    try:
        with Path(out).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{visible(out, length_max=None)} cannot be made: {error.strerror}") from error


def _verdict(session: Session, damage: list[str]) -> int:
    for line in damage[:20]:
        session.out.error(f"damage: {line}; it is drawn as that")
    return FINDING if damage else FINE
