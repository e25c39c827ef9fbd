"""Damage to a log, for the reader to notice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from agent_saga.errors import CorruptLog
from agent_saga.machine.report import report_of
from agent_saga.store.reader import load
from agent_saga.testing.sim.disk import Chain, Disk, Image, SimLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.store.port import StoredRecord

Records = list["StoredRecord"]


def unnoticed(image: Image, number: int) -> str | None:
    """Damage one saga of an image, and return what was done when a reader did not notice it.

    Args:
        image: stays as it is.
        number: chooses the saga, the record and the damage.
    """
    ids = sorted(saga_id for saga_id, chain in image.chains.items() if not chain.current.amendments)
    if not ids:
        return None
    saga_id = ids[number % len(ids)]
    chain = image.chains[saga_id]
    what = list(DAMAGES)[number % len(DAMAGES)]
    records = list(chain.records)
    place = (number // len(DAMAGES)) % len(records)
    changed = DAMAGES[what](chain, records, place)
    if changed is None or changed == chain:
        return None
    before, after = _shown(image, saga_id), _shown(replace(image, chains={**image.chains, saga_id: changed}), saga_id)
    if after is None or after == before:
        return None
    return f"{what} at record {place + 1} of saga {saga_id} changed what is read, unnoticed"


def _shown(image: Image, saga_id: str) -> object:
    store = SimLog(Disk(image), "reader", now_ns=lambda: 0, committed=lambda *_: None, waits=lambda _: None)
    try:
        loaded = load(store, saga_id)
    except CorruptLog:
        return None
    return loaded and (loaded.view, report_of(loaded.view))


def _flip(chain: Chain, records: Records, place: int) -> Chain:
    body = bytearray(records[place].body)
    body[len(body) // 2] ^= 1
    records[place] = structs.replace(records[place], body=bytes(body))
    return replace(chain, records=tuple(records))


def _drop(chain: Chain, records: Records, place: int) -> Chain:
    del records[place]
    return replace(chain, records=tuple(records))


def _swap(chain: Chain, records: Records, place: int) -> Chain | None:
    if place == 0:
        return None
    records[place - 1 : place + 1] = [records[place], records[place - 1]]
    return replace(chain, records=tuple(records))


def _renumber(chain: Chain, records: Records, place: int) -> Chain:
    records[place] = structs.replace(records[place], n=records[place].n + 1)
    return replace(chain, records=tuple(records))


def _payload(chain: Chain, records: Records, place: int) -> Chain | None:
    payload = records[place].payload
    if payload is None:
        return None
    records[place] = structs.replace(records[place], payload=payload.replace(b"A", b"B"))
    return replace(chain, records=tuple(records))


def _lose_payload(chain: Chain, records: Records, place: int) -> Chain:
    records[place] = structs.replace(records[place], payload=None)
    return replace(chain, records=tuple(records))


def _cut(chain: Chain, records: Records, place: int) -> Chain:
    return replace(chain, records=tuple(records[: place + 1]))


def _state(chain: Chain, *_: object) -> Chain:
    other = "committed" if chain.row.state == "rolled_back" else "rolled_back"
    return replace(chain, row=replace(chain.row, state=other))


def _work(chain: Chain, *_: object) -> Chain:
    return replace(chain, row=replace(chain.row, work=chain.row.work + 1))


DAMAGES: dict[str, Callable[[Chain, Records, int], Chain | None]] = {
    "a flipped bit in a body": _flip,
    "a record that is gone": _drop,
    "two records swapped": _swap,
    "a renumbered record": _renumber,
    "a changed payload": _payload,
    "a lost payload": _lose_payload,
    "a tail cut off": _cut,
    "a changed state in the row": _state,
    "a changed number of work items": _work,
}
