"""The tree of a log: its leaves are the sealed sagas, in the order of their sealing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.audit import tree
from agent_saga.audit.note import Checkpoint
from agent_saga.errors import CorruptLog
from agent_saga.model.records import encode_body
from agent_saga.store.verify import all_rows, last_position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_saga.store.port import LogStore, StoredRow

ORIGIN: Final = "agent-saga/"


def leaf_bytes(stored: StoredRow) -> bytes:
    """Return what a sealed saga is in the log's tree: compact JSON of id, head, count and outcome."""
    return encode_body([stored.saga_id, stored.head.hex(), stored.count, stored.row.state])


class Leaves:
    """The leaf hashes of a log, gathered row by row: 32 bytes for each sealed saga."""

    def __init__(self) -> None:
        self._by_number: dict[int, bytes] = {}

    def add(self, stored: StoredRow) -> None:
        """Take a row; one without a leaf is passed over."""
        if stored.leaf is not None:
            self._by_number[stored.leaf] = tree.leaf_hash(leaf_bytes(stored))

    def packed(self) -> bytes:
        """Return all as bytes: 8 of the number, 32 of the hash, and so on."""
        return b"".join([number.to_bytes(8, "big") + digest for number, digest in self._by_number.items()])

    def unpack(self, packed: bytes) -> None:
        """Take what `packed` gave."""
        for at in range(0, len(packed), 40):
            self._by_number[int.from_bytes(packed[at : at + 8], "big")] = packed[at + 8 : at + 40]

    def in_order(self) -> list[bytes]:
        """Return all leaf hashes.

        Raises:
            CorruptLog: one is missing.
        """
        try:
            return [self._by_number[number] for number in range(1, len(self._by_number) + 1)]
        except KeyError as error:
            raise CorruptLog(f"leaf {error.args[0]} is missing") from None


def leaves_of(store: LogStore) -> list[bytes]:
    """Return the leaf hashes of a log, in order. The rows are taken as they are: see `verify`.

    Raises:
        CorruptLog: a leaf is missing.
    """
    return gathered(all_rows(store)).in_order()


def gathered(rows: Iterable[StoredRow]) -> Leaves:
    """Return the leaves among rows."""
    leaves = Leaves()
    for stored in rows:
        leaves.add(stored)
    return leaves


def origin_of(store: LogStore) -> str:
    """Return the name of a log in its checkpoints."""
    return ORIGIN + store.log_id()


def checkpoint_of(store: LogStore) -> Checkpoint:
    """Return what a log is now; taken from its rows as they are, so verify it first.

    Raises:
        CorruptLog: a leaf is missing.
    """
    last = last_position(store)
    record = store.tail(after_pos=last - 1, limit=1) if last else []
    leaves = leaves_of(store)
    tail = (record[0].pos, record[0].hash) if record else None
    return Checkpoint(origin=origin_of(store), size=len(leaves), root=tree.root_of(leaves), tail=tail)


def root(store: LogStore) -> tuple[int, bytes]:
    """Return the number of leaves and the root of the log's tree; the rows are taken as they are, see `verify`.

    Raises:
        CorruptLog: a leaf is missing.
    """
    leaves = leaves_of(store)
    return len(leaves), tree.root_of(leaves)
