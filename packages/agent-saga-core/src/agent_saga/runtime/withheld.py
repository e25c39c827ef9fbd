"""Texts that quote what a log must not show: redacted arguments, and in an encrypted log what exceptions say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agent_saga.model import records as r
from agent_saga.model.values import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHORT: Final = 6
"""Texts that are shorter are found as whole words only."""
_QUOTED: Final = (56, 40)
"""Rules quote the beginning of a long value."""
_HEAD: Final = re.compile(r"[\w. ]{1,80}(?=:)")
_SAYS: Final[dict[type[r.Record], str]] = {
    r.RollbackStarted: "cause",
    r.SagaEnded: "cause",
    r.CompensationOutcome: "reason",
    r.Probed: "reason",
}
"""Where a body holds what an exception said."""
SEALED_NOTE: Final = " (its text is encrypted)"


def leaves(value: object) -> set[str]:
    """Return the texts by which a value, or what is in it, may be quoted."""
    if isinstance(value, Mapping):
        return set().union(*map(leaves, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return set().union(*map(leaves, value))
    if value is None or isinstance(value, bool):
        return set()
    text = str(value)
    escaped = ascii(text)[1:-1]
    return {form for form in (text, escaped, *(escaped[:length] for length in _QUOTED)) if form}


def without(text: str, withheld: Iterable[str]) -> str:
    """Return a text that quotes none of `withheld`."""
    for one in sorted(withheld, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(one)}(?!\w)" if len(one) < _SHORT else re.escape(one), "<redacted>", text)
    return text


def withhold(texts: set[str], fields: dict[str, Any], values: dict[str, str], free: Iterable[str]) -> None:
    """Take redacted arguments out of the free texts of a record, and out of the message of its error."""
    for name in free:
        if fields.get(name):
            fields[name] = without(fields[name], texts)
    if "error" in values and isinstance(message := decode(values["error"]), str):
        values["error"] = encode(without(message, texts)).text


def into_values(make: object, fields: dict[str, Any], values: dict[str, str]) -> None:
    """Leave of what an exception said its type only in the body, and put the text among the values."""
    name = _SAYS.get(make) if isinstance(make, type) else None
    text = fields.get(name) if name is not None else None
    if not name or not text or text.endswith(SEALED_NOTE):
        return
    head = _HEAD.match(text)
    if fields.get("state") == "conflict":
        short = "it was changed since"
    elif head is not None:
        short = head[0]
    else:
        return
    fields[name] = short + SEALED_NOTE
    values[name] = encode(text).text
