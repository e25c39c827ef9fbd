"""What became of each tool's calls. Below five observations there is no share, only a number, and it is grey."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from agent_saga.cli.terminal import visible
from agent_saga.errors import CorruptLog, RecordsPruned
from agent_saga.store.port import Query
from agent_saga.store.reader import load
from agent_saga_visuals import svg
from agent_saga_visuals.looks import LOOKS
from agent_saga_visuals.picture import state_of

if TYPE_CHECKING:
    from agent_saga.store.port import LogStore

OBSERVATIONS_MIN: Final = 5
_BAR, _ROW, _NAME = 420, 34, 190


def tallies(store: LogStore, *, limit: int) -> tuple[dict[str, Counter[str]], int]:
    """Return the states of the calls by tool, of the newest sagas, and how many sagas could not be read."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    damaged = seen = 0
    after: str | None = None
    while seen < limit and (page := store.rows(Query(after=after, limit=min(200, limit - seen)))):
        for row in page:
            try:
                loaded = load(store, row.saga_id)
            except RecordsPruned:  # Its steps are not in the log any more; its row is no picture of them.
                continue
            except CorruptLog:
                loaded = None
            if loaded is None:
                damaged += 1
                continue
            for step in loaded.view.steps.values():
                found[step.tool][state_of(loaded.view, step)] += 1
        seen, after = seen + len(page), page[-1].saga_id
    return dict(found), damaged


def svg_outcomes(found: dict[str, Counter[str]], damaged: int) -> str:
    """Return the outcomes as an SVG: a bar for each tool, most calls first."""
    parts, y = [], 84.0
    for tool, counts in sorted(found.items(), key=lambda entry: (-entry[1].total(), entry[0])):
        parts.append(f'<text x="20" y="{y + 17:g}">{svg.text(tool, length_max=24)}</text>{_bar(counts, y)}')
        y += _ROW
    if damaged:
        parts.append(f'<text x="20" y="{y + 16:g}">{damaged} sagas are damaged and are not counted</text>')
        y += _ROW
    states = [state for state in LOOKS if any(counts[state] for counts in found.values())]
    for row in range(0, len(states), 4):
        key, height = svg.legend(states[row : row + 4], 20, y)
        parts.append(key)
        y += height + 8
    calls = sum(counts.total() for counts in found.values())
    said = "; ".join(
        f"{visible(tool)}: " + ", ".join(f"{count} {LOOKS[state].word}" for state, count in sorted(counts.items()))
        for tool, counts in sorted(found.items())
    )
    head = f'<text class="h" x="20" y="28">what became of {calls} calls of {len(found)} tools</text>'
    head += f'<text class="f" x="20" y="50">below {OBSERVATIONS_MIN} calls: the number alone, and grey</text>'
    return svg.document(
        20 + _NAME + _BAR + 110,
        y + 12,
        title="outcomes by tool",
        description=said or "no calls",
        body=head + "".join(parts),
    )


def _bar(counts: Counter[str], y: float) -> str:
    total, x = counts.total(), 20.0 + _NAME
    if total < OBSERVATIONS_MIN:
        said = ", ".join(f"{count} {LOOKS[state].word}" for state, count in counts.items())
        outline = f'<rect class="o" x="{x:g}" y="{y:g}" width="{_BAR}" height="24"/>'
        words = f'<text class="f" x="{x + 8:g}" y="{y + 16:g}">{total} calls: {svg.text(said, length_max=46)}</text>'
        return f'<g class="absent"><title>{svg.text(said)}</title>{outline}{words}</g>'
    parts = []
    for state in LOOKS:
        if count := counts[state]:
            width = _BAR * count / total
            words = f"{count} of {total} {LOOKS[state].word}"
            glyph = f'<text x="{x + 4:.1f}" y="{y + 16:g}">{LOOKS[state].glyph}</text>' if width > 14 else ""  # noqa: PLR2004
            outline = f'<rect class="o" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="24"/>'
            parts.append(f'<g class="{state}"><title>{svg.text(words)}</title>{outline}{glyph}</g>')
            x += width
    good = counts["kept"] + counts["compensated"] + counts["read_only"] + counts["absent"]
    return "".join(parts) + f'<text x="{x + 8:.1f}" y="{y + 16:g}">{good}/{total}</text>'
