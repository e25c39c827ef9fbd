"""Retention: payloads, or all records, of sealed sagas leave the log; their rows, keys and leaves stay.

So the tree of the log, its root, every checkpoint, and every proof of another saga stay what they were, and a key is
still known to be used. What stays of a saga is committed to by the record that says that it was pruned.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.audit.amending import stating
from agent_saga.errors import RecordsPruned, SagaBusy, UsageError
from agent_saga.machine.row import row_of
from agent_saga.machine.states import ENDED
from agent_saga.model import records as r
from agent_saga.runtime.operators import check_name
from agent_saga.runtime.refusal import recordable
from agent_saga.store.port import Committed, Removal
from agent_saga.store.reader import complete_row, history
from agent_saga.store.removed import REMOVED, row_digest
from agent_saga.store.sealing import KeepsDataKeys
from agent_saga.store.verify import all_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_saga.store.port import LogStore, StoredRow

_TOGETHER: Final = 200
"""Sagas that one record names, and that are removed in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """What was pruned, or would be.

    Attributes:
        sagas: how many, the small ones that amend them included.
        records: records of theirs, all or only their payloads.
        kept: sagas that are old enough and stay: not sealed, or something about them is in force.
    """

    sagas: int
    records: int
    kept: int


def prune(
    store: LogStore, *, before_ns: int, by: str, reason: str = "", payloads_only: bool = False, dry_run: bool = False
) -> Pruning:
    """Remove the records, or the payloads, of sagas that were sealed before a moment, and whose last fact is older.

    Args:
        store: the log.
        before_ns: nanoseconds since 1970.
        by: who acts; recorded.
        reason: recorded.
        payloads_only: the bodies stay: kinds, states, names and times.
        dry_run: change nothing.

    Raises:
        CorruptLog: a saga that would be pruned is damaged; those before it were pruned.
        SagaBusy: sagas changed while they were looked at; those before them were pruned.
        LogUnusable: it is done, and old bytes may be left in the files; pruning again removes them.
    """
    by, reason = check_name(by), recordable(reason)
    frozen = {fact.name.removeprefix("saga:") for fact in store.facts("quarantine")}
    found = _Found()
    waiting: list[tuple[StoredRow, int]] = []
    for stored in all_rows(store):
        if stored.row.amends is not None or stored.row.opened_at >= before_ns:
            continue
        family = None if stored.saga_id in frozen else _family(store, stored, before_ns, payloads_only=payloads_only)
        if family is None:
            found.kept += 1
            continue
        found.sagas, found.records = found.sagas + len(family), found.records + sum(row.count for row, _ in family)
        waiting += family
        if len(waiting) >= _TOGETHER and not dry_run:
            _remove(store, waiting, by, reason, payloads_only=payloads_only)
            waiting = []
    if waiting and not dry_run:
        _remove(store, waiting, by, reason, payloads_only=payloads_only)
    elif not found.sagas and not dry_run:
        store.scrub()  # A run before this one may have been kept from it.
    return Pruning(sagas=found.sagas, records=found.records, kept=found.kept)


def shred(store: LogStore, saga_id: str, *, by: str, reason: str = "") -> tuple[str, ...]:
    """Destroy the data keys and the payloads of an encrypted, sealed saga and of what amends it. It needs no key.

    Bodies and chains stay, and every reader says who shredded it and when. Copies of payloads elsewhere (bundles,
    backups) cannot be read either, unless the wrapped data keys were copied with them and somebody has the key ring.

    Args:
        store: the log.
        saga_id: the saga.
        by: who acts; recorded.
        reason: recorded.

    Returns:
        The sagas whose data keys were destroyed.

    Raises:
        UsageError: there is no such saga, it is not sealed, something in it is in force, or nothing of it is encrypted.
        SagaBusy: it changed while it was looked at; nothing was shredded.
        LogUnusable: it is done, and old bytes may be left in the files; `scrub` removes them.
    """
    by, reason = check_name(by), recordable(reason)
    row = store.row(saga_id)
    if row is None:
        raise UsageError(f"there is no saga {saga_id!r} in this log")
    family = _family(store, row, sys.maxsize, payloads_only=True)
    if family is None:
        raise UsageError(f"saga {saga_id!r} cannot be shredded: it is not sealed, and its values may still be needed")
    held = [
        (row, at) for row, at in family if isinstance(store, KeepsDataKeys) and store.data_key(row.saga_id) is not None
    ]
    if not held:
        raise UsageError(f"saga {saga_id!r} has no data key: it was shredded or pruned already, or never encrypted")
    _remove(store, held, by, reason, payloads_only=True, shredded=True)
    return tuple(row.saga_id for row, _ in held)


@dataclass(slots=True)
class _Found:
    sagas: int = 0
    records: int = 0
    kept: int = 0


def _family(
    store: LogStore, stored: StoredRow, before_ns: int, *, payloads_only: bool
) -> list[tuple[StoredRow, int]] | None:
    """Return a saga and all that amends it, with the positions that sealed them; None when one of them must stay.

    A saga that was pruned before is an empty family.
    """
    family: list[tuple[StoredRow, int]] = []
    for row in _with_amending(store, stored):
        said = {fact.no for fact in store.facts(REMOVED, row.saga_id)}
        if 0 in said or (payloads_only and 1 in said):
            continue
        in_force = any(fact.kind != "spend" for fact in store.facts_of(row.saga_id))
        if not row.row.sealed or in_force:
            return None
        try:
            at, newest = _sealed_at(store, row)
        except RecordsPruned:
            continue
        if not at or newest >= before_ns:
            return None
        family.append((row, at))
    return family


def _with_amending(store: LogStore, stored: StoredRow) -> Iterator[StoredRow]:
    row = complete_row(store, stored.saga_id)
    if row is not None:
        yield row
        for other in store.amendments(stored.saga_id):
            amending = store.row(other)
            if amending is not None:
                yield from _with_amending(store, amending)


def _sealed_at(store: LogStore, row: StoredRow) -> tuple[int, int]:
    """Return the position of the record that sealed a saga, and the time of its newest one. All of it is checked."""
    at = newest = 0
    for (record, body, _), view in history(store, row):
        newest = max(newest, body.at)
        if at == 0 and view.state in ENDED and row_of(view).sealed:
            at = record.pos
    return at, newest


def _remove(
    store: LogStore,
    sagas: Sequence[tuple[StoredRow, int]],
    by: str,
    reason: str,
    *,
    payloads_only: bool,
    shredded: bool = False,
) -> None:
    named = [(row.saga_id, at, "" if payloads_only else _digest(store, row)) for row, at in sagas]
    fact = r.Pruned(v=r.FORMAT, saga="", n=0, pos=0, at=0, sagas=named, by=by, reason=reason)
    fact.payloads_only, fact.shredded = payloads_only, shredded
    removals = [Removal(row=row, records=not payloads_only) for row, _ in sagas]
    name = "shred" if shredded else "prune"
    if not isinstance(store.rewrite(stating(name, [fact], by=by), removals), Committed):
        raise SagaBusy("sagas changed while they were looked at; nothing of them was pruned. Try again")


def _digest(store: LogStore, row: StoredRow) -> str:
    """Return the digest of what stays: the row with the epoch that it will have."""
    stays = msgspec.structs.replace(row, row=replace(row.row, epoch=row.row.epoch + 1))
    return row_digest(stays, store.facts_of(row.saga_id))
