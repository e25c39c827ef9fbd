"""The confirmation card: what somebody must see before saying yes, as plain data that any UI can show."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_saga.model.call import ProposedCall
from agent_saga.model.effects import Effect
from agent_saga.model.values import Marker, decode, encode
from agent_saga.runtime.clock import clock

if TYPE_CHECKING:
    from agent_saga.machine.gate import ApprovalView

CARD_VERSION: Final = 1
TEXT_LENGTH_MAX: Final = 10_000
"""A longer text is shown with its beginning, its length and its SHA-256."""
ROWS_MAX: Final = 2_000
DEPTH_MAX: Final = 64
HIDDEN: Final = "<hidden>"

_NATURE: Final = {
    Effect.READ_ONLY: "changes nothing",
    Effect.REVERSIBLE: "can be restored exactly",
    Effect.COMPENSABLE: "can be offset, and leaves a trace",
    Effect.IRREVERSIBLE: "cannot be taken back",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument, or one value inside of one.

    Attributes:
        path: as in `order.items.0.price`.
        value: as text, with invisible and direction-changing characters escaped.
        type: its type.
        whole: `value` shows all of it.
    """

    path: str
    value: str
    type: str
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensation:
    """What would take the effect back.

    Attributes:
        exists: there is something.
        name: the registered compensator, where it is known before the call.
        until: when it stops working, ISO 8601 UTC, if the call ran now; None: it does not stop, or does not exist.
        lives_in: the place where it lives.
        sentence: the same for people.
    """

    exists: bool
    name: str | None
    until: str | None
    lives_in: str | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One answer that can be given.

    Attributes:
        id: `approve` or `reject`.
        label: for a button.
        command: what gives this answer on the command line, when there is a request to answer.
    """

    id: str
    label: str
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UIConfirmationArtifact:
    """A confirmation card. `UIConfirmationArtifact.of(call, ...)` makes one; `to_dict` and `to_json` give it away.

    Attributes:
        title: a few words.
        sentence: the effect in one sentence.
        reason: why somebody is asked.
        arguments: all of them, with what is inside of them, in order.
        complete: `arguments` shows everything; else some rows say what they leave out.
        digest: hex SHA-256 of the call; of the recorded request, when there is one.
        approval: the id of the recorded request, or None.
        expires_at: when the question ends, ISO 8601 UTC, or None.
    """

    title: str
    sentence: str
    reason: str
    tool: str
    version: int
    effect: str
    saga: str | None
    arguments: tuple[Argument, ...]
    complete: bool
    compensation: Compensation
    options: tuple[Option, ...]
    quorum: int
    signed: bool
    digest: str
    approval: str | None
    expires_at: str | None
    card_version: int = CARD_VERSION

    @classmethod
    def of(
        cls,
        call: ProposedCall,
        reason: str,
        *,
        saga_id: str | None = None,
        approval: str | None = None,
        digest: str | None = None,
        expires_at_ns: int | None = None,
        quorum: int = 1,
        signed: bool = False,
        hide: Iterable[str] = (),
    ) -> UIConfirmationArtifact:
        """Return the card of a call.

        Args:
            call: the call as policies and approvers see it.
            reason: why somebody is asked.
            saga_id: the saga of the call.
            approval: the id of the recorded request.
            digest: the digest of the recorded request, to which an approval is bound; by default of the call alone.
            expires_at_ns: when the question ends, in nanoseconds since the epoch.
            quorum: how many people must approve.
            signed: they must sign.
            hide: arguments whose values must not be shown, besides those that the tool declares with `redact=`.
        """
        rows = _Rows(frozenset((*hide, *call.redact)))
        rows.add_all(call.kwargs)
        tool = visible(call.tool)
        return cls(
            title=f"{'Approve' if quorum == 1 else f'Approve ({quorum} people)'}: {tool}",
            sentence=_sentence(call, tool),
            reason=visible(reason),
            tool=tool,
            version=call.version,
            effect=call.effect.value,
            saga=saga_id,
            arguments=tuple(rows.found),
            complete=rows.complete,
            compensation=_compensation(call),
            options=_options(approval, signed=signed),
            quorum=quorum,
            signed=signed,
            digest=digest or digest_of(call),
            approval=approval,
            expires_at=None if expires_at_ns is None else _iso(expires_at_ns),
        )

    @classmethod
    def of_request(cls, known: ApprovalView) -> UIConfirmationArtifact:
        """Return the card of a recorded request, for whoever asks people outside of the agent's process.

        Args:
            known: from `operators.pending(writer)`, say. What the log does not hold of its arguments is not shown.
        """
        request = known.request
        call = ProposedCall(
            tool=request.tool,
            kwargs={name: decode(text) for name, text in known.kwargs.items()},
            effect=Effect(request.effect),
            version=request.version,
            compensator=request.compensator,
            valid_for_s=request.valid_for_s,
            lives_in=request.lives_in,
        )
        return cls.of(
            call,
            request.reason,
            saga_id=request.saga,
            approval=known.id,
            digest=request.digest,
            expires_at_ns=request.expires_at,
            quorum=request.quorum,
            signed=request.signed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """Return the card as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def digest_of(call: ProposedCall) -> str:
    """Return a digest of tool, version and canonical arguments: any change of the call changes it.

    Redacted arguments are left out: a digest of a short secret gives it away.
    """
    digest = hashlib.sha256(b"agent-saga/card/1\0")
    parts = [call.tool, str(call.version), call.effect.value]
    for name in sorted(call.kwargs):
        parts += [name, HIDDEN if name in call.redact else encode(call.kwargs[name]).canonical]
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def visible(text: str) -> str:
    """Return a text in which every character that is not seen, or that reorders others, is escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_seen(char) else char.encode("unicode_escape").decode() for char in text)


def _is_seen(char: str) -> bool:
    category = unicodedata.category(char)
    return char.isprintable() and category not in {"Cf", "Zl", "Zp", "Mn", "Me"} and (category != "Zs" or char == " ")


def _sentence(call: ProposedCall, tool: str) -> str:
    who = f"{visible(call.adapter)} agent" if call.adapter else "agent"
    again = " again, with the same arguments," if call.repeats else ""
    return f"The {who} wants to call {tool}{again} which {_NATURE[call.effect]}."


def _compensation(call: ProposedCall) -> Compensation:
    until = None
    if call.effect in {Effect.IRREVERSIBLE, Effect.READ_ONLY}:
        exists, sentence = False, f"Nothing takes it back: it {_NATURE[call.effect]}."
    elif call.compensator is None:
        exists, sentence = True, "What takes it back is decided from its result."
    elif call.valid_for_s is None:
        exists, sentence = True, f"{visible(call.compensator)} takes it back, whenever that is."
    else:
        exists, until = call.valid_for_s > 0, _iso(clock().time_ns() + int(call.valid_for_s * 1e9))
        sentence = f"{visible(call.compensator)} takes it back for {float(call.valid_for_s):g} s after it ran."
    lives_in = None if call.lives_in is None else visible(call.lives_in)
    name = None if call.compensator is None else visible(call.compensator)
    return Compensation(exists=exists, name=name, until=until, lives_in=lives_in, sentence=sentence)


def _options(approval: str | None, *, signed: bool) -> tuple[Option, ...]:
    def command(verb: str) -> str | None:
        return None if approval is None else f"agent-saga approvals {verb} {approval} --by NAME"

    return (
        Option(id="approve", label="Approve and sign" if signed else "Approve", command=command("approve")),
        Option(id="reject", label="Reject", command=command("reject")),
    )


def _iso(time_ns: int) -> str:
    return dt.datetime.fromtimestamp(time_ns // 1_000_000_000, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Rows:
    """All values of the arguments, one row each; what is left out is said."""

    def __init__(self, hide: frozenset[str]) -> None:
        self.hide = hide
        self.found: list[Argument] = []
        self.complete = True

    def add_all(self, kwargs: Mapping[str, Any]) -> None:
        for name, value in kwargs.items():
            if name in self.hide:
                self._row(visible(name), HIDDEN, type(value).__name__, whole=False)
            else:
                self._add(visible(str(name)), value, 0)

    def _add(self, path: str, value: Any, depth: int) -> None:
        children = _children(value) if depth < DEPTH_MAX else None
        if len(self.found) >= ROWS_MAX:
            self.complete = False
        elif isinstance(value, Marker):
            self._row(path, visible(repr(value)), value.type_name, whole=False)
        elif children:
            for name, child in children:
                self._add(f"{path}.{name}", child, depth + 1)
        else:
            self._row(path, *_text(value))

    def _row(self, path: str, value: str, kind: str, *, whole: bool = True) -> None:
        if len(value) > TEXT_LENGTH_MAX:
            sha = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
            value, whole = f"{value[:TEXT_LENGTH_MAX]}... ({len(value)} characters, SHA-256 {sha})", False
        self.complete = self.complete and whole
        self.found.append(Argument(path=path, value=value, type=kind, whole=whole))


def _children(value: Any) -> list[tuple[str, Any]] | None:
    if isinstance(value, Mapping):
        return [(visible(str(name)), item) for name, item in value.items()]
    if isinstance(value, list | tuple):
        return [(str(number), item) for number, item in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):
        return [(name, getattr(value, name)) for name in value.__dataclass_fields__]
    if callable(dump := getattr(type(value), "model_dump", None)):
        return _children(dump(value))
    return None


def _text(value: Any) -> tuple[str, str]:
    """Return a value as text, and its type."""
    kind = type(value).__name__
    if type(value) is str:
        return visible(value), kind
    if value is None or isinstance(value, bool | int | float | Marker):
        return visible(repr(value)), kind
    form = encode(value)
    return visible(form.text), kind
