"""Approvals: requested in the saga's own chain, bound to the digest of the call, used once, with its intent."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import GateRefused, SagaSuspended
from agent_saga.machine.gate import ApprovalView, gate_of
from agent_saga.model import records as r
from agent_saga.model.requirements import Undecided
from agent_saga.model.values import canonical_text, encode
from agent_saga.runtime.clock import clock
from agent_saga.runtime.ops import Invoke, Join, Sleep
from agent_saga.runtime.refusal import recordable, refusal, refuse
from agent_saga.runtime.signatures import valid_principals
from agent_saga.store.port import Announces, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping

    from agent_saga.model.call import ProposedCall
    from agent_saga.model.effects import Ask
    from agent_saga.runtime.live import LiveSaga
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall
    from agent_saga.runtime.writer import Ticket

POLL_S: Final = 0.1
"""How often a waiting call looks whether somebody has decided."""
ANNOUNCED_POLL_S: Final = 1.0
"""The same where the log announces what is said: an announcement may be lost with its connection."""
APPROVER: Final = "approver"
"""The principal that a function passed as `AgentKit(approver=...)` stands for."""


def call_digest(request: r.ApprovalRequested, kwargs: Mapping[str, str], nonce: str) -> str:
    """Return the digest of an effective call: tool and version, canonical arguments, saga, policy, expiry, nonce.

    Args:
        request: the request; its own `digest` is not looked at.
        kwargs: the arguments' texts by name.
        nonce: random text, kept among the values, so that the digest gives nothing away once they are redacted.
    """
    digest = hashlib.sha256(b"agent-saga/approval/1\0")
    parts = [request.saga, request.approval, request.tool, str(request.version), request.effect, request.policy]
    parts += [str(request.expires_at), str(request.quorum), str(request.signed), nonce]
    for name in sorted(kwargs):
        parts += [name, canonical_text(kwargs[name])]
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def ask(
    saga: Saga, call: ToolCall, proposed: ProposedCall, policy: str, question: Ask, *, taken: Collection[str] = ()
) -> Generator[Op, Any, str]:
    """Return the id of an approval that is good for this call.

    Args:
        saga: the saga of the call.
        call: the call.
        proposed: the same as approvers see it.
        policy: the name of the policy that asks.
        question: what it asks.
        taken: approvals that answer other questions about this call already; each answers one.

    Raises:
        GateRefused: rejected, expired, withdrawn, or nobody can be asked; nothing happened.
        SagaSuspended: the saga waits for the decision.
    """
    live, approver = saga.live, saga.environment.approver
    yield from _refuse_unstorable(saga, call, policy, question)
    if live.view.gate is not None:
        live.refresh()  # Which of several requests is this call's depends on what was said about them.
    with live.lock:
        live.check_accepts(saga.scope, proposed.tool)
        known, ticket = _known(live, call, proposed, policy, question=question, taken=taken), None
        if known is None:
            known, ticket = _request(live, call, proposed, policy, question)
        # Equal calls side by side do not share a word: each of them is a call of its own, and asks for itself.
        live.asked_for.add(known.id)
        call.asked_for.add(known.id)
    yield from live.committed(ticket)
    if callable(approver) and known.state == "pending":
        yield from _ask_function(saga, known, proposed, approver)
    else:
        live.refresh()
    yield from _wait(saga, known, proposed, question)
    yield from _check_signatures(saga, known)
    return known.id


def give_back(live: LiveSaga, call: ToolCall) -> None:
    """Let other calls use the requests of a call that is over; what it used up is used up."""
    with live.lock:
        live.asked_for -= call.asked_for


def check_unused(saga: Saga, tool: str, approvals: Collection[str]) -> None:
    """Look once more before the intent, under the saga's lock: a word may have been taken back meanwhile.

    Raises:
        GateRefused: it was.
    """
    live = saga.live
    for known in (gate_of(live.view).approvals[approval] for approval in approvals):
        if known.state != "approved":
            reason = f"approval {known.id} is {_why(known)}"
            live.emit(r.Decided, hold=True, tool=tool, decision="refuse", policy=known.request.policy, reason=reason)
            raise refusal(saga, tool, reason)


def _refuse_unstorable(saga: Saga, call: ToolCall, policy: str, question: Ask) -> Generator[Op, Any, None]:
    """A call with an argument that could not be stored cannot be recognised again, so nobody can approve it later."""
    encoded = call.encoded or {}
    lost = sorted(name for name, value in encoded.items() if value.opaque)
    if lost and not callable(saga.environment.approver):
        yield from refuse(
            saga,
            call.declaration.name,
            policy,
            f"{question.reason}: it needs an approval, and {', '.join(lost)} cannot be shown to whoever approves",
        )


def _known(
    live: LiveSaga, call: ToolCall, proposed: ProposedCall, policy: str, *, question: Ask, taken: Collection[str]
) -> ApprovalView | None:
    """Return the request for this very call and question that is still of use, or was rejected; an approved one first.

    Else a word on one of several equal calls would be of no use until there is one on all of them. Two policies of one
    kind may both ask about a call. A reason may change with time, so it only comes first. A call with an argument that
    has no stored form cannot be recognised, so a word on another one is no word on it.
    """
    if any(value.opaque for value in (call.encoded or {}).values()):
        return None
    others = {*taken, *(live.asked_for - call.asked_for)}
    found = [
        known
        for known in _usable(live, call, proposed, policy)
        if (known.id not in others or known.state == "rejected")
        and (known.request.quorum, known.request.signed) == (question.quorum, question.signed)
    ]
    same = [known for known in found if known.request.reason == recordable(question.reason)]
    return min(same or found, key=lambda known: known.state != "approved", default=None)


def _usable(live: LiveSaga, call: ToolCall, proposed: ProposedCall, policy: str) -> Iterator[ApprovalView]:
    """Yield the requests of a policy for this very call that are of use, or were rejected; the last one first."""
    gate = live.view.gate
    texts = _texts(call)
    now_ns = clock().time_ns()
    for known in [] if gate is None else reversed(gate.approvals.values()):
        request = known.request
        if (request.tool, request.version, request.policy) != (proposed.tool, proposed.version, policy):
            continue
        waiting = known.state in {"pending", "approved"} and request.expires_at > now_ns
        if (waiting or known.state == "rejected") and call_digest(request, texts, known.nonce) == request.digest:
            yield known


def _texts(call: ToolCall) -> dict[str, str]:
    return {name: value.text for name, value in (call.encoded or {}).items()}


def _request(
    live: LiveSaga, call: ToolCall, proposed: ProposedCall, policy: str, question: Ask
) -> tuple[ApprovalView, Ticket | None]:
    """Record a request. It must be durable before anybody is told of it."""
    texts = _texts(call)
    nonce = clock().entropy(16).hex()
    with live.lock:
        number = len(gate_of(live.view).approvals) + 1
        fields: dict[str, Any] = {
            "approval": f"{live.view.id}:a{number}",
            "tool": proposed.tool,
            "version": proposed.version,
            "effect": proposed.effect.value,
            "policy": policy,
            "reason": recordable(question.reason),
            "expires_at": clock().time_ns() + int(question.expires_s * 1e9),
            "quorum": question.quorum,
            "signed": question.signed,
            "compensator": proposed.compensator,
            "valid_for_s": None if proposed.valid_for_s is None else float(proposed.valid_for_s),
            "lives_in": None if proposed.lives_in is None else recordable(proposed.lives_in),
        }
        blank = r.ApprovalRequested(v=r.FORMAT, saga=live.view.id, n=0, pos=0, at=0, digest="", **fields)
        values = {f"kwargs.{name}": text for name, text in texts.items()} | {"nonce": encode(nonce).text}
        digest = call_digest(blank, texts, nonce)
        ticket = live.emit(r.ApprovalRequested, values, durable=True, digest=digest, **fields)
        return gate_of(live.view).approvals[fields["approval"]], ticket


def _ask_function(
    saga: Saga, known: ApprovalView, proposed: ProposedCall, approver: Callable[..., Any]
) -> Generator[Op, Any, None]:
    request = known.request
    if request.quorum > 1 or request.signed:
        yield from refuse(
            saga,
            request.tool,
            request.policy,
            f"{request.reason}: a function cannot give {_demands(request)}; "
            "use AgentKit(approver='log') and `agent-saga approvals`",
        )
    left_s = max((request.expires_at - clock().time_ns()) / 1e9, 0.0)
    decision, note = "rejected", ""
    try:
        if (yield Invoke(functools.partial(approver, proposed), {}, left_s)) is True:
            decision = "approved"
    except TimeoutError:
        decision = "expired"
    except Exception as error:  # noqa: BLE001 - an approver that fails has approved nothing.
        note = recordable(f"the approver failed: {type(error).__name__}: {error}")
    yield from _decide(saga, known, decision, by=APPROVER, note=note)


def _demands(request: r.ApprovalRequested) -> str:
    return f"{request.quorum} words" + (", signed" if request.signed else "")


def _decide(saga: Saga, known: ApprovalView, decision: str, *, by: str, note: str = "") -> Generator[Op, Any, None]:
    """Record a word of this process, unless somebody else's word has ended the request meanwhile: then that counts."""
    live = saga.live
    with live.lock:
        if known.state not in {"pending", "approved"}:
            return
        live.check_accepts(saga.scope, known.request.tool)
        before = known.state, list(known.decided), list(known.approved_by)
        fields: dict[str, Any] = {"approval": known.id, "decision": decision, "by": by, "note": note}
        ticket = live.emit(r.ApprovalDecided, requires=(Undecided(approval=known.id),), **fields)
    if ticket is None:
        return
    verdict = yield live.wait_for(ticket)
    if not isinstance(verdict, Refused):
        live.check_verdict(verdict)
        return
    with live.undoing():
        known.state, known.decided[:], known.approved_by[:] = before
    live.refresh()


