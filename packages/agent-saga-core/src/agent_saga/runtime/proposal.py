"""A call as the gate sees it, before it is made: who it is, what it proposes, and whether it would have to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.errors import SagaError, SagaSuspended
from agent_saga.machine.view import identity_of
from agent_saga.model.call import ProposedCall
from agent_saga.model.values import canonical_text
from agent_saga.runtime import admission, approval
from agent_saga.runtime.declaration import encode_kwargs
from agent_saga.runtime.gate import IrreversibleAsks, pass_gate
from agent_saga.runtime.registry import Binding

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent_saga.model.values import Encoded
    from agent_saga.runtime.declaration import Declaration
    from agent_saga.runtime.ops import Op
    from agent_saga.runtime.saga import Saga
    from agent_saga.runtime.step import ToolCall


def identity_of_call(declaration: Declaration, encoded: dict[str, Encoded]) -> bytes | None:
    """Return the identity of a call, or None when something in it that counts has no stored form."""
    canonical: dict[str, str] = {}
    for name in encoded if declaration.identity is None else declaration.identity:
        value = encoded.get(name)
        if value is None or value.opaque:
            return None
        canonical[name] = canonical_text(value.text) if "{" in value.text else value.text
    return identity_of(declaration.name, canonical)


def proposed(call: ToolCall, *, repeats: bool) -> ProposedCall:
    """Return a call as policies and approvers see it."""
    declaration = call.declaration
    return ProposedCall(
        tool=declaration.name,
        kwargs=dict(call.kwargs),
        effect=declaration.effect,
        version=declaration.version,
        adapter=call.adapter,
        repeats=repeats,
        redact=tuple(path.partition(".")[0] for path in declaration.redact),
        **_compensation_facts(declaration),
    )


def _compensation_facts(declaration: Declaration) -> dict[str, Any]:
    binding = declaration.compensate
    if not isinstance(binding, Binding):
        return {}
    handler = binding.compensator
    return {"compensator": handler.name, "valid_for_s": handler.traits.valid_for_s, "lives_in": handler.traits.lives_in}


def may_suspend(saga: Saga, declaration: Declaration) -> bool:
    """Tell whether a policy could suspend a call of a tool: the default rule does not."""
    return not declaration.read_only and any(not isinstance(policy, IrreversibleAsks) for policy in saga.policies)


def look_ahead(saga: Saga, call: ToolCall) -> Generator[Op, Any, SagaSuspended | None]:
    """Have the gate look at a call that is not made yet; returns why it would have to wait, or None.

    A question is recorded as by the call itself, which then finds it, or the answer. Whatever else the gate says, and
    what goes wrong, is said again when the call is made. The saga does not count as paused: the caller notes that.
    """
    live, declaration = saga.live, call.declaration
    try:
        live.check_accepts(saga.scope, declaration.name)
        call.encoded = encode_kwargs(declaration, call.kwargs)
        call.identity = identity_of_call(declaration, call.encoded)
        repeats = admission.would_repeat(live, call)
        if repeats is not None:
            yield from pass_gate(saga, call, proposed(call, repeats=repeats))
    except SagaSuspended as wait:
        live.paused.pop(wait.approval or "halt", None)
        return wait
    except SagaError:
        return None
    finally:
        approval.give_back(live, call)
    return None
