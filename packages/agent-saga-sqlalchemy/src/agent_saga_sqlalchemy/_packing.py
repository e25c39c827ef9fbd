"""Changes as one argument of a step: plain, or packed where they are many."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

from agent_saga_sqlalchemy._statements import NotCapturable

_PLAIN_BYTES: Final = 600_000
_PLAIN_VALUES: Final = 100_000
PACKED_BYTES_MAX: Final = 700_000
"""What the log keeps of one argument is 1 MiB, and bytes grow by a third there."""


def pack(changes: list[dict[str, Any]]) -> Any:
    """Return changes as the log keeps them.

    Raises:
        NotCapturable: they are more than it keeps.
    """
    if _fits(changes):
        return changes
    packed = zlib.compress(json.dumps(changes, default=_as_text, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if len(packed) > PACKED_BYTES_MAX:
        raise NotCapturable(
            f"one transaction changed {len(changes)} rows, whose images ({len(packed)} bytes, packed) are more than "
            f"the log keeps for one step ({PACKED_BYTES_MAX}); it was rolled back. Commit it in smaller parts"
        )
    return {"zlib": packed}


def unpack(changes: Any) -> Sequence[dict[str, Any]]:
    """Return what `pack` was given."""
    if isinstance(changes, dict):
        return json.loads(zlib.decompress(changes["zlib"]).decode("utf-8", "surrogatepass"), object_hook=_from_text)  # type: ignore[no-any-return]
    return changes  # type: ignore[no-any-return]


def _fits(changes: Sequence[dict[str, Any]]) -> bool:
    size = count = 0
    for change in changes:
        for row in (change["before"], change["after"]):
            for name, value in (row or {}).items():
                count += 1
                size += len(name) + 12 + (len(value) * 4 // 3 if isinstance(value, str | bytes) else 8)
        size += 60
    return size <= _PLAIN_BYTES and count <= _PLAIN_VALUES


def _as_text(value: Any) -> Any:
    return {"$bytes": base64.b64encode(value).decode()}


def _from_text(found: dict[str, Any]) -> Any:
    return base64.b64decode(found["$bytes"]) if found.keys() == {"$bytes"} else found
