"""The records of one saga as links, each verified while it is drawn. A link that was not checked never looks intact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.errors import CorruptLog
from agent_saga.model.records import GENESIS, kind_of
from agent_saga.store.reader import check_record, load
from agent_saga.store.removed import Removed
from agent_saga_visuals import svg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.store.port import LogStore, StoredRecord

_SHOWN: Final = 24
"""Links shown at each end of a long chain; breaks between them are shown too, all of them."""
_WIDTH, _HEIGHT, _ROW, _COLUMNS = 200, 40, 52, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One record.

    Attributes:
        broken: what is wrong with it, or None.
        after_break: a record before it is damaged, so that it could only be checked against what that one says.
    """

    n: int
    kind: str
    broken: str | None
    after_break: bool


def links(store: LogStore, saga_id: str) -> list[Link]:
    """Return every record of a saga's own chain, as checked. A break does not end the reading."""
    found: list[Link] = []
    head, expected, broken = GENESIS, 1, False
    removed = Removed.of(store, saga_id)
    for stored in _records(store, saga_id):
        try:
            _, record, _ = check_record(stored, head, expected, removed)
        except CorruptLog as error:
            found.append(Link(n=stored.n, kind="?", broken=error.reason, after_break=broken))
            broken = True
        else:
            found.append(Link(n=stored.n, kind=kind_of(record), broken=None, after_break=broken))
        head, expected = stored.hash, stored.n + 1
    return found


def _records(store: LogStore, saga_id: str) -> Iterator[StoredRecord]:
    after = 0
    while page := store.records(saga_id, after_n=after, limit=1000):
        yield from page
        after = page[-1].n


def chain_damage(store: LogStore, saga_id: str, found: list[Link]) -> list[str]:
    """Return all that is wrong with a saga: its breaks, and what only the whole shows (a missing end, another row)."""
    damage = [f"record {link.n}: {link.broken}" for link in found if link.broken is not None]
    if not damage:
        try:
            if load(store, saga_id) is None:
                damage.append("it is not in the log")
        except CorruptLog as error:
            damage.append(str(error))
    return damage


def svg_chain(saga_id: str, found: list[Link], damage: list[str]) -> str:
    """Return the chain as an SVG. Long chains are cropped; no break is."""
    keep = {
        index
        for index, link in enumerate(found)
        if link.broken is not None or not _SHOWN <= index < len(found) - _SHOWN
    }
    parts: list[str] = []
    place = 0
    skipped = 0
    for index, link in enumerate(found):
        if index not in keep:
            skipped += 1
            continue
        if skipped:
            parts.append(_cell(place, "read_only", f"... {skipped} more", "none of them broken"))
            place, skipped = place + 1, 0
        parts.append(_cell(place, *_words(link)))
        place += 1
    bottom = 84 + (place + _COLUMNS - 1) // _COLUMNS * _ROW
    parts += [
        f'<text x="20" y="{bottom + 16 * line:g}">{svg.text(words, length_max=110)}</text>'
        for line, words in enumerate(damage[:20])
    ]
    verdict = f"{len(found)} records, each checked, none broken" if not damage else f"DAMAGED: {len(damage)} findings"
    head = f'<text class="h" x="20" y="28">chain of saga {svg.text(saga_id)}</text><text x="20" y="50">{verdict}</text>'
    return svg.document(
        20 + _COLUMNS * (_WIDTH + 8) + 12,
        bottom + 16 * min(len(damage), 20) + 12,
        title=f"chain of saga {saga_id}: {verdict}",
        description="; ".join(damage[:20]) or verdict,
        body=head + "".join(parts),
    )


def _words(link: Link) -> tuple[str, str, str]:
    if link.broken is not None:
        return "damaged", f"{link.n} broken", link.broken
    if link.after_break:
        return "in_doubt", f"{link.n} {link.kind}", "after a break"
    return "kept", f"{link.n} {link.kind}", "checked"


def _cell(place: int, state: str, first: str, second: str) -> str:
    x, y = 20 + place % _COLUMNS * (_WIDTH + 8), 70 + place // _COLUMNS * _ROW
    return (
        f'<g class="{state}"><title>{svg.text(f"{first}: {second}")}</title>{svg.outline(state, x, y, _WIDTH, _HEIGHT)}'
        f'<text x="{x + 16}" y="{y + 17}">{svg.text(first, length_max=24)}</text>'
        f'<text class="f" x="{x + 16}" y="{y + 33}">{svg.text(second, length_max=24)}</text></g>'
    )
