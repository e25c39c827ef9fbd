"""A log against a checkpoint of it that was kept elsewhere: was it cut, or written anew, since?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.audit import tree
from agent_saga.audit.leaves import origin_of
from agent_saga.errors import CorruptLog, UsageError
from agent_saga.store.removed import REMOVED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.audit.note import Checkpoint
    from agent_saga.store.port import LogStore


def check_anchor(store: LogStore, anchor: Checkpoint, leaves: Sequence[bytes]) -> list[str]:
    """Check that a log is an extension of what it was at a checkpoint; return what that shows, a line each.

    Args:
        store: the log, verified: a chain that was written anew as a whole passes every other check.
        anchor: the checkpoint.
        leaves: the leaf hashes of the log.

    Raises:
        UsageError: the checkpoint is of another log.
        CorruptLog: leaves or records are gone, or are others than they were.
    """
    if anchor.origin != (ours := origin_of(store)):
        raise UsageError(f"the checkpoint is of the log {anchor.origin}, this one is {ours}")
    if anchor.size > len(leaves):
        raise CorruptLog(f"its tail is gone: the checkpoint has {anchor.size} sealed sagas, the log {len(leaves)}")
    if tree.root_of(leaves[: anchor.size]) != anchor.root:
        raise CorruptLog(f"it was written anew: its first {anchor.size} sealed sagas are not those of the checkpoint")
    shown = [f"anchor: the first {anchor.size} sealed sagas are those of the checkpoint, whole and in their order"]
    if anchor.tail is None:
        return shown
    pos, digest = anchor.tail
    found = store.tail(after_pos=pos - 1, limit=1)
    if found and found[0].pos != pos and any(fact.no == 0 for fact in store.facts(REMOVED)):
        # Verified before: each position that is missing belongs to a saga that was pruned.
        return [*shown, f"not checked: record {pos}, the last one of the checkpoint, was pruned since"]
    if not found or found[0].pos != pos:
        raise CorruptLog(f"its tail is gone: the checkpoint has a record at position {pos}, the log has none")
    if found[0].hash != digest:
        raise CorruptLog(f"it was written anew: record {pos} is another one than that of the checkpoint")
    return [*shown, f"anchor: record {pos}, the last one then, is there, and so is all of its saga before it"]
