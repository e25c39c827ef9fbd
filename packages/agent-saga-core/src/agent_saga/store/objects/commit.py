"""Commits as objects: what one commit does, how it is spelled, and what it follows.

A commit is an object that exists once and for all under its number, so whoever creates it has committed, and nobody
else can under that number. Its *core* is bound to all commits before it by a chain of digests; texts that may have to
leave the log for good (bodies, payloads) stand beside the core, and the core holds their hashes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import msgspec

from agent_saga.errors import CorruptLog
from agent_saga.model.records import FORMAT

FIRST_AFTER: Final = "0" * 64
_decode: Final = msgspec.json.Decoder
_encode: Final = msgspec.json.Encoder().encode

RowValues = tuple[Any, ...]
FactValues = tuple[str, str, str, int, str, int]


class RecordCore(msgspec.Struct, frozen=True, array_like=True):
    """A record without its texts: saga, number, and the hash that is its place in the saga's chain (hex)."""

    saga_id: str
    n: int
    hash: str


class RemovalCore(msgspec.Struct, frozen=True, array_like=True):
    """What is removed of a saga: all records, all payloads (`numbers` is None), or the payloads of some records."""

    saga_id: str
    records: bool
    numbers: list[int] | None = None


class Core(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a commit does, in order.

    Attributes:
        format: of the log.
        log: id of the log.
        no: number of the commit, from 1.
        after: digest of the commit before it.
        by: a random word of the attempt that wrote it: so its writer knows it again.
        records: added, positions in order.
        rows: rows after it: saga, the fields of `Row` in order, head (hex), count, amendments, leaf.
        keys: the newest saga of each key that changed.
        removed, added: facts; the running totals of budgets among them.
        removals: what leaves the log.
    """

    format: int
    log: str
    no: int
    after: str
    by: str
    records: list[RecordCore] = []
    rows: list[RowValues] = []
    keys: dict[str, str] = {}
    removed: list[FactValues] = []
    added: list[FactValues] = []
    removals: list[RemovalCore] = []


class Commit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A commit as an object.

    Attributes:
        core: the text of its `Core`.
        digest: hex SHA-256 of that text, which names the digest before it.
        texts: for each of the core's records its body and payload; null where it was removed or there is none.
        payloads: for each removal that replaces payloads, those that take their place; null where they were removed.
    """

    core: str
    digest: str
    texts: list[tuple[str | None, str | None]] = []
    payloads: list[list[str | None]] = []


def name_of(no: int) -> str:
    """Return the name of a commit's object."""
    return f"commits/{no:016d}"


def spell(core: Core, texts: list[tuple[str | None, str | None]], payloads: list[list[str | None]]) -> bytes:
    """Return the object of a commit."""
    text = _encode(core)
    return _encode(Commit(core=text.decode(), digest=sha256(text).hexdigest(), texts=texts, payloads=payloads))


def parse(data: bytes, *, no: int) -> tuple[Core, Commit]:
    """Return a commit, checked as far as it can be on its own.

    Raises:
        CorruptLog: it is none.
    """
    try:
        commit = _decode(Commit).decode(data)
        core = _decode(Core).decode(commit.core)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise CorruptLog(f"commit {no} cannot be read: {error}") from error
    if sha256(commit.core.encode()).hexdigest() != commit.digest:
        raise CorruptLog(f"commit {no} differs from its digest")
    replaced = [removal for removal in core.removals if removal.numbers is not None]
    fits = len(commit.texts) == len(core.records) and len(commit.payloads) == len(replaced)
    if core.format != FORMAT or core.no != no or not fits:
        raise CorruptLog(f"commit {no} is not what its name says, or of another format than {FORMAT}")
    return core, commit
