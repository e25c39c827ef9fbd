"""Payloads at rest: each sealed under the data key of its saga, which the log holds wrapped by a key of a ring.

A sealed payload is `0x01 || nonce (12 bytes) || AES-256-GCM(payload)`. Its associated data name the saga and the number
of the record, and the names of values are inside, so a ciphertext that was moved does not open. Nonces are random from
the kernel, and a data key belongs to one saga: at 2^32 payloads, more than a saga can hold, two of them meet with a
chance below 2^-32. A counter was ruled out: after a crash, a refused append or a redaction it would come twice.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from msgspec import structs

from agent_saga.errors import CorruptLog, KeyUnavailable, UsageError
from agent_saga.model.records import SEALED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_saga.store.keyring import KeyRing
    from agent_saga.store.port import Item, LogStore, Removal, StoredRecord

MINOR: Final = 3
"""Minor version of the format that sealed payloads came with."""
NONCE_BYTES: Final = 12
DATA_KEY_BYTES: Final = 32
_OPENED_MAX: Final = 10_000
_DOMAIN: Final = b"agent-saga payload\0"


@runtime_checkable
class KeepsDataKeys(Protocol):
    """A log that can hold sealed payloads."""

    def use_ring(self, ring: KeyRing) -> None:
        """Seal payloads from now on, and open those whose key the ring has."""

    def data_key(self, saga_id: str) -> str | None:
        """Return the wrapped data key of a saga, `<key id> <base64>`; None when nothing of it is sealed."""

    def data_keys(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, str]]:
        """Return one page of (saga, wrapped data key), in order of saga."""

    def rewrap(self, changes: Sequence[tuple[str, str, str]]) -> int:
        """Put wrapped data keys in the place of others, durably: (saga, before, after). Returns how many were there.

        Raises:
            LogFailed: the commit failed.
        """

    def opens(self, saga_id: str) -> bool:
        """Tell whether what is sealed of a saga can be opened here; true when nothing is."""

    def seals(self) -> bool:
        """Tell whether this process has a key ring for the log."""


def key_id_of(data_key: str) -> str:
    """Return the id of the key that wraps a data key."""
    return data_key.partition(" ")[0]


def locked_under(store: LogStore, saga_id: str) -> str | None:
    """Return the id of the key without which a saga, or what amends it, cannot be read here; None when it can."""
    if not isinstance(store, KeepsDataKeys):
        return None
    for one in (saga_id, *store.amendments(saga_id)):
        held = store.data_key(one)
        if held is not None and not store.opens(one):
            return key_id_of(held)
    return None


def check_readable(store: LogStore, saga_id: str, *, what: str) -> None:
    """Check that the values of a saga can be read here, before anything is done that depends on them.

    Args:
        store: the log.
        saga_id: the saga.
        what: what is not done without them, as `it was not recovered`.

    Raises:
        KeyUnavailable: they are encrypted under a key that is not here; nothing happened.
    """
    key_id = locked_under(store, saga_id)
    if key_id is not None:
        raise KeyUnavailable(
            f"saga {saga_id!r} is encrypted under key {key_id!r}, which is not in the key ring (or another key of that "
            f"name is): {what}. Name the key ring that has it: --key-ring FILE, AGENT_SAGA_KEY_RING or encryption=",
            saga_id=saga_id,
            key_id=key_id,
        )


def check_may_open(store: LogStore) -> None:
    """Check that a new saga would not be stored in plain text in a log that holds encrypted ones.

    Raises:
        KeyUnavailable: it would be; nothing happened.
    """
    data_keys = getattr(store, "data_keys", None)  # Asked for each saga: a check of the whole protocol costs more.
    if data_keys is None or store.seals():  # type: ignore[attr-defined]
        return
    if held := data_keys(limit=1):
        key_id = key_id_of(held[0][1])
        raise KeyUnavailable(
            f"the log {store.location} holds encrypted sagas (key {key_id!r}), and this process has no key ring: a new "
            "saga would be stored in plain text, so it was not opened. Give AgentKit(encryption=) or "
            "AGENT_SAGA_KEY_RING",
            key_id=key_id,
        )


class Sealer:
    """Seals and opens the payloads of one log.

    Args:
        ring: the keys.
        lookup: returns the wrapped data key of a saga, as stored.

    Raises:
        UsageError: the extra [encrypt] is not installed.
    """

    def __init__(self, ring: KeyRing, lookup: Callable[[str], str | None]) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise UsageError("encryption needs the extra [encrypt]: pip install 'agent-saga-core[encrypt]'") from error
        self._aes, self._invalid = AESGCM, InvalidTag
        self.ring, self._lookup = ring, lookup
        self._opened: dict[str, Any] = {}

    def seal(self, items: Sequence[Item]) -> tuple[Sequence[Item], dict[str, Any]]:
        """Return items with their payloads sealed, and the new data keys: to be `keep`t once they are in the log."""
        fresh: dict[str, Any] = {}
        return [
            self._sealed(item, fresh) if any(draft.payload is not None for draft in item.drafts) else item
            for item in items
        ], fresh

    def _sealed(self, item: Item, fresh: dict[str, Any]) -> Item:
        saga_id, data_key = item.saga_id, None
        cipher = fresh.get(saga_id) or (self.cipher(saga_id) if item.count else None)
        if cipher is None:
            if item.count and self._lookup(saga_id) is not None:
                check = f"saga {saga_id!r} is encrypted under a key that is not in the key ring; nothing was written"
                raise KeyUnavailable(check, saga_id=saga_id)
            key = os.urandom(DATA_KEY_BYTES)
            cipher = fresh[saga_id] = self._aes(key)
            data_key = wrapped(self.ring, key)
        drafts = [
            draft
            if draft.payload is None
            else structs.replace(draft, payload=self._seal_one(cipher, draft.payload, saga_id, n))
            for n, draft in enumerate(item.drafts, start=item.count + 1)
        ]
        return structs.replace(item, drafts=drafts, data_key=data_key)

    def seal_again(self, removal: Removal) -> Mapping[int, bytes] | None:
        """Return the payloads that take the place of others, sealed if those were."""
        saga_id = removal.row.saga_id
        cipher = None if removal.payloads is None else self.cipher(saga_id)
        if cipher is None or removal.payloads is None:
            return removal.payloads
        return {n: self._seal_one(cipher, payload, saga_id, n) for n, payload in removal.payloads.items()}

    def keep(self, fresh: dict[str, Any]) -> None:
        """Remember data keys that are in the log now."""
        if len(self._opened) >= _OPENED_MAX:
            self._opened.clear()
        self._opened.update(fresh)

    def cipher(self, saga_id: str) -> Any | None:
        """Return the cipher of a saga; None when it has no data key, or one that the ring does not open."""
        known = self._opened.get(saga_id)
        if known is None:
            held = self._lookup(saga_id)
            key = None if held is None else unwrapped(self.ring, held, saga_id)
            if key is None:
                return None
            known = self._aes(key)
            self.keep({saga_id: known})
        return known

    def open(self, records: list[StoredRecord]) -> list[StoredRecord]:
        """Return records with their payloads opened, where the ring has the key; others stay as they are.

        Raises:
            CorruptLog: a sealed payload does not open with the key of its saga.
        """
        if not any(_is_sealed(stored.payload) for stored in records):
            return records
        locked: set[str] = set()
        opened = []
        for stored in records:
            if not _is_sealed(stored.payload) or stored.saga_id in locked:
                opened.append(stored)
                continue
            cipher = self.cipher(stored.saga_id)
            if cipher is None:
                locked.add(stored.saga_id)
                opened.append(stored)
            else:
                opened.append(structs.replace(stored, payload=self._open_one(cipher, stored)))
        return opened

    def _seal_one(self, cipher: Any, payload: bytes, saga_id: str, n: int) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return SEALED + nonce + bytes(cipher.encrypt(nonce, payload, _bound_to(saga_id, n)))

    def _open_one(self, cipher: Any, stored: StoredRecord) -> bytes:
        sealed = stored.payload or b""
        nonce, content = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            return bytes(cipher.decrypt(nonce, content, _bound_to(stored.saga_id, stored.n)))
        except (self._invalid, ValueError) as error:
            raise CorruptLog(
                "the encrypted payload does not open with the key of its saga: it was changed, cut or moved",
                saga_id=stored.saga_id,
                n=stored.n,
            ) from error


def _is_sealed(payload: object) -> bool:
    return isinstance(payload, bytes) and payload[:1] == SEALED


def _bound_to(saga_id: str, n: int) -> bytes:
    """Return the associated data of a payload: its place."""
    return _DOMAIN + saga_id.encode() + b"\0" + str(n).encode()


def wrapped(ring: KeyRing, key: bytes) -> str:
    """Return a data key as the log holds it, wrapped by the current key of a ring."""
    return f"{ring.current} {base64.b64encode(ring.wrap(key)).decode()}"


def unwrapped(ring: KeyRing, data_key: str, saga_id: str) -> bytes | None:
    """Return a data key as it is; None when the ring does not open it.

    Raises:
        CorruptLog: what the log holds is no wrapped key.
    """
    key_id, _, text = data_key.partition(" ")
    try:
        return ring.unwrap(key_id, base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise CorruptLog("its wrapped data key is no base64", saga_id=saga_id) from error
