"""Redaction: values leave the payloads of a sealed saga for good, and a record says so.

A path names a place (`kwargs.card`, `kwargs.items.0.cvv`, `result.*`), not a value: what a tool copied elsewhere stays
there, and is reported. Bodies hold no values, so every chain, leaf, proof and checkpoint stays what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.audit.amending import stating
from agent_saga.errors import SagaBusy, UsageError
from agent_saga.model import records as r
from agent_saga.model.values import decode
from agent_saga.runtime.clock import clock
from agent_saga.runtime.operators import check_name
from agent_saga.runtime.refusal import recordable
from agent_saga.store.port import Committed, Removal
from agent_saga.store.reader import checked_records, load
from agent_saga.store.removed import Removed
from agent_saga.store.sealing import check_readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_saga.store.port import LogStore
    from agent_saga.store.reader import Checked, Loaded

_TRIES: Final = 20
_COPY_LENGTH_MIN: Final = 4
"""Texts that are shorter are found everywhere; whether they are copies nobody can tell."""
_dumps: Final = msgspec.json.Encoder().encode
_loads: Final = msgspec.json.Decoder().decode
_TYPES: Final = {str: "builtins.str", bool: "builtins.bool", int: "builtins.int", float: "builtins.float"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What was redacted.

    Attributes:
        saga_id: the saga.
        values: (saga, number of the record, name of the value) of each value that was changed.
        copies: the same of each value of the saga that still holds a text that was removed.
        scrubbed: nothing of it is left in the store's files, as far as the store can tell.
    """

    saga_id: str
    values: tuple[tuple[str, int, str], ...]
    copies: tuple[tuple[str, int, str], ...]


# -- paths --------------------------------------------------------------------------------------------------------


def redact_path(records: Iterable[Checked], path: str) -> dict[int, dict[str, str]]:
    """Return the texts that values have without what a path names: by number of the record and name of the value.

    Args:
        records: of one saga, as `store.reader.checked_records` yields them.
        path: dotted; `*` is any one part, `kwargs` alone is every argument.

    Raises:
        UsageError: the path is empty, or one of its parts is.
    """
    parts = path.split(".")
    if not all(parts):
        raise UsageError(f"{path!r} is no path: it is dotted, as kwargs.card or kwargs.items.*.cvv")
    found: dict[int, dict[str, str]] = {}
    for stored, _, values in records:
        for name, text in values.items():
            changed = _without(name, text, parts)
            if changed is not None:
                found.setdefault(stored.n, {})[name] = changed
    return found


def _without(name: str, text: str, parts: Sequence[str]) -> str | None:
    """Return the text of a value without what a path names, or None when it names nothing there."""
    names = name.split(".")
    if not all(fnmatchcase(one, part) for one, part in zip(names, parts, strict=False)):
        return None
    node = _loads(text)
    changed = _hole(node) if len(parts) <= len(names) else _dig(node, parts[len(names) :])
    return None if changed == node else _dumps(changed).decode()


def _dig(node: Any, parts: Sequence[str]) -> Any:
    if not parts:
        return _hole(node)
    part, rest = parts[0], parts[1:]
    if type(node) is list:
        return [_dig(item, rest) if fnmatchcase(str(at), part) else item for at, item in enumerate(node)]
    if type(node) is not dict:
        return node
    if len(node) == 1 and (tag := next(iter(node)))[:1] == "$":
        return {tag: _dig_tagged(tag, node[tag], parts)}
    return {key: _dig(item, rest) if fnmatchcase(key, part) else item for key, item in node.items()}


def _dig_tagged(tag: str, content: Any, parts: Sequence[str]) -> Any:
    match tag:
        case "$tuple" | "$set" | "$frozenset":
            return _dig(content, parts)
        case "$object":
            return [content[0], _dig(content[1], parts)]
        case "$enum":
            return [*content[:2], _dig(content[2], parts)]
        case "$dict":
            return [
                [key, _dig(item, parts[1:]) if fnmatchcase(str(decode(_dumps(key).decode())), parts[0]) else item]
                for key, item in content
            ]
        case _:
            return content


def _hole(node: Any) -> Any:
    if type(node) is dict and len(node) == 1 and "$redacted" in node:
        return node
    return {"$redacted": _TYPES.get(type(node), "value")}


# -- the log ------------------------------------------------------------------------------------------------------


