"""The records of a saga: one typed body per kind, and the payload that holds the values.

A body is compact JSON in the field order below; `pos` (position in the log) and `n` (number within the saga) are set
by the store when it commits. A body holds names, states and commitments, never values; the values and the salts of
their commitments are in the payload, so that redaction and encryption leave every chain valid.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1
"""Format version in every body. A new record kind is a new minor version, kept in the log's `meta` table."""
FORMAT_MINOR: Final = 1
SEALED: Final = b"\x01"
"""First byte of a payload that is encrypted (`store.sealing`); a plain one begins with `{`."""
GENESIS: Final = bytes(32)
"""The hash before the first record of a saga."""


class Record(msgspec.Struct, tag_field="kind", kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What every body holds.

    Attributes:
        v: format version.
        saga: the saga's id.
        n: number within the saga, from 1.
        pos: position in the log, from 1, growing and never used twice.
        at: time of the fact, nanoseconds since the Unix epoch by the writer's clock.
        values: commitment (hex SHA-256 of salt and value text) by value name: `kwargs.amount`, `result`, `error`.
    """

    v: int
    saga: str
    n: int
    pos: int
    at: int
    values: dict[str, str] = {}


def _as_float(record: msgspec.Struct, *names: str) -> None:
    """Make floats of whole numbers in fields that are floats: `60` in a body would not be its own re-encoding."""
    for name in names:
        if type(getattr(record, name)) is int:
            msgspec.structs.force_setattr(record, name, float(getattr(record, name)))


class SagaOpened(Record, tag="saga_opened", kw_only=True):
    """A saga began. Small sagas that state facts about another one name it in `amends`."""

    name: str
    owner: str
    epoch: int
    key: str | None = None
    incarnation: int = 1
    on_crash: str = "roll_back"
    on_divergence: str = "roll_back"
    deadline_at: int | None = None
    suspend_ttl_s: float | None = None
    rollback_timeout_s: float | None = None
    tags: list[str] = []
    amends: str | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        _as_float(self, "suspend_ttl_s", "rollback_timeout_s")


class Decided(Record, tag="decision", kw_only=True):
    """The gate decided about a call. A refused call has no intent."""

    tool: str
    decision: str
    policy: str
    reason: str = ""
    step: int | None = None
    by: str | None = None


class ApprovalRequested(Record, tag="approval_requested", kw_only=True):
    """A call waits for somebody's word; its arguments and a nonce are among the values.

    Attributes:
        approval: the request's id, `<saga>:a<number>`.
        digest: hex SHA-256 of the effective call; an approval is good for nothing else.
        quorum: how many distinct principals must approve.
        signed: each word must be signed by a registered key.
        compensator, valid_for_s, lives_in: what would take the effect back, for how long, and where it lives.
    """

    approval: str
    tool: str
    version: int
    effect: str
    digest: str
    policy: str
    reason: str
    expires_at: int
    quorum: int = 1
    signed: bool = False
    compensator: str | None = None
    valid_for_s: float | None = None
    lives_in: str | None = None

    def __post_init__(self) -> None:
        _as_float(self, "valid_for_s")


class ApprovalDecided(Record, tag="approval_decided", kw_only=True):
    """Somebody's word on a request: `approved` or `rejected`; or what became of it: `expired` or `withdrawn`.

    Attributes:
        refused: why the log itself did not count it while committing: the request was decided or used meanwhile.
    """

    approval: str
    decision: str
    by: str
    note: str = ""
    key_id: str | None = None
    signature: str | None = None
    refused: str | None = None


class ApprovalConsumed(Record, tag="approval_consumed", kw_only=True):
    """An approval was used up, in the transaction of the intent that it allows."""

    approval: str
    step: int
    refused: str | None = None


class Reserved(Record, tag="reserved", kw_only=True):
    """A part of a budget was set aside for a step, in the transaction of its intent.

    Attributes:
        budget: its name, the same in every process.
        amount: a decimal number.
    """

    step: int
    budget: str
    amount: str
    refused: str | None = None


class OperatorAction(Record, tag="operator_action", kw_only=True):
    """An operator acted: `halt`, `drain`, `quarantine`, `lift`, `key_added` or `key_removed`.

    Attributes:
        scope: what it concerns: `*`, `tool:name`, `tool:prefix.*`, `saga:id`, `tag:name`; for keys the principal.
        data: the public key (hex), for keys.
    """

    action: str
    scope: str
    by: str
    reason: str = ""
    expires_at: int | None = None
    data: str | None = None


class Recipe(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """How a step is compensated, as data: enough for another process.

    Attributes:
        name: the registered compensator.
        version: its major version; a handler of another one does not fit.
        bind: parameter -> path (`result.id`, `kwargs.customer`, `key`); None when a callable binds it.
        safe_if_absent: it may run although the effect never happened.
        idempotent: it may run again although an earlier attempt may have succeeded.
        key_param: the parameter that receives the compensation's key.
        verify: the registered verifier, if any.
    """

    name: str
    version: int
    bind: dict[str, str] | None = None
    safe_if_absent: bool = False
    idempotent: bool = False
    key_param: str | None = None
    verify: str | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None:  # One of these is read with each intent.
            _as_float(self, "timeout_s")


class Intent(Record, tag="intent", kw_only=True):
    """An effect is about to happen (attempt 1), or is about to be tried again under the same key.

    Attributes:
        resources: what the saga holds alone from here until it is sealed.
        refused: why the log itself refused it while committing (a resource held, a budget used up, an approval that
            is not valid): the effect does not start.
    """

    step: int
    tool: str
    version: int
    effect: str
    key: str
    attempt: int = 1
    scope: int = 0
    recipe: Recipe | None = None
    probe: str | None = None
    settle_s: float = 0.0
    takes_key: bool = False
    no_identity: bool = False
    identity: list[str] | None = None
    adapter: str | None = None
    call_id: str | None = None
    call_scope: str | None = None
    framework_attempt: int = 0
    resolves: str | None = None
    resources: list[str] = []
    refused: str | None = None

    def __post_init__(self) -> None:
        if type(self.settle_s) is int:  # One of these is made for each step.
            self.settle_s = float(self.settle_s)


class Outcome(Record, tag="outcome", kw_only=True):
    """What an effect returned or raised. A read-only step has no intent: its outcome names the tool.

    Attributes:
        state: `succeeded`, `failed` (no effect) or `in_doubt`.
        bound: the compensation's kwargs are among the values (`compensation.*`).
        exact: the result can be replayed.
        partial: a stream that was closed before it was exhausted.
        assumed: "no effect" was judged by the public table, not known.
        error: type of the exception; of a success, why its compensation could not be bound.
        recipe: how to compensate, where only the result could tell.
    """

    step: int
    state: str
    attempt: int = 1
    bound: bool = False
    exact: bool = True
    partial: bool = False
    assumed: bool = False
    error: str | None = None
    tool: str | None = None
    scope: int = 0
    adapter: str | None = None
    call_id: str | None = None
    recipe: Recipe | None = None


class LateOutcome(Record, tag="late_outcome", kw_only=True):
    """The answer of a call that arrives after its saga gave it up."""

    step: int
    state: str
    attempt: int = 1
    bound: bool = False
    exact: bool = True
    error: str | None = None
    recipe: Recipe | None = None


class Probed(Record, tag="probed", kw_only=True):
    """A probe answered `landed`, `not_landed` or `unknowable`; after the last, sweeps ask again from `next_at`."""

    step: int
    answer: str
    reason: str = ""
    bound: bool = False
    exact: bool = True
    recipe: Recipe | None = None
    next_at: int | None = None


class RollbackStarted(Record, tag="rollback_started", kw_only=True):
    """From here no step of the scope may start, and its effects are compensated."""

    scope: int = 0
    cause: str = ""


class CompensationIntent(Record, tag="compensation_intent", kw_only=True):
    """A compensation is about to run; its kwargs are among the values when it is bound from the intent alone."""

    step: int
    compensator: str
    version: int
    key: str
    attempt: int
    generation: int = 1


class CompensationOutcome(Record, tag="compensation_outcome", kw_only=True):
    """How an attempt ended: `compensated`, `already_done`, `conflict`, `failed` or `in_doubt`.

    Attributes:
        verified: what the read-back said; None without one.
        next_at: when a later sweep tries again.
    """

    step: int
    state: str
    attempt: int
    verified: bool | None = None
    reason: str = ""
    next_at: int | None = None


class Suspended(Record, tag="suspended", kw_only=True):
    """Released; waits for an approval or a resume until `expires_at`."""

    reason: str
    expires_at: int


class Claimed(Record, tag="claimed", kw_only=True):
    """Another owner took the saga: `resume`, `recover` or `late`."""

    owner: str
    epoch: int
    purpose: str = "recover"


class Released(Record, tag="released", kw_only=True):
    """The owner gave the saga up with work left for a later owner."""

    reason: str
    next_at: int | None = None


class Abandoned(Record, tag="abandoned", kw_only=True):
    """The scope object was lost, its loop closed or its deadline passed."""

    reason: str


class Settled(Record, tag="settled", kw_only=True):
    """A human settled a step: `happened`, `did-not-happen`, `compensated-by-hand` or `accept`."""

    step: int
    verdict: str
    by: str
    bound: bool = False


class Waived(Record, tag="waived", kw_only=True):
    """A failed step no longer counts as unresolved."""

    step: int


class ScopeOpened(Record, tag="scope_opened", kw_only=True):
    """A nested scope (a savepoint) began inside scope `parent`; it has the tags of its saga and these."""

    scope: int
    parent: int
    name: str
    tags: list[str] = []


class ScopeEnded(Record, tag="scope_ended", kw_only=True):
    """A nested scope ended `committed` (its steps belong to the parent now) or `rolled_back`."""

    scope: int
    outcome: str


class Replayed(Record, tag="replayed", kw_only=True):
    """A call was answered with the result of a standing step; no effect ran."""

    step: int
    call_id: str | None = None


class Redacted(Record, tag="redacted", kw_only=True):
    """Values of one record of the amended saga were replaced in its payload, and what was there was destroyed.

    Attributes:
        record: the number of that record in the amended saga.
        replaced: the new commitment by name of each value that was replaced; it takes the place of the body's.
    """

    record: int
    replaced: dict[str, str]
    by: str
    reason: str = ""


class Pruned(Record, tag="pruned", kw_only=True):
    """Sealed sagas were removed from the log, or only their payloads; their rows and leaves stay.

    Attributes:
        sagas: of each its id, the position that sealed it, and the digest of its row and facts (not for payloads only).
        shredded: with `payloads_only`: the data keys of the sagas were destroyed, too.
    """

    sagas: list[tuple[str, int, str]]
    by: str
    reason: str = ""
    payloads_only: bool = False
    shredded: bool = False


class SagaEnded(Record, tag="saga_ended", kw_only=True):
    """The saga ended `committed` or `rolled_back`; without work items it is sealed."""

    outcome: str
    clean: bool = False
    cause: str = ""


AnyRecord = (
    SagaOpened
    | Decided
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalConsumed
    | Reserved
    | OperatorAction
    | Intent
    | Outcome
    | LateOutcome
    | Probed
    | RollbackStarted
    | CompensationIntent
    | CompensationOutcome
    | Suspended
    | Claimed
    | Released
    | Abandoned
    | Settled
    | Waived
    | ScopeOpened
    | ScopeEnded
    | Replayed
    | Redacted
    | Pruned
    | SagaEnded
)

encode_body = msgspec.json.Encoder().encode
_decode_body = msgspec.json.Decoder(AnyRecord).decode
_decode_payload = msgspec.json.Decoder(dict[str, tuple[str, str]]).decode


def decode_body(body: bytes) -> AnyRecord:
    """Return the record in `body`.

    Raises:
        ValueError: unknown kind, unknown or missing field, or bytes that are not their own re-encoding.
    """
    try:
        record = _decode_body(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    if record.v != FORMAT:
        raise ValueError(f"format version {record.v}; this reader knows {FORMAT}")
    if encode_body(record) != body:
        raise ValueError("the body is not in canonical form")
    return record


def kind_of(record: Record) -> str:
    """Return the kind of a record, as the log spells it."""
    return str(record.__struct_config__.tag)


def chain_hash(previous: bytes, body: bytes) -> bytes:
    """Return the hash of a record: SHA-256 over the previous hash of its saga and the body as stored."""
    return hashlib.sha256(previous + body).digest()


def commitment(salt: str, text: str) -> str:
    """Return the commitment to one value: hex SHA-256 over the 16 bytes of salt and the value's text."""
    return hashlib.sha256(bytes.fromhex(salt) + text.encode()).hexdigest()


def seal_values(texts: Mapping[str, str], entropy: bytes) -> tuple[dict[str, str], bytes | None]:
    """Return the commitments to some values, and the payload that holds them.

    Args:
        texts: value text by value name.
        entropy: at least 16 random bytes for each value.

    Returns:
        Commitments by name, and the payload (JSON: name -> [salt in hex, text]), or None without values.
    """
    if not texts:
        return {}, None
    sha256 = hashlib.sha256
    commitments: dict[str, str] = {}
    payload: dict[str, tuple[str, str]] = {}
    at = 0
    for name, text in texts.items():
        salt = entropy[at : at + 16]
        at += 16
        commitments[name] = sha256(salt + text.encode()).hexdigest()
        payload[name] = (salt.hex(), text)
    return commitments, encode_body(payload)


def open_payload(record: Record, payload: bytes | None, replaced: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the value texts of a record after checking each against its commitment.

    Args:
        record: the record.
        payload: as stored.
        replaced: the commitments that `redacted` records put in the place of the body's, by name.

    Raises:
        ValueError: the payload is missing, damaged, not its own re-encoding, or differs from the commitments.
    """
    if payload is None:
        if record.values:
            raise ValueError(f"the payload with {', '.join(record.values)} is missing")
        return {}
    expected = {**record.values, **replaced} if replaced else record.values
    try:
        stored: dict[str, tuple[str, str]] = _decode_payload(payload)
        differ = stored.keys() ^ expected.keys()
        wrong = [name for name in expected if name in stored and commitment(*stored[name]) != expected[name]]
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"the payload is damaged: {error}") from error
    if differ or wrong:
        raise ValueError(f"the payload differs from the commitments of {', '.join(sorted({*differ, *wrong}))}")
    # One spelling, so that two readers cannot read two things: names as in the body, salts in lower case, no spaces.
    spelled = {name: (bytes.fromhex(stored[name][0]).hex(), stored[name][1]) for name in expected}
    if not stored or encode_body(spelled) != payload:
        raise ValueError("the payload is not in canonical form")
    return {name: text for name, (_, text) in stored.items()}


def payload_entries(payload: bytes | None) -> dict[str, tuple[str, str]]:
    """Return the entries of a payload that was checked: salt in hex and text by name; of a sealed one none."""
    return {} if payload is None or payload[:1] == SEALED else _decode_payload(payload)


def fields_of(record: Record) -> dict[str, Any]:
    """Return the body as plain data, for people and exports."""
    return {"kind": kind_of(record), **{k: msgspec.to_builtins(v) for k, v in msgspec.structs.asdict(record).items()}}
