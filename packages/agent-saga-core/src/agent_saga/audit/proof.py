"""One saga, whole, to somebody who does not get the log.

A proof holds the bodies of all records of a sealed saga and of what amends it, and for each of those sagas the path by
which its leaf leads to the root of a checkpoint. The leaf commits to the saga's head, number of records and outcome, so
that no record can be left out, added or changed. Values may be withheld: a body holds only salted commitments to them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from agent_saga.audit import tree
from agent_saga.audit.leaves import checkpoint_of, leaf_bytes, leaves_of
from agent_saga.audit.note import open_note, parse_checkpoint
from agent_saga.errors import BadEvidence, CorruptLog, UsageError
from agent_saga.machine.fold import amend, apply, begin
from agent_saga.machine.row import row_of
from agent_saga.machine.states import TransitionError
from agent_saga.model.records import (
    GENESIS,
    AnyRecord,
    Redacted,
    SagaOpened,
    chain_hash,
    commitment,
    decode_body,
    encode_body,
    payload_entries,
)
from agent_saga.store.reader import checked_records, load
from agent_saga.store.sealing import check_readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_saga.audit.note import Checkpoint, Verifier
    from agent_saga.machine.view import SagaView
    from agent_saga.store.port import LogStore, StoredRecord

SCHEMA: Final = "agent-saga/proof/1"
_Replaced = dict[int, dict[str, str]]
"""Commitments that `redacted` records put in the place of a body's, by number of the record and name of the value."""
_WITHHELD: Final = '{"$redacted":"withheld"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What a proof shows.

    Attributes:
        checkpoint: the tree that its leaves are in.
        signed_by: the name of the key that signed the checkpoint, or None: then it shows only what the log said.
        view: the fold of the saga; values that were withheld are markers.
        withheld: values in all records that were not shown.
    """

    checkpoint: Checkpoint
    signed_by: str | None
    view: SagaView
    records: int
    withheld: int


# -- making -------------------------------------------------------------------------------------------------------


def prove(store: LogStore, saga_id: str, *, withhold: Sequence[str] = (), note: str | None = None) -> dict[str, Any]:
    """Return a proof of one saga as JSON-serialisable data.

    Args:
        store: the log.
        saga_id: the saga; it must be sealed.
        withhold: values that are not shown, as patterns of their names (`kwargs.card`, `kwargs.*`, `result`).
        note: a checkpoint of this log, signed or not; by default the present one, unsigned.

    Raises:
        UsageError: there is no such saga, it is not sealed, or the checkpoint is older or of another log.
        KeyUnavailable: it is encrypted, its key is not here, and not all of its values are withheld.
        CorruptLog: its records are damaged, or the log is no extension of the checkpoint.
    """
    loaded = load(store, saga_id)
    if loaded is None:
        raise UsageError(f"there is no saga {saga_id!r} in this log")
    if "*" not in withhold:
        check_readable(store, saga_id, what="its values cannot be shown; --withhold '*' proves it without them")
    if not loaded.row.row.sealed:
        raise UsageError(f"saga {saga_id} cannot be proved: it is not sealed, it {_why_open(loaded.view)}")
    leaves = leaves_of(store)
    text = checkpoint_of(store).text() if note is None else note
    checkpoint = parse_checkpoint(text)
    if checkpoint.size > len(leaves) or tree.root_of(leaves[: checkpoint.size]) != checkpoint.root:
        raise CorruptLog("the log is no extension of the checkpoint")
    leaves = leaves[: checkpoint.size]
    parts = [_part(store, each, leaves, withhold) for each in (saga_id, *store.amendments(saga_id))]
    return {"schema": SCHEMA, "checkpoint": text, "saga": parts[0], "amendments": parts[1:]}


def _why_open(view: SagaView) -> str:
    if not view.ended:
        return f"is {view.state.value.replace('_', ' ')}"
    return "has work items that a recovery or a human must settle"


def _part(store: LogStore, saga_id: str, leaves: Sequence[bytes], withhold: Sequence[str]) -> dict[str, Any]:
    row = store.row(saga_id)
    if row is None or row.leaf is None or row.leaf > len(leaves):
        raise UsageError(f"saga {saga_id} is not in the checkpoint: it was sealed later; make a new checkpoint")
    if tree.leaf_hash(leaf_bytes(row)) != leaves[row.leaf - 1]:
        raise CorruptLog("its leaf changed while it was read", saga_id=saga_id)
    shows = _replaced(store, saga_id) if row.row.amends is None else {}
    records = [_shown(*checked[:2], withhold, shows) for checked in checked_records(store, saga_id)]
    path = [digest.hex() for digest in tree.inclusion_path(row.leaf - 1, leaves)]
    return {"id": saga_id, "leaf": row.leaf, "path": path, "records": records}


def _replaced(store: LogStore, saga_id: str) -> _Replaced:
    """Return the commitments that redactions put in the place of others, as the amendments in the proof will say."""
    found: _Replaced = {}
    for other in store.amendments(saga_id):
        _note(found, [record for _, record, _ in checked_records(store, other)])
    return found


def _note(replaced: _Replaced, records: Sequence[AnyRecord]) -> None:
    for record in records:
        if isinstance(record, Redacted):
            replaced.setdefault(record.record, {}).update(record.replaced)


def _shown(stored: StoredRecord, record: AnyRecord, withhold: Sequence[str], replaced: _Replaced) -> dict[str, Any]:
    """Return a record with the values that are shown: those that the proof itself commits to, and that are there."""
    commitments = {**record.values, **replaced.get(record.n, {})}
    kept = {
        name: list(value)
        for name, value in payload_entries(stored.payload).items()
        if commitment(*value) == commitments[name] and not any(fnmatchcase(name, pattern) for pattern in withhold)
    }
    return {"body": stored.body.decode(), "values": kept}


# -- checking -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Chain:
    """One saga of a proof while it is read."""

    id: str
    head: bytes = GENESIS
    pos: int = 0
    records: list[tuple[AnyRecord, dict[str, str]]] = field(default_factory=list)
    withheld: int = 0


def check_proof(document: Any, *, verifier: Verifier | None = None, checkpoint: str | None = None) -> Proven:
    """Check a proof, without the log.

    Args:
        document: as `prove` returned it.
        verifier: the key that must have signed the checkpoint.
        checkpoint: the note that the verifier trusts, instead of the one in the proof.

    Raises:
        BadEvidence: it does not hold; the message says where.
    """
    try:
        if document["schema"] != SCHEMA:
            raise BadEvidence(f"this is a {document['schema']!r}, not a {SCHEMA!r}")
        note = document["checkpoint"] if checkpoint is None else checkpoint
        text = note if verifier is None else open_note(note, verifier)
        trusted = parse_checkpoint(text)
        amending = [_read(part, {}) for part in document["amendments"]]
        replaced: _Replaced = {}
        for chain in sorted(amending, key=lambda chain: chain.pos):
            _note(replaced, [record for record, _ in chain.records])
        chains = [_read(document["saga"], replaced), *amending]
        view = _folded(chains)
        for part, chain in zip((document["saga"], *document["amendments"]), chains, strict=True):
            _check_leaf(part, chain, view if chain is chains[0] else _folded([chain]), trusted)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadEvidence(f"this is no proof, or a damaged one: {error!r}") from error
    return Proven(
        checkpoint=trusted,
        signed_by=None if verifier is None else verifier.name,
        view=view,
        records=sum(len(chain.records) for chain in chains),
        withheld=sum(chain.withheld for chain in chains),
    )


def _read(part: dict[str, Any], replaced: _Replaced) -> _Chain:
    chain = _Chain(str(part["id"]))
    for n, shown in enumerate(part["records"], start=1):
        body = shown["body"].encode()
        where = f"record {n} of saga {chain.id}"
        try:
            record = decode_body(body)
        except ValueError as error:
            raise BadEvidence(f"{where}: {error}") from error
        if (record.saga, record.n) != (chain.id, n) or record.pos <= chain.pos:
            raise BadEvidence(f"{where} is out of place: a record was left out, added or moved")
        chain.head, chain.pos = chain_hash(chain.head, body), record.pos
        chain.records.append((record, _values(record, shown["values"], replaced.get(n, {}), where)))
        chain.withheld += len(record.values) - len(shown["values"])
    return chain


def _values(record: AnyRecord, shown: dict[str, Any], replaced: dict[str, str], where: str) -> dict[str, str]:
    texts = dict.fromkeys(record.values, _WITHHELD)
    for name, (salt, text) in shown.items():
        if name not in texts or replaced.get(name, record.values[name]) != commitment(salt, text):
            raise BadEvidence(f"{where}: the value {name} differs from its commitment")
        texts[name] = text
    return texts


def _folded(chains: Sequence[_Chain]) -> SagaView:
    """Return the fold of a saga and of what amends it."""
    own = chains[0].id
    view: SagaView | None = None
    for record, values in heapq.merge(*(chain.records for chain in chains), key=_position):
        try:
            if record.saga != own and isinstance(record, SagaOpened) and record.amends != own:
                raise BadEvidence(f"saga {record.saga} does not amend {own}")
            if view is None:
                if not isinstance(record, SagaOpened) or record.saga != own:
                    raise BadEvidence(f"saga {own} does not begin with its opening")
                view = begin(record)
            elif record.saga == own:
                apply(view, record, values)
            else:
                amend(view, record, values)
        except TransitionError as error:
            raise BadEvidence(f"record {record.n} of saga {record.saga} cannot follow: {error}") from error
    if view is None:
        raise BadEvidence("it holds no records")
    return view


def _position(entry: tuple[AnyRecord, dict[str, str]]) -> int:
    return entry[0].pos


def _check_leaf(part: dict[str, Any], chain: _Chain, view: SagaView, trusted: Checkpoint) -> None:
    if not row_of(view).sealed:
        raise BadEvidence(f"saga {chain.id} is not shown to its end: its closing record or an amendment was left out")
    leaf = encode_body([chain.id, chain.head.hex(), len(chain.records), view.state.value])
    path = [bytes.fromhex(digest) for digest in part["path"]]
    index = int(part["leaf"]) - 1
    if not tree.includes(trusted.root, trusted.size, leaf=tree.leaf_hash(leaf), index=index, path=path):
        raise BadEvidence(
            f"saga {chain.id} is not leaf {part['leaf']} of the checkpoint: a record was left out or changed"
        )
