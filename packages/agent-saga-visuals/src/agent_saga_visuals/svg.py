"""What all SVGs share: escaping, colours for light and dark pages, titles. The same picture gives the same bytes."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

from agent_saga.cli.terminal import visible
from agent_saga_visuals.looks import LOOKS

FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
CHARACTER: Final = 7.25
"""Width of a character at 12 px, a little more than any of the fonts needs."""
INK: Final = {"light": ("#ffffff", "#111827", "#4b5563"), "dark": ("#0b0f17", "#f3f4f6", "#b6bdc9")}
"""Page, text and faint text."""


def text(value: object, *, length_max: int | None = None) -> str:
    """Return any text as the content of an element: nothing in it can end the element or hide what follows.

    Args:
        value: the text.
        length_max: characters that there is room for; what is cut off ends in an ellipsis.
    """
    shown = visible(value, length_max=None)
    if length_max is not None and len(shown) > length_max:
        shown = shown[: length_max - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return escape(shown)


def attribute(value: object) -> str:
    """Return any text as a quoted attribute."""
    return quoteattr(visible(value, length_max=None))


def style(extra: str = "") -> str:
    """Return the style element: light by default, dark where the reader's system is."""
    light = _rules("light", [(name, *look.light) for name, look in LOOKS.items()])
    dark = _rules("dark", [(name, *look.dark) for name, look in LOOKS.items()])
    dashes = "".join(f".{name} .o{{stroke-dasharray:5 3}}" for name, look in LOOKS.items() if look.dashed)
    shared = (
        f"text{{font:12px {FONT}}}.h{{font-size:14px;font-weight:600}}.o{{stroke-width:1.5}}"
        ".e{fill:none;stroke-width:1.5}"
    )
    return f"<style>{shared}{light}{dashes}@media (prefers-color-scheme:dark){{{dark}}}{extra}</style>"


def _rules(theme: str, looks: list[tuple[str, str, str]]) -> str:
    page, ink, faint = INK[theme]
    base = f".p{{fill:{page}}}text{{fill:{ink}}}.f{{fill:{faint}}}.e{{stroke:{faint}}}.a{{fill:{faint}}}"
    return base + "".join(f".{name} .o{{fill:{fill};stroke:{line}}}" for name, fill, line in looks)


def document(width: float, height: float, *, title: str, description: str, body: str, css: str = "") -> str:
    """Return a whole SVG, with a title and a description for those who do not see it."""
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">'
        f'<title id="t">{text(title)}</title><desc id="d">{text(description)}</desc>{style(css)}'
        f'<rect class="p" width="100%" height="100%"/>{body}</svg>\n'
    )


def outline(state: str, x: float, y: float, width: float, height: float) -> str:
    """Return the outline of a node; each state has a shape of its own."""
    right, bottom, middle, cut = x + width, y + height, y + height / 2, height / 3
    match state:
        case "compensated":
            return f'<rect class="o" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{height / 2:g}"/>'
        case "in_doubt":
            points = [
                (x + cut, y),
                (right - cut, y),
                (right, middle),
                (right - cut, bottom),
                (x + cut, bottom),
                (x, middle),
            ]
        case "conflicted":
            points = [(x + cut, y), (right, y), (right - cut, bottom), (x, bottom)]
        case "failed":
            low = cut / 1.5
            points = [(x + low, y), (right - low, y), (right, y + low), (right, bottom - low)]
            points += [(right - low, bottom), (x + low, bottom), (x, bottom - low), (x, y + low)]
        case "orphaned":
            points = [(x, y), (right, y), (right, bottom), (x, bottom), (x + cut, middle)]
        case "damaged":
            points = [(x, y), (right, y), (right - cut, middle), (right, bottom), (x, bottom), (x + cut, middle)]
        case "more":
            lines = f"M{x:g} {y:g}H{right:g}M{x:g} {bottom:g}H{right:g}"
            return f'<path class="o" d="{lines}"/>'
        case "absent" | "read_only":
            return f'<rect class="o" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
        case "standing":
            inner = f'<rect class="o" x="{x + 3:g}" y="{y + 3:g}" width="{width - 6:g}" height="{height - 6:g}"/>'
            return f'<rect class="o" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>{inner}'
        case _:
            return f'<rect class="o" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
    return f'<polygon class="o" points="{" ".join(f"{px:g},{py:g}" for px, py in points)}"/>'


def legend(states: list[str], x: float, y: float) -> tuple[str, float]:
    """Return a legend of the states that occur, in a row, and its height."""
    parts = []
    for state in states:
        look = LOOKS[state]
        parts.append(f'<g class="{state}">{outline(state, x, y, 26, 16)}</g>')
        parts.append(f'<text x="{x + 32:g}" y="{y + 12:g}">{look.glyph} {text(look.word)}</text>')
        x += 32 + (len(look.word) + 4) * CHARACTER
    return "".join(parts), 16.0 if states else 0.0
