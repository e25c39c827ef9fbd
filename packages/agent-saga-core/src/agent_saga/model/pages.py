"""Pages of records: many bodies, or payloads, are decoded and checked in a few calls for all of them.

Where anything is wrong, these raise without telling what: `records.decode_body` and `open_payload` tell, one by one.
"""

from __future__ import annotations

import hashlib
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.model.records import FORMAT, AnyRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.model.records import Record

_encode_lines: Final = msgspec.json.Encoder().encode_lines
_decode_body_lines: Final = msgspec.json.Decoder(AnyRecord).decode_lines
_decode_payload_lines: Final = msgspec.json.Decoder(dict[str, tuple[str, str]]).decode_lines
_VERSIONS: Final = frozenset({FORMAT})
_DIGEST_LENGTHS: Final = frozenset({2 * hashlib.sha256().digest_size})
"""Of a commitment, in hex digits."""


def decode_bodies(bodies: Sequence[bytes]) -> list[AnyRecord]:
    """Return the records in some bodies: as `records.decode_body` for each, but in three calls for all of them.

    Raises:
        ValueError: one of them is wrong; `records.decode_body` tells which one, and how.
    """
    joined = b"\n".join(bodies) + b"\n"
    try:
        records = _decode_body_lines(joined)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    # A body that is its own re-encoding has no line feed, so there is one line for each, and one way to divide them.
    if not len(records) == len(bodies) == joined.count(b"\n") or _encode_lines(records) != joined:
        raise ValueError("a body is not in canonical form")
    if {record.v for record in records} - _VERSIONS:
        raise ValueError("a body is of another format version")
    return records


def open_payloads(records: Sequence[Record], payloads: Sequence[bytes | None]) -> list[dict[str, str]]:
    """Return the value texts of some records: as `records.open_payload` for each, but decoded in one call.

    Raises:
        ValueError: one of them is wrong; `records.open_payload` tells which one, and how.
    """
    texts = iter([{name: text for name, (_, text) in stored.items()} for stored in check_payloads(records, payloads)])
    return [next(texts) if record.values else {} for record in records]


def check_payloads(records: Sequence[Record], payloads: Sequence[bytes | None]) -> list[dict[str, tuple[str, str]]]:
    """Return salt and text of each value by name, of those records that have any, after checking each.

    Raises:
        ValueError: as `open_payloads`.
    """
    there = [payload for payload in payloads if payload is not None]
    joined = b"\n".join(there) + b"\n" if there else b""
    try:
        decoded = _decode_payload_lines(joined)
        entries = [entry for stored in decoded for entry in stored.values()]
        salts = "".join([salt for salt, _ in entries])
        canonical = bytes.fromhex(salts).hex() == salts and _encode_lines(decoded) == joined
        sha256, salt_of = hashlib.sha256, bytes.fromhex
        found = b"".join([sha256(salt_of(salt) + text.encode()).digest() for salt, text in entries]).hex()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(str(error)) from error
    if not canonical or not len(decoded) == len(there) == joined.count(b"\n"):
        raise ValueError("a payload is not in canonical form")
    values = [record.values for record in records]
    named = [one for one in values if one]
    if [payload is None for payload in payloads] != [not one for one in values] or [*map(len, named)] != [
        *map(len, decoded)
    ]:
        raise ValueError("a payload is missing, or has other values than its body names")
    # As many for each, so what is equal in one long list is equal record by record.
    if [*chain.from_iterable(decoded)] != [*chain.from_iterable(named)]:
        raise ValueError("a payload names other values than its body")
    commitments = [*chain.from_iterable([one.values() for one in named])]
    # Of one length each, so that what is equal joined is equal one by one.
    if {*map(len, commitments)} - _DIGEST_LENGTHS or "".join(commitments) != found:
        raise ValueError("a payload differs from the commitments")
    return decoded
