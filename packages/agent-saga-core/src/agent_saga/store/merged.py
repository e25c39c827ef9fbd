"""Merged logs: records that keep the positions of the logs that they were written in, in one order that they can have.

The bodies of records name positions, and chains bind them, so a merge cannot renumber. In a merged log the column `pos`
is another number up to a `last` one, and follows from the chains alone: by the time of the newest record so far in the
family of a saga (it, and what amends it), by the id of its first saga, and within a family by the positions in the
bodies. So the order says nothing that the chains do not say, and nobody can choose it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

from agent_saga.errors import CorruptLog
from agent_saga.model.records import SagaOpened, decode_body

if TYPE_CHECKING:
    from agent_saga.store.port import LogStore

META: Final = "merged"
"""Name in the table `meta`."""
MINOR: Final = 2
"""Minor version of the format that merged logs came with."""
_PAGE: Final = 1000


class Merged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a merged log says of itself.

    Attributes:
        logs: ids of the logs that it was merged from, in order: each is a device.
        last: the last position that the merge gave; later records were appended here.
        skipped: positions before the first one, so that a record appended here comes after every position in a body.
    """

    logs: list[str]
    last: int
    skipped: int


NOT_MERGED: Final = Merged(logs=[], last=0, skipped=0)


@runtime_checkable
class MayBeMerged(Protocol):
    """A log that may have come from a merge."""

    def merged(self) -> Merged:
        """Return what it says of that; `NOT_MERGED` for any other log."""


def merged_of(store: LogStore) -> Merged:
    """Return what a log says of the merge that it came from."""
    return store.merged() if isinstance(store, MayBeMerged) else NOT_MERGED


def parse_merged(text: str | None) -> Merged:
    """Return what a text in `meta` says.

    Raises:
        CorruptLog: it makes no sense.
    """
    if text is None:
        return NOT_MERGED
    try:
        found = msgspec.json.decode(text, type=Merged)
    except msgspec.DecodeError as error:
        raise CorruptLog(f"what it says of its merge cannot be read: {error}") from error
    if msgspec.json.encode(found).decode() != text or not 0 <= found.skipped <= found.last:
        raise CorruptLog("what it says of its merge makes no sense")
    return found


def check_order(store: LogStore, merged: Merged) -> None:
    """Check that the records of a merge are in the one order that they can have.

    Raises:
        CorruptLog: they are not.

    Limits:
        Keeps the id of each saga.
    """
    after, before, largest, count = 0, (0, ""), 0, 0
    roots: dict[str, str] = {}
    newest: dict[str, tuple[int, int]] = {}
    while after < merged.last and (page := store.tail(after_pos=after, limit=_PAGE)):
        for stored in page:
            if stored.pos > merged.last:
                break
            record = decode_body(stored.body)
            if isinstance(record, SagaOpened) and record.n == 1:
                roots[record.saga] = roots.get(record.amends or "", record.amends or record.saga)
            root = roots.get(record.saga, record.saga)
            at, pos = newest.get(root, (0, 0))
            newest[root] = max(at, record.at), record.pos
            key = max(at, record.at), root
            if key < before or record.pos <= pos:
                raise CorruptLog("it is out of the order of a merged log", saga_id=record.saga, n=record.n)
            before, largest, count = key, max(largest, record.pos), count + 1
        after = page[-1].pos
    if any(fact.no == 0 for fact in store.facts("removed")):
        return  # How many records there were, and where the last one was, is gone with those that were pruned.
    if count != merged.last - merged.skipped or merged.skipped != max(0, largest - count):
        raise CorruptLog("its merge gave other positions than it says")