def redact(store: LogStore, saga_id: str, path: str, *, by: str, reason: str = "") -> Redaction:
    """Destroy what a path names in the values of a sealed saga, and of the sagas that amend it.

    Args:
        store: the log.
        saga_id: the saga.
        path: see `redact_path`.
        by: who acts; recorded.
        reason: recorded.

    Raises:
        UsageError: there is no such saga, it is not sealed, or the path is none.
        KeyUnavailable: the saga is encrypted, and its key is not here.
        SagaBusy: the saga changes all the time; what `values` would name was not redacted.
        LogUnusable: it is redacted, and old bytes may be left in the files; redacting again removes them.

    Durability:
        On return the values are replaced, and nothing of what they were is in the log's files: neither texts nor salts.
        Copies elsewhere (backups, replicas, exports, blocks that the device keeps) are not reached.
    """
    by, reason = check_name(by), recordable(reason)
    changed: list[tuple[str, int, str]] = []
    gone: set[str] = set()
    _sealed(store, saga_id)
    check_readable(store, saga_id, what="nothing was redacted")
    for each in (saga_id, *store.amendments(saga_id)):
        for n, names in _redact_one(store, each, path, gone, by=by, reason=reason).items():
            changed += [(each, n, name) for name in names]
    if not changed:
        store.scrub()  # A redaction before this one may have been kept from it.
    return Redaction(saga_id=saga_id, values=tuple(changed), copies=tuple(_copies(store, saga_id, gone)))


def _sealed(store: LogStore, saga_id: str) -> Loaded:
    loaded = load(store, saga_id)
    if loaded is None:
        raise UsageError(f"there is no saga {saga_id!r} in this log")
    if not loaded.row.row.sealed:
        raise UsageError(
            f"saga {saga_id!r} cannot be redacted: it is not sealed, and its values may still be needed to compensate"
        )
    return loaded


def _redact_one(
    store: LogStore, saga_id: str, path: str, gone: set[str], *, by: str, reason: str
) -> Mapping[int, Mapping[str, str]]:
    for _ in range(_TRIES):
        loaded = _sealed(store, saga_id)
        checked = list(checked_records(store, saga_id, count=loaded.row.count))
        changes = redact_path(checked, path)
        if not changes:
            return {}
        removed = Removed.of(store, saga_id)
        facts, payloads = [], {}
        for stored, record, values in checked:
            texts = changes.get(stored.n)
            if texts is None:
                continue
            if stored.payload is None:  # Pruned: nothing is there.
                continue
            if isinstance(record, r.ApprovalRequested) and "nonce" in values:
                # The digest in the body is over the arguments and the nonce: with it a short one could be guessed.
                texts = {**texts, "nonce": _dumps(_hole(_loads(values["nonce"]))).decode()}
            for name, text in texts.items():
                gone.update(_leaves(_loads(values[name])) - _leaves(_loads(text)))
            payloads[stored.n], commitments = _sealed_anew(stored.payload, texts)
            _check(record, payloads[stored.n], {**removed.replaced(stored.n), **commitments})
            facts.append(_fact(stored.n, commitments, by, reason))
        if not facts:
            return {}
        item = stating("redaction", facts, by=by, target=loaded)
        if isinstance(store.rewrite(item, [Removal(row=loaded.row, payloads=payloads)]), Committed):
            return {n: changes[n] for n in payloads}
    raise SagaBusy(f"saga {saga_id!r} changes all the time; try again")


def _fact(n: int, commitments: dict[str, str], by: str, reason: str) -> r.Redacted:
    return r.Redacted(v=r.FORMAT, saga="", n=0, pos=0, at=0, record=n, replaced=commitments, by=by, reason=reason)


def _sealed_anew(payload: bytes, texts: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """Return a payload with some texts replaced, under new salts, and the commitments to those."""
    commitments, fresh = r.seal_values(texts, clock().entropy(16 * len(texts)))
    entries = {**r.payload_entries(payload), **r.payload_entries(fresh)}
    return r.encode_body(entries), commitments


def _check(record: r.Record, payload: bytes, replaced: Mapping[str, str]) -> None:
    """INVARIANT: what is written can be read, before anything is destroyed."""
    r.open_payload(record, payload, replaced)


def _leaves(node: Any) -> set[str]:
    if type(node) is str:
        return {node} if len(node) >= _COPY_LENGTH_MIN else set()
    if type(node) in {int, float} and len(str(node)) >= _COPY_LENGTH_MIN:
        return {str(node)}
    items = node.values() if type(node) is dict else node if type(node) is list else ()
    return set().union(*map(_leaves, items))


def _copies(store: LogStore, saga_id: str, gone: set[str]) -> Iterable[tuple[str, int, str]]:
    """Yield where texts that were removed are still to be found."""
    if not gone:
        return
    for each in (saga_id, *store.amendments(saga_id)):
        for stored, _, values in checked_records(store, each):
            for name, text in values.items():
                if any(_dumps(one).decode()[1:-1] in text for one in gone):
                    yield each, stored.n, name
