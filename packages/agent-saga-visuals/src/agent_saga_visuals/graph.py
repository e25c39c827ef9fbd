"""One saga as Mermaid, DOT or SVG: its steps downwards, their compensations upwards beside them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from agent_saga_visuals import svg
from agent_saga_visuals.looks import LEFT, LOOKS

if TYPE_CHECKING:
    from agent_saga_visuals.picture import Node, Picture

_WIDTH, _HEIGHT, _GAP, _LEFT_X, _TOP = 560, 46, 16, 20, 84
_UNDONE = LEFT | {"compensated"}


def _label(node: Node) -> str:
    look = LOOKS[node.state]
    tried = f", {node.attempts} attempts" if node.attempts > 1 else ""
    read_back = ", confirmed" if node.verified else ""
    return f"{look.glyph} {look.word}{tried}{read_back}"


def _direction(picture: Picture) -> list[Node]:
    """Return the steps whose effect was, or is to be, undone, in the order of their undoing."""
    return [node for node in reversed(picture.nodes) if node.state in _UNDONE]


# -- Mermaid ------------------------------------------------------------------------------------------------------


def mermaid(picture: Picture) -> str:
    """Return a Mermaid flowchart."""
    lines = ["flowchart TD", f'  saga["{_entities(picture.title)}"]']
    before = "saga"
    for node in picture.nodes:
        opening, closing = LOOKS[node.state].mermaid
        lines.append(f'  s{node.no}{opening}"{node.no} {_entities(node.call)}<br/>{_entities(_label(node))}"{closing}')
        lines.append(f"  {before} --> s{node.no}")
        before = f"s{node.no}"
    if picture.damage is not None:
        opening, closing = LOOKS["damaged"].mermaid
        lines += [f'  damage{opening}"{_entities(picture.damage)}"{closing}', f"  {before} -.-> damage"]
    undone = _direction(picture)
    lines += [f"  s{later.no} -. then .-> s{earlier.no}" for later, earlier in pairwise(undone)]
    for state in dict.fromkeys(node.state for node in picture.nodes):
        fill, line = LOOKS[state].light
        dash = ",stroke-dasharray:5 3" if LOOKS[state].dashed else ""
        members = ",".join(f"s{node.no}" for node in picture.nodes if node.state == state)
        lines += [f"  classDef {state} fill:{fill},stroke:{line},color:#111827{dash}", f"  class {members} {state}"]
    return "\n".join(lines) + "\n"


def _entities(value: str) -> str:
    """Return text for a quoted Mermaid label: only letters, digits and harmless signs stay as they are."""
    return "".join(c if c.isalnum() or c in " .,:=()_-/?!'↩■□≠✗∅·⚡" else f"#{ord(c)};" for c in value)


# -- DOT ----------------------------------------------------------------------------------------------------------


def dot(picture: Picture) -> str:
    """Return a graph for Graphviz."""
    lines = ["digraph saga {", f"  label={_quoted(picture.title)}; labelloc=t; rankdir=TB;"]
    lines.append('  node [fontname="monospace", style=filled];')
    for node in picture.nodes:
        look = LOOKS[node.state]
        fill, line = look.light
        drawn = "filled,dashed" if look.dashed else "filled"
        label = _quoted(f"{node.no} {node.call}\n{_label(node)}")
        lines.append(
            f'  s{node.no} [label={label}, shape={look.dot}, style="{drawn}", fillcolor="{fill}", color="{line}"];'
        )
    numbers = [node.no for node in picture.nodes]
    lines += [f"  s{first} -> s{second};" for first, second in pairwise(numbers)]
    if picture.damage is not None:
        lines.append(f"  damage [label={_quoted(picture.damage)}, shape={LOOKS['damaged'].dot}];")
        lines += [f"  s{numbers[-1]} -> damage [style=dashed];"] if numbers else []
    undone = _direction(picture)
    lines += [
        f"  s{later.no} -> s{earlier.no} [style=dashed, constraint=false];" for later, earlier in pairwise(undone)
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


# -- SVG ----------------------------------------------------------------------------------------------------------


def svg_graph(picture: Picture) -> str:
    """Return the picture as an SVG."""
    body, height = steps(picture)
    return svg.document(
        _LEFT_X * 2 + _WIDTH + 60,
        height,
        title=picture.title,
        description=described(picture),
        body=heading(picture) + body,
    )


def described(picture: Picture) -> str:
    """Return the picture in words."""
    checked = f"every one of its {picture.records} records was checked"
    return f"{picture.told}; {checked if picture.damage is None else 'damaged: ' + picture.damage}"


def heading(picture: Picture) -> str:
    """Return the lines at the top."""
    checked = f"{picture.records} records, each checked" if picture.damage is None else f"damaged: {picture.damage}"
    cause = f"; cause: {picture.cause}" if picture.cause else ""
    return (
        f'<text class="h" x="{_LEFT_X}" y="28">{svg.text(picture.name or "saga", length_max=40)}: '
        f"{svg.text(picture.verdict, length_max=60)}</text>"
        f'<text class="f" x="{_LEFT_X}" y="48">{svg.text(picture.saga_id)}</text>'
        f'<text class="f" x="{_LEFT_X}" y="66">{svg.text(checked + cause, length_max=80)}</text>'
    )


def steps(picture: Picture, *, ids: bool = False) -> tuple[str, float]:
    """Return the nodes and edges, and where they end.

    Args:
        picture: the saga.
        ids: give each node an id, so that it can be animated.
    """
    parts: list[str] = []
    y = float(_TOP)
    centres: dict[int, float] = {}
    for node in picture.nodes:
        if centres:
            parts.append(_arrow_down(_LEFT_X + 24, y - _GAP, y))
        centres[node.no] = y + _HEIGHT / 2
        parts.append(node_at(node, _LEFT_X, y, name=f"s{node.no}" if ids else ""))
        y += _HEIGHT + _GAP
    if picture.damage is not None:
        outline = svg.outline("damaged", _LEFT_X, y, _WIDTH, _HEIGHT)
        words = svg.text(f"{LOOKS['damaged'].glyph} {picture.damage}", length_max=70)
        parts.append(f'<g class="damaged">{outline}<text x="{_LEFT_X + 24}" y="{y + 27:g}">{words}</text></g>')
        y += _HEIGHT + _GAP
    undone = [centres[node.no] for node in _direction(picture)]
    edge = _LEFT_X + _WIDTH
    parts += [_arc_up(edge, start, end) for start, end in pairwise(undone)]
    states = list(dict.fromkeys(node.state for node in picture.nodes))
    for row in range(0, len(states), 3):
        drawn, height = svg.legend(states[row : row + 3], _LEFT_X, y)
        parts.append(drawn)
        y += height + 8
    return "".join(parts), y + 12


def node_at(node: Node, x: float, y: float, *, name: str = "") -> str:
    """Return one node."""
    identity = f' id="{name}"' if name else ""
    note = f" - {node.note}" if node.note else ""
    title = f"<title>{svg.text(f'step {node.no}: {node.call}, {_label(node)}{note}')}</title>"
    return (
        f'<g{identity} class="{node.state}">{title}{svg.outline(node.state, x, y, _WIDTH, _HEIGHT)}'
        f'<text x="{x + 24:g}" y="{y + 19:g}">{node.no} {svg.text(node.call, length_max=66)}</text>'
        f'<text x="{x + 24:g}" y="{y + 36:g}">{svg.text(_label(node) + note, length_max=70)}</text></g>'
    )


def _arrow_down(x: float, start: float, end: float) -> str:
    return (
        f'<path class="e" d="M{x:g} {start:g}V{end - 4:g}"/>'
        f'<path class="a" d="M{x - 4:g} {end - 6:g}L{x:g} {end:g}L{x + 4:g} {end - 6:g}Z"/>'
    )


def _arc_up(x: float, start: float, end: float) -> str:
    """Return the arrow from a compensation to the next one, which is that of an earlier step."""
    bend = x + min(36, 12 + (start - end) / 12)
    curve = f"M{x:g} {start:g}C{bend:g} {start:g} {bend:g} {end:g} {x + 5:g} {end:g}"
    return (
        f'<path class="e" stroke-dasharray="4 3" d="{curve}"/>'
        f'<path class="a" d="M{x + 8:g} {end - 4:g}L{x:g} {end:g}L{x + 8:g} {end + 4:g}Z"/>'
    )
