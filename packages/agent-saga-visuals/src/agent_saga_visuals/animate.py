"""One saga as it happened, step by step: an SVG with style rules only, no script, that also works as a still picture.

Without animation (a printer, a reader who asked for less motion, a program that draws SVGs) the whole final picture is
seen: the animation only hides, for a moment, what had not happened yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga_visuals import svg
from agent_saga_visuals.graph import described, heading, steps
from agent_saga_visuals.looks import LOOKS

if TYPE_CHECKING:
    from agent_saga_visuals.picture import Picture

BEAT_S: Final = 0.8
"""Seconds for each change of a step."""
HOLD_S: Final = 3.0
"""Seconds for which the whole picture is shown first, and stays at the end: a preview is its first frame."""
_CHANGES_MAX: Final = 400


def animation(picture: Picture, told: list[tuple[int, str]]) -> str:
    """Return the animation of one saga; the same records give the same bytes.

    Args:
        picture: what it comes to.
        told: what happened: (step, its new state), in order; of very many the newest are shown.
    """
    told = told[-_CHANGES_MAX:]
    body, height = steps(picture, ids=True)
    length = len(told) * BEAT_S + 2 * HOLD_S
    begun: set[int] = set()
    rules = []
    for number, (step, state) in enumerate(told):
        rules.append(_rule(number, step, state, length, first=step not in begun))
        begun.add(step)
    motion = "".join(css for css, _ in rules)
    css = f"@media (prefers-reduced-motion:no-preference){{{motion}}}"
    css += "@media (prefers-reduced-motion:reduce){.m{display:none}}"
    marks = "".join(mark for _, mark in rules)
    return svg.document(
        660,
        height + 24,
        title=picture.title,
        description=f"{described(picture)}. As it happened: {_in_words(told)}",
        body=f"{heading(picture)}{body}<g>{marks}</g>",
        css=css + ".m{opacity:0}",
    )


def _rule(number: int, step: int, state: str, length: float, *, first: bool) -> tuple[str, str]:
    """Return the style rules of one change, and the caption that they show while it happens."""
    start, end = _share(number, length), _share(number + 1, length)
    inside = f"{start:.3f}%{{opacity:1}}{end:.3f}%,100%{{opacity:0}}"
    css = f"@keyframes k{number}{{0%{{opacity:0}}{inside}}}"
    css += f".k{number}{{animation:k{number} {length:g}s step-end infinite}}"
    if first:
        hidden = f"0%{{opacity:1}}{_share(0, length):.3f}%{{opacity:.12}}{start + 0.001:.3f}%,100%{{opacity:1}}"
        css += f"@keyframes a{step}{{{hidden}}}#s{step}{{animation:a{step} {length:g}s step-end infinite}}"
    look = LOOKS[state]
    caption = f'<text class="m k{number}" x="400" y="48">{look.glyph} step {step}: {svg.text(look.word)}</text>'
    return css, caption


def _share(number: int, length: float) -> float:
    """Return when a change begins, in percent of the whole."""
    return (HOLD_S + number * BEAT_S) / length * 100


def _in_words(told: list[tuple[int, str]]) -> str:
    return ", then ".join(f"step {step} {LOOKS[state].word}" for step, state in told[:40]) or "nothing"