def _wait(saga: Saga, known: ApprovalView, proposed: ProposedCall, question: Ask) -> Generator[Op, Any, None]:
    """Wait until somebody has decided, as far as this kit may wait at all."""
    live, request = saga.live, known.request
    while known.state == "pending":
        if clock().time_ns() >= request.expires_at:
            yield from _decide(saga, known, "expired", by="clock")
            break
        how = f"agent-saga approvals approve {known.id} --by NAME"
        if question.suspend:
            live.paused[known.id] = f"waits for approval {known.id}"
            raise SagaSuspended(
                f"saga {live.id!r} waits for an approval of {proposed.tool!r} ({request.reason}); nothing happened. "
                f"Decide with `{how}`, then open the saga again by its key",
                saga_id=live.id,
                approval=known.id,
            )
        if saga.environment.approver != "log":
            raise GateRefused(
                f"{proposed.tool!r} was refused in saga {live.id!r}, before any effect: {request.reason}: it needs an "
                f"approval. Approve it with `{how}` and repeat the call while the saga is open, or give the kit an "
                "approver (AgentKit(approver=...))"
            )
        yield from _next_word(live, known)
        live.check_accepts(saga.scope, proposed.tool)
        live.refresh()
    live.paused.pop(known.id, None)
    if known.state != "approved":
        yield from refuse(saga, request.tool, request.policy, f"{request.reason}: {_why(known)}", decision=known.state)


def _next_word(live: LiveSaga, known: ApprovalView) -> Generator[Op, Any, None]:
    """Wait until there may be a word on a request."""
    store = live.writer.store
    news = store.news(live.view.id) if isinstance(store, Announces) else None
    if news is None:
        yield Sleep(POLL_S)
        return
    live.refresh()  # What was said before we listened is not announced.
    if known.state == "pending":
        yield Join(news, ANNOUNCED_POLL_S)


def _why(known: ApprovalView) -> str:
    if not known.decided:
        return known.state
    last = known.decided[-1]
    return f"{known.state} by {last.by}" + (f" ({last.note})" if last.note else "")


def _check_signatures(saga: Saga, known: ApprovalView) -> Generator[Op, Any, None]:
    """Count only the words whose signature over the digest is good: a file can be written by others, a key cannot."""
    request = known.request
    if not request.signed:
        return
    good, problem = valid_principals(saga.live.writer.store, known, saga.environment.approval_keys)
    if len(good) < request.quorum:
        why = f"{request.reason}: {len(good)} of {request.quorum} signed approvals are good ({problem})"
        yield from refuse(saga, request.tool, request.policy, why)
