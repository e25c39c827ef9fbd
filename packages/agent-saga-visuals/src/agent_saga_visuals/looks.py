"""How each state of an effect looks. Shape, glyph and word differ, so that no state is told by colour alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Look:
    """How one state looks.

    Attributes:
        word: for people.
        glyph: one character.
        mermaid: what opens and closes the node in Mermaid.
        dot: the node's shape in DOT.
        dashed: the outline is dashed: nothing is known, or nothing has ended yet.
        light, dark: fill and line of the node on a light and on a dark page.
    """

    word: str
    glyph: str
    mermaid: tuple[str, str]
    dot: str
    light: tuple[str, str]
    dark: tuple[str, str]
    dashed: bool = False


LOOKS: Final[dict[str, Look]] = {
    "kept": Look("kept", "■", ("[", "]"), "box", ("#dbeafe", "#1d4ed8"), ("#172554", "#93c5fd")),
    "standing": Look(
        "standing", "□", ("[[", "]]"), "box3d", ("#e0e7ff", "#4338ca"), ("#1e1b4b", "#a5b4fc"), dashed=True
    ),
    "compensated": Look("compensated", "↩", ("([", "])"), "ellipse", ("#dcfce7", "#15803d"), ("#052e16", "#86efac")),
    "in_doubt": Look(
        "in doubt", "?", ("{{", "}}"), "hexagon", ("#fef3c7", "#92400e"), ("#451a03", "#fcd34d"), dashed=True
    ),
    "conflicted": Look("conflict", "≠", ("{", "}"), "diamond", ("#fae8ff", "#a21caf"), ("#4a044e", "#f0abfc")),
    "failed": Look(
        "compensation failed", "✗", ("[/", "\\]"), "octagon", ("#fee2e2", "#b91c1c"), ("#450a0a", "#fca5a5")
    ),
    "orphaned": Look("orphaned", "!", (">", "]"), "house", ("#ffedd5", "#c2410c"), ("#431407", "#fdba74")),
    "absent": Look(
        "no effect", "∅", ("(", ")"), "plaintext", ("#f3f4f6", "#4b5563"), ("#1f2937", "#9ca3af"), dashed=True
    ),
    "read_only": Look("read only", "·", ("((", "))"), "oval", ("#f9fafb", "#6b7280"), ("#111827", "#9ca3af")),
    "more": Look("not drawn", "⋮", ("[/", "/]"), "note", ("#f9fafb", "#6b7280"), ("#111827", "#9ca3af"), dashed=True),
    "damaged": Look(
        "damaged log", "⚡", ("[\\", "/]"), "tripleoctagon", ("#fecaca", "#7f1d1d"), ("#7f1d1d", "#fecaca")
    ),
}
"""State -> look. `standing`: the saga has not ended. `more` stands for many steps that are counted and not drawn,
`damaged` for what could not be read."""

LEFT: Final = frozenset({"in_doubt", "conflicted", "failed", "orphaned"})
"""States that keep a rollback from being clean."""
