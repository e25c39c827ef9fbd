"""What operators do from outside: words on approvals, halts, drains, quarantines and keys. Each is a small saga."""

from __future__ import annotations

import json
import math
import unicodedata
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import CorruptLog, SagaBusy, UsageError
from agent_saga.model import records as r
from agent_saga.model.ids import make_saga_id
from agent_saga.runtime import signatures
from agent_saga.runtime.approval import call_digest
from agent_saga.runtime.clock import clock
from agent_saga.runtime.late import amendment
from agent_saga.runtime.live import LiveSaga
from agent_saga.runtime.refusal import recordable
from agent_saga.store.port import Committed
from agent_saga.store.reader import load
from agent_saga.store.sealing import check_readable

if TYPE_CHECKING:
    from agent_saga.machine.gate import ApprovalView
    from agent_saga.runtime.writer import Writer
    from agent_saga.store.port import LogStore
    from agent_saga.store.reader import Loaded

_TRIES: Final = 50
_SCOPES: Final = {"halt": ("tool", "saga", "tag"), "drain": ("tag",), "quarantine": ("saga",)}
TTL_S_MAX: Final = 10 * 365 * 86_400.0


def decide_approval(
    writer: Writer, approval: str, decision: str, *, by: str, note: str = "", private_key: str | None = None
) -> ApprovalView:
    """Record somebody's word on a request, and return the request as it is then.

    Args:
        writer: the log.
        approval: the request's id.
        decision: `approved` or `rejected`.
        by: the principal; distinct principals make a quorum.
        note: shown with a rejection.
        private_key: Ed25519, as hex; the word is signed with it.

    Raises:
        LookupError: there is no such request.
        UsageError: it is decided, used, withdrawn or expired already, or a signature is missing; nothing was recorded.
        CorruptLog: its digest is not that of the call that it shows; nothing was recorded.
        KeyUnavailable: the call is encrypted under a key that is not here; nothing was recorded.
    """
    by, note = check_name(by), recordable(note)
    for _ in range(_TRIES):
        loaded, known = find_approval(writer.store, approval)
        check_digest(writer.store, known)
        _check_open(known, decision, by, private_key)
        live = amendment(writer, loaded.view, loaded.row.count, loaded.row.amendments, name="approval", by=by)
        data = signatures.message(approval, known.request.digest, decision, by)
        fields: dict[str, Any] = {"approval": approval, "decision": decision, "by": by, "note": note}
        if private_key is not None:
            fields["key_id"] = signatures.public_of(private_key)[:16]
            fields["signature"] = signatures.sign(private_key, data)
        live.emit(r.ApprovalDecided, hold=True, **fields)
        ticket = live.emit(r.SagaEnded, durable=True, outcome="committed")
        if ticket is not None and isinstance(writer.wait(ticket), Committed):
            return known
    raise SagaBusy(f"the saga of approval {approval!r} changes all the time; nothing was recorded. Try again")


def check_digest(store: LogStore, known: ApprovalView) -> None:
    """Check that a request's digest, which words are bound to, is that of the call that people are shown.

    Of a request on which no word counts any more, values may have been removed since, and are not looked at.

    Raises:
        CorruptLog: it is not: a word on it would allow another call.
        KeyUnavailable: the call cannot be read here, so nobody can be shown it.
    """
    check_readable(store, known.request.saga, what=f"approval {known.id!r} cannot be shown, and no word was recorded")
    if known.state not in {"pending", "approved"}:
        return
    if call_digest(known.request, known.kwargs, known.nonce) != known.request.digest:
        raise CorruptLog(f"approval {known.id!r} shows another call than its digest binds", saga_id=known.request.saga)


def find_approval(store: LogStore, approval: str) -> tuple[Loaded, ApprovalView]:
    """Return a request and its saga.

    Raises:
        LookupError: there is no such request.
    """
    saga_id = approval.partition(":")[0]
    loaded = load(store, saga_id)
    known = loaded.view.gate.approvals.get(approval) if loaded is not None and loaded.view.gate is not None else None
    if loaded is None or known is None:
        raise LookupError(f"there is no request for approval {approval!r} in {store.location}")
    return loaded, known


def _check_open(known: ApprovalView, decision: str, by: str, private_key: str | None) -> None:
    request = known.request
    if decision not in {"approved", "rejected"}:
        raise UsageError(f"{decision!r} is no decision: it is 'approved' or 'rejected'")
    if known.state not in {"pending", "approved"}:
        raise UsageError(f"approval {known.id!r} is {known.state} already; nothing was recorded")
    if request.expires_at <= clock().time_ns():
        raise UsageError(f"approval {known.id!r} has expired; nothing was recorded. The call must be made again")
    if decision == "approved" and _plain(by) in map(_plain, known.approved_by):
        raise UsageError(f"{by!r} has approved {known.id!r} already; a quorum needs distinct principals")
    if decision == "approved" and request.signed and private_key is None:
        raise UsageError(f"approval {known.id!r} must be signed: pass a private key")


def check_name(by: str) -> str:
    """Return the name of who acts, without space around it.

    Raises:
        UsageError: there is none, or it holds what cannot be seen.
    """
    name = by.strip()
    if not name or not name.isprintable():
        raise UsageError(f"who acts must have a name of visible characters; it is {by!r}")
    return name


def _plain(name: str) -> str:
    """Return a name as people read it: `Ann` is no second principal beside `ann`."""
    return unicodedata.normalize("NFKC", name).casefold()


