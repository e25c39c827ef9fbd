"""Changes as one argument of a step: plain, or packed where they are many, or apart where they are very many."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

_PLAIN_BYTES: Final = 600_000
_PLAIN_VALUES: Final = 100_000
PACKED_BYTES_MAX: Final = 700_000
"""What the log keeps of one argument is 1 MiB, and bytes grow by a third there."""


def fits(changes: Sequence[dict[str, Any]]) -> bool:
    """Tell whether the log keeps changes as they are."""
    size = count = 0
    for change in changes:
        for row in (change["before"], change["after"]):
            for name, value in (row or {}).items():
                count += 1
                size += len(name) + 12 + (len(value) * 4 // 3 if isinstance(value, str | bytes) else 8)
        size += 60
    return size <= _PLAIN_BYTES and count <= _PLAIN_VALUES


def packed(changes: Sequence[dict[str, Any]]) -> bytes:
    """Return changes as few bytes."""
    return zlib.compress(json.dumps(changes, default=_as_text, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def unpacked(data: bytes) -> Sequence[dict[str, Any]]:
    """Return what `packed` was given."""
    text = zlib.decompress(data).decode("utf-8", "surrogatepass")
    return json.loads(text, object_hook=_from_text)  # type: ignore[no-any-return]


def _as_text(value: Any) -> Any:
    return {"$bytes": base64.b64encode(value).decode()}


def _from_text(found: dict[str, Any]) -> Any:
    return base64.b64decode(found["$bytes"]) if found.keys() == {"$bytes"} else found
