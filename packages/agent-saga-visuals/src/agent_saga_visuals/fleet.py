"""Many sagas at a glance: one cell for each, and a partial rollback looks different from a clean one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.cli.terminal import visible
from agent_saga.errors import CorruptLog, RecordsPruned
from agent_saga.machine.report import report_of
from agent_saga.store.port import Query
from agent_saga.store.reader import load
from agent_saga_visuals import svg

if TYPE_CHECKING:
    from agent_saga.machine.view import SagaView
    from agent_saga.store.port import LogStore

_CELL, _COLUMNS = 26, 32
_LOOK_OF: Final = {
    "committed": "kept",
    "clean": "compensated",
    "partial": "failed",
    "unsettled": "conflicted",
    "open": "standing",
    "rolling back": "in_doubt",
    "suspended": "absent",
    "abandoned": "orphaned",
    "damaged": "damaged",
}
"""Word for a saga -> the look of its cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One saga: its word is a key of `_LOOK_OF`."""

    saga_id: str
    name: str
    word: str
    left: int


def cells(store: LogStore, *, limit: int) -> list[Cell]:
    """Return the newest sagas, each read and checked whole; a damaged one is a cell that says so."""
    found: list[Cell] = []
    after: str | None = None
    while len(found) < limit:
        page = store.rows(Query(after=after, limit=min(200, limit - len(found))))
        if not page:
            break
        for row in page:
            try:
                loaded = load(store, row.saga_id)
            except RecordsPruned:  # Its steps are not in the log any more; its row is no picture of them.
                continue
            except CorruptLog:
                loaded = None
            if loaded is None:
                found.append(Cell(saga_id=row.saga_id, name="", word="damaged", left=0))
            else:
                found.append(_cell(loaded.view))
        after = page[-1].saga_id
    return found


def _cell(view: SagaView) -> Cell:
    report = report_of(view)
    word = view.state.value.replace("_", " ")
    if view.ended and report.outcome == "rolled_back":
        word = "clean" if report.clean else "partial"
    elif view.ended and report.left:
        word = "unsettled"
    return Cell(saga_id=view.id, name=visible(view.name), word=word, left=len(report.left) if view.ended else 0)


def svg_fleet(found: list[Cell], *, more: bool) -> str:
    """Return the fleet as an SVG: newest first, row by row."""
    counts = Counter(cell.word for cell in found)
    parts = []
    for place, cell in enumerate(found):
        x, y = 20 + place % _COLUMNS * _CELL, 96 + place // _COLUMNS * _CELL
        state = _LOOK_OF[cell.word]
        left = f", {cell.left} effects left" if cell.left else ""
        title = svg.text(f"{cell.saga_id} {cell.name}: {cell.word}{left}")
        parts.append(f'<g class="{state}"><title>{title}</title>{svg.outline(state, x, y, _CELL - 6, _CELL - 10)}</g>')
    said = ", ".join(f"{counts[word]} {word}" for word in _LOOK_OF if counts[word]) or "no sagas"
    head = f'<text class="h" x="20" y="28">{len(found)} sagas{", and older ones" if more else ""}, newest first</text>'
    head += f'<text x="20" y="50">{svg.text(said)}</text>{_key(counts)}'
    height = 96 + (len(found) + _COLUMNS - 1) // _COLUMNS * _CELL + 16
    width = 40 + _COLUMNS * _CELL
    return svg.document(width, height, title=f"fleet: {said}", description=said, body=head + "".join(parts))


def _key(counts: Counter[str]) -> str:
    parts, x = [], 20.0
    for word, state in _LOOK_OF.items():
        if counts[word]:
            parts.append(f'<g class="{state}">{svg.outline(state, x, 62, 20, 16)}</g>')
            parts.append(f'<text x="{x + 26:g}" y="74">{word}</text>')
            x += 26 + (len(word) + 2) * svg.CHARACTER
    return "".join(parts)
