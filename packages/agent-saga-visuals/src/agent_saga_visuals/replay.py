"""Time travel through one saga: after each record, the state of the world as the log knew it then."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from agent_saga.cli.terminal import moment
from agent_saga_visuals.graph import svg_graph
from agent_saga_visuals.looks import LOOKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent_saga_visuals.picture import Frame


def frame_lines(frame: Frame, number: int, total: int | None) -> Iterator[str]:
    """Yield one frame for a terminal."""
    of = "" if total is None else f" of {total}"
    yield f"[{number}{of}] {moment(frame.at)}  {'amendment: ' if frame.amends else ''}{frame.said}"
    picture = frame.picture
    yield f"    {picture.verdict}{f' (cause: {picture.cause})' if picture.cause else ''}"
    for node in picture.nodes:
        look = LOOKS[node.state]
        note = f"  ({node.note})" if node.note else ""
        yield f"    {look.glyph} {node.no:>3} {look.word:<20} {node.call}{note}"
    if picture.damage is not None:
        yield f"    {LOOKS['damaged'].glyph} {picture.damage}: nothing after this record was read"


def page(frames: Iterable[Frame]) -> str:
    """Return the replay as one HTML page without a script: each frame can be opened, the last one is."""
    shown = list(frames)
    title = escape(shown[-1].picture.title)
    parts = []
    for number, frame in enumerate(shown, start=1):
        state = ' open=""' if number == len(shown) else ""
        head = escape(f"{number}. {moment(frame.at)} {frame.said}")
        picture = svg_graph(frame.picture).replace('id="t"', f'id="t{number}"').replace('id="d"', f'id="d{number}"')
        picture = picture.replace('aria-labelledby="t d"', f'aria-labelledby="t{number} d{number}"')
        parts.append(f'<details name="frame"{state}><summary>{head}</summary>{picture}</details>')
    css = (
        ":root{color-scheme:light dark}body{font:14px ui-monospace,monospace;margin:2rem;max-width:60rem}"
        "summary{padding:.25rem;cursor:pointer}details[open]>summary{font-weight:600}svg{max-width:100%;height:auto}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{css}</style></head><body><h1>{title}</h1>{''.join(parts)}</body></html>\n"
    )
