"""Rotation: data keys are wrapped by the newest key of a ring; no payload changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.errors import UsageError
from agent_saga.store.sealing import KeepsDataKeys, key_id_of, unwrapped, wrapped

if TYPE_CHECKING:
    from agent_saga.store.keyring import KeyRing
    from agent_saga.store.port import LogStore

_TOGETHER: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrapped:
    """What became of the data keys of a log.

    Attributes:
        wrapped: data keys that are wrapped by the newest key now.
        kept: data keys that were before.
        locked: how many are wrapped by keys that the ring does not open, by key id.
    """

    wrapped: int
    kept: int
    locked: dict[str, int]


def rewrap(store: LogStore, ring: KeyRing) -> Rewrapped:
    """Wrap every data key of a log by the newest key of a ring. Sagas may be opened, go on and end meanwhile.

    Args:
        store: the log.
        ring: holds the keys of before and the new one.

    Raises:
        UsageError: the log cannot hold encrypted payloads.
        CorruptLog: what the log holds is no wrapped key.
        LogUnusable: it is done, and keys as they were wrapped before may be left in the files; do it again.
    """
    if not isinstance(store, KeepsDataKeys):
        raise UsageError(f"the log {store.location} cannot hold encrypted payloads")
    done = kept = 0
    locked: dict[str, int] = {}
    after = ""
    while page := store.data_keys(after=after, limit=_TOGETHER):
        changes: list[tuple[str, str, str]] = []
        for saga_id, held in page:
            key_id = key_id_of(held)
            key = unwrapped(ring, held, saga_id)
            if key is None:
                locked[key_id] = locked.get(key_id, 0) + 1
            elif key_id == ring.current:
                kept += 1
            else:
                changes.append((saga_id, held, wrapped(ring, key)))
        done += store.rewrap(changes) if changes else 0
        after = page[-1][0]
    if done:
        store.scrub()
    return Rewrapped(wrapped=done, kept=kept, locked=locked)