def act(
    writer: Writer,
    action: str,
    scope: str,
    *,
    by: str,
    reason: str = "",
    ttl_s: float | None = None,
    data: str | None = None,
) -> str:
    """Record an operator's action and return the id of its saga.

    Args:
        writer: the log.
        action: `halt`, `drain`, `quarantine` or `key_added`.
        scope: `*`, `tool:name`, `tool:prefix.*`, `saga:id`, `tag:name`; for a key its principal.
        by: who acts.
        reason: shown to whoever is stopped.
        ttl_s: it ends by itself after this; None for never.
        data: the public key as hex, for `key_added`.

    Raises:
        UsageError: the scope, the name, the time or the key has no meaning; nothing was recorded.
    """
    by, reason = check_name(by), recordable(reason)
    scope = check_name(scope) if action == "key_added" else check_scope(action, scope)
    if action == "key_added":
        data = signatures.check_public_key(data or "")
    if ttl_s is not None and not (math.isfinite(ttl_s) and 0 < ttl_s <= TTL_S_MAX):
        raise UsageError(f"it must end after a positive number of seconds, of at most {TTL_S_MAX:g}; not {ttl_s:g}")
    now = clock().time_ns()
    live = LiveSaga.opening(writer, _opened(now, action, by))
    expires_at = None if ttl_s is None else now + int(ttl_s * 1e9)
    live.emit(
        r.OperatorAction, hold=True, action=action, scope=scope, by=by, reason=reason, expires_at=expires_at, data=data
    )
    live.commit_now(live.emit(r.SagaEnded, durable=True, outcome="committed"))
    return live.id


def _opened(now: int, name: str, by: str) -> r.SagaOpened:
    saga_id = make_saga_id(now, clock().entropy(10))
    return r.SagaOpened(v=r.FORMAT, saga=saga_id, n=0, pos=0, at=now, name=name, owner="", epoch=1, by=by)


def check_scope(action: str, scope: str) -> str:
    """Return a scope that an action can have.

    Raises:
        UsageError: it cannot; a halt that stops nothing would be worse than an error.
    """
    if action not in _SCOPES:
        raise UsageError(f"{action!r} is nothing that an operator can do: it is one of {', '.join(_SCOPES)}")
    kind, _, name = scope.partition(":")
    everything = scope == "*" and action != "quarantine"
    if everything or (kind in _SCOPES[action] and name.strip() == name != "" and name.isprintable()):
        return scope
    forms = ", ".join(f"{kind}:NAME" for kind in _SCOPES[action])
    star = "" if action == "quarantine" else "'*', "
    raise UsageError(f"{scope!r} is no scope of {action}: it is {star}{forms}")


def lift(
    writer: Writer, scope: str, *, by: str, reason: str = "", kinds: tuple[str, ...] = ("halt", "drain", "quarantine")
) -> int:
    """End the halts of a scope, and return how many.

    Args:
        writer: the log.
        scope: as it was given.
        by: who lifts.
        reason: recorded.
        kinds: of facts; `key` removes the keys of a principal.
    """
    by, reason = check_name(by), recordable(reason)
    lifted = 0
    for kind in kinds:
        for fact in writer.store.facts(kind, scope):
            action = "key_removed" if kind == "key" else "lift"
            lifted += _lift(writer, fact.saga_id, action=action, scope=scope, by=by, reason=reason)
    return lifted


def _lift(writer: Writer, saga_id: str, *, action: str, scope: str, by: str, reason: str) -> int:
    for _ in range(_TRIES):
        loaded = load(writer.store, saga_id)
        if loaded is None or loaded.view.gate is None or loaded.view.gate.lifted:
            return 0
        live = amendment(writer, loaded.view, loaded.row.count, loaded.row.amendments, name=action, by=by)
        live.emit(r.OperatorAction, hold=True, action=action, scope=scope, by=by, reason=reason)
        ticket = live.emit(r.SagaEnded, durable=True, outcome="committed")
        if ticket is not None and isinstance(writer.wait(ticket), Committed):
            return 1
    raise SagaBusy(f"the halt of {scope!r} changes all the time; try again")


def pending(writer: Writer) -> list[ApprovalView]:
    """Return the requests that wait or are good, oldest first."""
    return open_requests(writer.store)


def open_requests(store: LogStore) -> list[ApprovalView]:
    """Return the requests that wait or are good, oldest first.

    Raises:
        CorruptLog: one cannot be read.
    """
    found = []
    for saga_id in sorted({fact.saga_id for fact in store.facts("approval")}):
        loaded = load(store, saga_id)
        gate = None if loaded is None else loaded.view.gate
        found += (
            [] if gate is None else [one for one in gate.approvals.values() if one.state in {"pending", "approved"}]
        )
    return sorted(found, key=lambda known: known.request.at)


def as_json(known: ApprovalView) -> dict[str, Any]:
    """Return a request as plain data, with all its arguments as they are stored."""
    request = known.request
    words = [
        {
            "by": word.by,
            "decision": word.decision,
            "at": word.at,
            "note": word.note,
            "signed": word.signature is not None,
        }
        for word in known.decided
    ]
    return {
        "approval": known.id,
        "saga": request.saga,
        "state": known.state,
        "tool": request.tool,
        "version": request.version,
        "effect": request.effect,
        "kwargs": {name: json.loads(text) for name, text in known.kwargs.items()},
        "policy": request.policy,
        "reason": request.reason,
        "digest": request.digest,
        "requested_at": request.at,
        "expires_at": request.expires_at,
        "quorum": request.quorum,
        "signed": request.signed,
        "approved_by": list(known.approved_by),
        "words": words,
        "step": known.step,
    }
