"""`prove_rollback` as an assertion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import pytest

from agent_saga.testing import RollbackProof, prove_rollback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


@overload
def assert_rollback_proven(
    scenario: Callable[[], Coroutine[Any, Any, Any]],
    *,
    snapshot: Callable[[], Any],
    reset: Callable[[], Any],
    strict: bool = False,
    **options: Any,
) -> Awaitable[RollbackProof]: ...
@overload
def assert_rollback_proven(
    scenario: Callable[[], Any],
    *,
    snapshot: Callable[[], Any],
    reset: Callable[[], Any],
    strict: bool = False,
    **options: Any,
) -> RollbackProof: ...
def assert_rollback_proven(
    scenario: Callable[[], Any],
    *,
    snapshot: Callable[[], Any],
    reset: Callable[[], Any],
    strict: bool = False,
    **options: Any,
) -> RollbackProof | Awaitable[RollbackProof]:
    """Fail the test unless a workflow is proven to roll back. See `agent_saga.prove_rollback`.

    Args:
        scenario: the workflow, sync or async (then this is to be awaited).
        snapshot: returns the world.
        reset: brings it back.
        strict: fail also when a report is right only by what it assumes, or needs a human.
        options: of `prove_rollback`.
    """
    proof: Any = prove_rollback(scenario, snapshot=snapshot, reset=reset, **options)
    return _checked(proof, strict=strict) if isinstance(proof, RollbackProof) else _later(proof, strict=strict)


async def _later(proof: Awaitable[RollbackProof], *, strict: bool) -> RollbackProof:
    return _checked(await proof, strict=strict)


def _checked(proof: RollbackProof, *, strict: bool) -> RollbackProof:
    if proof.findings if strict else not proof.proven:
        pytest.fail(proof.format_text(), pytrace=False)
    return proof
