"""Names of sagas, steps and keys."""

from __future__ import annotations

import re
from typing import NewType

SagaId = NewType("SagaId", str)
"""26 characters, sortable by time of opening (ULID, Crockford base 32, lower case)."""
StepId = NewType("StepId", str)
"""`<saga id>:<number of the step>`; also the step's idempotency key."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SAGA_ID = re.compile(rf"[{_ALPHABET}]{{26}}")


def make_saga_id(time_ns: int, entropy: bytes) -> SagaId:
    """Return the id of a saga opened at `time_ns`, with 10 bytes of `entropy` (ULID, github.com/ulid/spec)."""
    number = ((time_ns // 1_000_000) & ((1 << 48) - 1)) << 80 | int.from_bytes(entropy[:10], "big")
    return SagaId("".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5)))


def is_saga_id(text: str) -> bool:
    """Tell whether `text` has the form of a saga id."""
    return _SAGA_ID.fullmatch(text) is not None


def step_id(saga_id: str, step: int) -> StepId:
    """Return the id of step number `step` of a saga; it is the step's idempotency key too."""
    return StepId(f"{saga_id}:{step}")


def compensation_key(saga_id: str, step: int, generation: int) -> str:
    """Return the key of a compensation: the same for every attempt in every process.

    Args:
        saga_id: the saga.
        step: the number of the step within it.
        generation: 1, and one more for each landing that became known after an earlier compensation.
    """
    return f"{saga_id}:{step}:c{generation}"
