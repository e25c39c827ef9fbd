"""For those who extend agent-saga: what adapters of frameworks, stores and readers use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_saga.errors import InvariantViolation, SagaSuspended, UndeclaredTool, UsageError
from agent_saga.kit import AgentKit as AgentKit
from agent_saga.kit import default_kit as default_kit
from agent_saga.model.effects import Effect
from agent_saga.model.records import fields_of
from agent_saga.model.values import decode
from agent_saga.runtime import declaration as declare
from agent_saga.runtime import operators, proposal
from agent_saga.runtime.current import current_saga_var
from agent_saga.runtime.declaration import Declaration, Declarations
from agent_saga.runtime.ops import Call, adrive, drive
from agent_saga.runtime.saga import Saga
from agent_saga.runtime.step import ToolCall, perform
from agent_saga.runtime.tool import check_awaitable, check_outside, joined_key
from agent_saga.store.open import open_log
from agent_saga.store.port import Query
from agent_saga.store.reader import checked_records

R = TypeVar("R")

__all__ = [
    "AdapterInfo",
    "AgentKit",
    "adopt_parameters",
    "aguard",
    "alook_ahead",
    "claim",
    "decide_approval",
    "default_kit",
    "effect_of",
    "guard",
    "may_suspend",
    "note_pause",
    "read_records",
    "require_declared",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterInfo:
    """What an adapter covers (entry point group `agent_saga.adapters`).

    Attributes:
        name: of the adapter, as recorded with each step.
        framework: the framework's distribution, with the supported range (`langgraph>=1.2`).
        capabilities: what the conformance suite showed.
        gaps: what is known not to be covered, in one line each.
    """

    name: str
    framework: str
    capabilities: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


def guard(
    name: str,
    kwargs: Mapping[str, Any],
    call: Callable[[dict[str, Any]], R],
    *,
    adapter: str,
    call_id: str | None = None,
    scope: str | None = None,
    attempt: int = 0,
    validate: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    is_error: Callable[[Any], bool] | None = None,
    is_pause: Callable[[BaseException], bool] | None = None,
    plain_replay: bool = False,
    kit: AgentKit | None = None,
) -> R:
    """Run a framework's tool call as a step of the current saga; outside of one, run it bare.

    Args:
        name: the tool, as declared.
        kwargs: its arguments, after the framework's own validation.
        call: runs the tool with the effective arguments (the key included, where the declaration names a parameter
            for it) and returns its raw result.
        adapter: the adapter's name.
        call_id: the framework's id of the call.
        scope: where that id is unique; an equal id elsewhere is another call.
        attempt: how often the framework has begun this unit of work before.
        validate: returns the validated arguments; what it raises happens before any intent.
        is_error: tells a result that the framework shapes as an error.
        is_pause: tells an exception that pauses the run and is no failure.
        plain_replay: a replay may answer with the plain data of a record-like result (a model's dump, say) where the
            object itself is gone; the adapter makes of it what its framework wants.
        kit: whose declarations count outside of a saga; by default the default kit.

    Raises:
        UndeclaredTool: inside a saga, the tool is not declared; it did not run.
        GateRefused, SagaClosed, StepInDoubt: it did not run.
        BaseException: what the tool raised.
    """
    saga = current_saga_var.get()
    given = dict(kwargs if validate is None else validate(dict(kwargs)))
    if saga is None:
        _check_bare(name, kit)
        return call(given)
    declaration = _declared(saga, name)
    key = joined_key(declaration, saga)
    if key is not None:
        return call(_with_key(declaration, given, key))
    tool_call = _tool_call(
        declaration, given, call, adapter, call_id, scope, attempt, is_error, is_pause, plain_replay=plain_replay
    )
    return drive(perform(saga, tool_call))  # type: ignore[no-any-return]


async def aguard(
    name: str,
    kwargs: Mapping[str, Any],
    call: Callable[[dict[str, Any]], Awaitable[R]],
    *,
    adapter: str,
    call_id: str | None = None,
    scope: str | None = None,
    attempt: int = 0,
    validate: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    is_error: Callable[[Any], bool] | None = None,
    is_pause: Callable[[BaseException], bool] | None = None,
    plain_replay: bool = False,
    kit: AgentKit | None = None,
) -> R:
    """See guard; `call` is async."""
    saga = current_saga_var.get()
    given = dict(kwargs if validate is None else validate(dict(kwargs)))
    if saga is None:
        _check_bare(name, kit)
        return await call(given)
    declaration = _declared(saga, name)
    check_awaitable(saga, declaration)
    key = joined_key(declaration, saga)
    if key is not None:
        return await call(_with_key(declaration, given, key))
    tool_call = _tool_call(
        declaration, given, call, adapter, call_id, scope, attempt, is_error, is_pause, plain_replay=plain_replay
    )
    return await adrive(perform(saga, tool_call))


def require_declared(names: Iterable[str], kit: AgentKit | None = None) -> None:
    """Check that all these tools are declared: in `kit`, else in the current saga's kit, else in the default kit.

    Raises:
        UndeclaredTool: some are not; the message lists all of them, in a block to paste.
    """
    _declarations(kit).require(names)


def adopt_parameters(name: str, parameters: Iterable[str], kit: AgentKit | None = None) -> str | None:
    """Tell a tool's declaration which parameters the framework's tool has; adapters do so when they are set up.

    Args:
        name: the tool.
        parameters: all that it takes, also those that no model sees.
        kit: as for `require_declared`.

    Returns:
        The parameter that receives the idempotency key, to be hidden from models; None where there is none.

    Raises:
        DeclarationError: the declaration names parameters that the tool does not have.
    """
    declaration = _declarations(kit).find(name)
    if declaration is None:
        return None
    declare.adopt_parameters(declaration, parameters)
    return declaration.key_param


def effect_of(name: str, kit: AgentKit | None = None) -> Effect | None:
    """Return the declared effect class of a tool, or None where it is not declared; `kit` as for `require_declared`."""
    declaration = _declarations(kit).find(name)
    return None if declaration is None else declaration.effect


def may_suspend(name: str) -> bool:
    """Tell whether a policy could suspend a call of this tool in the current saga, so that a look ahead is worth it."""
    saga = current_saga_var.get()
    declaration = None if saga is None else saga.environment.declarations.find(name)
    return saga is not None and declaration is not None and proposal.may_suspend(saga, declaration)


async def alook_ahead(
    name: str, kwargs: Mapping[str, Any], *, adapter: str, call_id: str | None = None, scope: str | None = None
) -> SagaSuspended | None:
    """Have the gate look at a call that is not made yet: for frameworks that can pause before a call, and not in it.

    Args:
        name: the tool, as declared.
        kwargs: the arguments that the call will have, as `guard` is going to be given them.
        adapter: the adapter's name.
        call_id: the framework's id of the call.
        scope: where that id is unique.

    Returns:
        Why the call would have to wait: the adapter pauses the run (`note_pause`), and has the call made later. None:
        it is to be made now, and does not wait, is refused, or fails.
    """
    saga = current_saga_var.get()
    declaration = None if saga is None else saga.environment.declarations.find(name)
    if saga is None or declaration is None or not proposal.may_suspend(saga, declaration):
        return None
    visible = {known: value for known, value in kwargs.items() if known != declaration.key_param}
    call = ToolCall(
        declaration=declaration, kwargs=visible, run=_not_to_be_run, adapter=adapter, call_id=call_id, call_scope=scope
    )
    return await adrive(proposal.look_ahead(saga, call))


def _not_to_be_run(_key: str | None) -> Call:
    raise InvariantViolation("a look ahead ran a tool")


def claim(call_ids: Iterable[str], *, adapter: str, scope: str) -> None:
    """Say that a resumed run has the results of these calls, so that it will not make them again.

    A framework that resumes from a checkpoint of its own goes on behind its finished calls. Without this they would
    look like calls that the resumed run left out (`SagaDiverged`). Does nothing where no saga was resumed.

    Args:
        call_ids: from the framework's own record of the run; each claims one step.
        adapter: the adapter's name.
        scope: how the scopes begin in which the ids are meant.
    """
    saga = current_saga_var.get()
    if saga is None or not saga.live.unclaimed:
        return
    live, ids = saga.live, Counter(call_ids)
    with live.lock:
        for no in sorted(live.unclaimed):
            step = live.view.steps[no]
            known = step.adapter == adapter and (step.call_scope or "").startswith(scope)
            if known and step.call_id is not None and ids[step.call_id] > 0:
                ids[step.call_id] -= 1
                live.unclaimed.discard(no)


def note_pause(name: str, reason: str | None) -> None:
    """Say that a run in the current saga has paused outside of any tool, or (None) that it goes on.

    A saga that has a paused run when its scope ends is suspended instead of committed.

    Args:
        name: of the run.
        reason: why it waits, for people.
    """
    saga = current_saga_var.get()
    if saga is None:
        return
    if reason is None:
        saga.live.paused.pop(name, None)
    else:
        saga.live.paused[name] = reason


def decide_approval(approval: str, *, approved: bool, by: str, note: str = "") -> None:
    """Record somebody's word, given through the framework's own pause, on a request of the current saga.

    Args:
        approval: `SagaSuspended.approval`.
        approved: whether the call may run.
        by: who says so.
        note: why, shown with a rejection.

    Raises:
        UsageError: there is no saga here, or the request is decided, expired or needs a signature; nothing changed.
    """
    saga = current_saga_var.get()
    if saga is None:
        raise UsageError(f"approval {approval!r} cannot be decided here: there is no saga")
    operators.decide_approval(saga.live.writer, approval, "approved" if approved else "rejected", by=by, note=note)


def _declarations(kit: AgentKit | None) -> Declarations:
    saga = current_saga_var.get()
    if kit is not None or saga is None:
        return (kit or default_kit()).declarations
    return saga.environment.declarations


def _check_bare(name: str, kit: AgentKit | None) -> None:
    environment = (kit or default_kit()).environment
    declaration = environment.declarations.find(name)
    if declaration is not None:
        check_outside(declaration, environment)


def _declared(saga: Saga, name: str) -> Declaration:
    declaration = saga.environment.declarations.find(name)
    if declaration is None:
        raise UndeclaredTool(
            f"tool {name!r} is not declared, so it did not run in saga {saga.id!r}. Decide what it does and add: "
            f"kit.declare({name!r}, effect='read_only' | 'reversible' | 'compensable' | 'irreversible', ...)"
        )
    return declaration


def _with_key(declaration: Declaration, kwargs: dict[str, Any], key: str | None) -> dict[str, Any]:
    return kwargs if key is None or declaration.key_param is None else {**kwargs, declaration.key_param: key}


def _tool_call(  # noqa: PLR0917 - private, and called in two places with the names at hand.
    declaration: Declaration,
    kwargs: dict[str, Any],
    call: Callable[[dict[str, Any]], Any],
    adapter: str,
    call_id: str | None,
    scope: str | None,
    attempt: int,
    is_error: Callable[[Any], bool] | None,
    is_pause: Callable[[BaseException], bool] | None,
    *,
    plain_replay: bool,
) -> ToolCall:
    visible = {name: value for name, value in kwargs.items() if name != declaration.key_param}

    def run(key: str | None) -> Call:
        return Call(call, (_with_key(declaration, kwargs, key),), {}, declaration.timeout_s)

    return ToolCall(
        declaration=declaration,
        kwargs=visible,
        run=run,
        adapter=adapter,
        call_id=call_id,
        call_scope=scope,
        attempt=attempt,
        is_error=is_error,
        is_pause=is_pause,
        plain_replay=plain_replay,
    )


def read_records(log: str, saga_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records of a log, or of one saga, as plain data, checked against their chains.

    Args:
        log: a path or URL.
        saga_id: only this saga.

    Yields:
        The body's fields, and `values` with what the payload holds, decoded.

    Raises:
        LogMissing, LogUnusable: there is no log to read.
        CorruptLog: a record or chain is damaged; nothing after it is given.
    """
    store = open_log(log, create=False)
    try:
        for one in [saga_id] if saga_id is not None else _saga_ids(store):
            for _, record, texts in checked_records(store, one):
                yield {**fields_of(record), "values": {name: decode(text) for name, text in texts.items()}}
    finally:
        store.close()


def _saga_ids(store: Any) -> Iterator[str]:
    after = None
    while page := store.rows(Query(amendments=True, after=after)):
        yield from (row.saga_id for row in page)
        after = page[-1].saga_id
