"""Values as the log stores them: JSON plus tagged forms, decoded into plain data without hooks.

A tagged form is a JSON object with one key that begins with `$` (docs/log-format.md lists them). Encoding never
fails: what has no form is stored as an opaque marker with its type, what is too large as a digest.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import uuid
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VALUE_BYTES_MAX: Final = 1 << 20
"""A value whose encoding is longer is stored as its digest."""
NODES_MAX: Final = 200_000
DEPTH_MAX: Final = 100
NAME_LENGTH_MAX: Final = 20_000
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

_dumps = msgspec.json.Encoder().encode
_dumps_sorted = msgspec.json.Encoder(order="sorted").encode
_loads = msgspec.json.Decoder().decode


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """One encoded value.

    Attributes:
        text: compact JSON.
        exact: decoding gives an equal value of the same type; else it may be shown, not replayed.
        opaque: the value has no stored form at all: only its type is known.
    """

    text: str
    exact: bool = True
    opaque: bool = False

    @property
    def canonical(self) -> str:
        """The text with sorted object keys; equal values have equal canonical texts."""
        return canonical_text(self.text)


class _Unstorable(Exception):
    """The value is cyclic, too deep or too wide."""


class _Walk:
    """One walk over a value: turns it into JSON-able data and notes what was lost."""

    __slots__ = ("exact", "nodes", "opaque")

    def __init__(self) -> None:
        self.exact = True
        self.opaque = False
        self.nodes = 0

    def plain(self, value: Any, depth: int = 0) -> Any:
        self.nodes += 1
        if self.nodes > NODES_MAX or depth > DEPTH_MAX:
            raise _Unstorable
        form = _FORMS.get(type(value))
        if form is not None:
            return form(self, value, depth)
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            self.exact = False  # Decoding gives the member's value.
            return {"$enum": [_type_name(value), value.name, self.plain(value.value, depth + 1)]}
        if isinstance(value, Marker):
            self.exact, self.opaque = False, True
            return {"$opaque": value.type_name}
        if isinstance(value, PurePath):
            return {"$path": _text(str(value))}
        self.exact = False
        for base in _BASES:
            if isinstance(value, base):
                return _FORMS[base](self, _base_value(base, value), depth)
        fields_of = _object_fields(value)
        if fields_of is not None:
            return {"$object": [_type_name(value), self.plain(fields_of, depth + 1)]}
        self.opaque = True
        return {"$opaque": _type_name(value)}

    def mapping_of(self, value: Mapping[Any, Any], depth: int) -> Any:
        if all(type(key) is str and not key.startswith("$") and _is_utf8(key) for key in value):
            return {key: self.plain(item, depth + 1) for key, item in value.items()}
        return {"$dict": [[self.plain(key, depth + 1), self.plain(item, depth + 1)] for key, item in value.items()]}

    def items(self, value: Any, depth: int) -> list[Any]:
        return [self.plain(item, depth + 1) for item in value]

    def unordered(self, value: Any, depth: int) -> list[Any]:
        return sorted(self.items(value, depth), key=_dumps_sorted)


def _base_value(base: type, value: Any) -> Any:
    """Return the content of an instance of a subclass, past methods that the subclass overrides."""
    if base is dict:
        return dict(dict.items(value))
    if base in {list, tuple, set, frozenset}:
        return base(base.__iter__(value))
    if base is dt.datetime:
        parts = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
        return dt.datetime(*parts, tzinfo=value.tzinfo, fold=value.fold)
    if base is dt.date:
        return dt.date(value.year, value.month, value.day)
    if base is dt.timedelta:
        return dt.timedelta(value.days, value.seconds, value.microseconds)
    if base is uuid.UUID:
        return uuid.UUID(int=value.int)
    return base.__str__(value) if base is str else base(value)


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def is_name(value: object) -> bool:
    """Tell whether a value can name something in the log: a text that is not empty and can be stored as it is."""
    return isinstance(value, str) and value != "" and len(value) <= NAME_LENGTH_MAX and _is_utf8(value)


def storable_text(text: str, *, length_max: int = 16_384) -> str:
    """Return a text of somebody else's (a message, a reason) in a form that a record's body can hold."""
    if len(text) > length_max:
        text = text[:length_max] + "..."
    return text if _is_utf8(text) else text.encode("utf-8", "backslashreplace").decode()


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: str) -> Any:
    if _is_utf8(value):
        return value
    return {"$str": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}


def _integer(value: int) -> Any:
    return value if _INT_MIN <= value <= _INT_MAX else {"$int": hex(value)}


def _number(value: float) -> Any:
    return value if value - value == 0.0 else {"$float": repr(value)}


def _object_fields(value: Any) -> dict[Any, Any] | None:
    """Return the public fields of a record-like object, or None; foreign code runs here, and may fail."""
    try:
        if is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, msgspec.Struct):
            return {name: getattr(value, name) for name in value.__struct_fields__}
        if callable(dump := getattr(type(value), "model_dump", None)):
            dumped = dump(value)
            return dumped if type(dumped) is dict else None
        if (attributes := getattr(type(value), "__attrs_attrs__", None)) is not None:
            return {attribute.name: getattr(value, attribute.name) for attribute in attributes}
    except Exception:  # noqa: BLE001 - a tool's own type misbehaves; its value is then opaque, which the log says.
        return None
    return None


_FORMS: Final[dict[type, Callable[[_Walk, Any, int], Any]]] = {
    type(None): lambda _walk, value, _depth: value,
    bool: lambda _walk, value, _depth: value,
    int: lambda _walk, value, _depth: _integer(value),
    float: lambda _walk, value, _depth: _number(value),
    str: lambda _walk, value, _depth: _text(value),
    dict: lambda walk, value, depth: walk.mapping_of(value, depth),
    list: lambda walk, value, depth: walk.items(value, depth),
    tuple: lambda walk, value, depth: {"$tuple": walk.items(value, depth)},
    set: lambda walk, value, depth: {"$set": walk.unordered(value, depth)},
    frozenset: lambda walk, value, depth: {"$frozenset": walk.unordered(value, depth)},
    bytes: lambda _walk, value, _depth: {"$bytes": base64.b64encode(value).decode()},
    bytearray: lambda _walk, value, _depth: {"$bytearray": base64.b64encode(value).decode()},
    Decimal: lambda _walk, value, _depth: {"$decimal": str(value)},
    uuid.UUID: lambda _walk, value, _depth: {"$uuid": str(value)},
    dt.datetime: lambda walk, value, _depth: _moment(walk, value),
    dt.date: lambda _walk, value, _depth: {"$date": value.isoformat()},
    dt.time: lambda walk, value, _depth: _moment(walk, value, tag="$time"),
    dt.timedelta: lambda _walk, value, _depth: {"$timedelta": [value.days, value.seconds, value.microseconds]},
}


def _moment(walk: _Walk, value: dt.datetime | dt.time, *, tag: str = "$datetime") -> Any:
    """Encode a time; a named zone is kept as its offset, which is not exact."""
    if value.fold or not (value.tzinfo is None or type(value.tzinfo) is dt.timezone):
        walk.exact = False
    return {tag: value.isoformat()}


_BASES: Final[tuple[type, ...]] = (
    bool, int, float, str, bytes, bytearray, dict, list, tuple, set, frozenset,
    Decimal, uuid.UUID, dt.datetime, dt.date, dt.timedelta,
)  # fmt: skip
"""An instance of a subclass of one of these is stored as that: pendulum's datetimes, asyncpg's UUIDs."""


def encode(value: object, *, limit_bytes: int = VALUE_BYTES_MAX) -> Encoded:
    """Return the stored form of `value`; it never raises on account of the value.

    Args:
        value: anything.
        limit_bytes: a longer encoding is replaced by `{"$digest": [sha256, bytes, type]}`.
    """
    kind = type(value)
    check = _PLAIN.get(kind)
    if check is not None and check(value):
        # Most arguments and results: nothing in them needs a form of its own, so nothing is walked twice.
        text = _dumps(value)
        if len(text) <= limit_bytes:
            return Encoded(text.decode())
    if kind is str and len(cast("str", value)) > limit_bytes:
        return _digest(value, cast("str", value).encode("utf-8", "surrogatepass"))
    if kind in {bytes, bytearray} and len(cast("bytes", value)) > limit_bytes:
        return _digest(value, bytes(cast("bytes", value)))
    walk = _Walk()
    try:
        plain = walk.plain(value)
        text = _dumps(plain)
    except Exception:  # noqa: BLE001 - cyclic, too deep or wide, or its own methods failed: it has no stored form.
        return Encoded(_dumps({"$opaque": _type_name(value)}).decode(), exact=False, opaque=True)
    if len(text) > limit_bytes:
        return _digest(value, _dumps_sorted(plain))
    return Encoded(text.decode(), walk.exact, walk.opaque)


_FLAT: Final[dict[type, Callable[[Any], bool]]] = {
    str: str.isascii,
    int: lambda value: _INT_MIN <= value <= _INT_MAX,
    bool: lambda _value: True,
    type(None): lambda _value: True,
    float: lambda value: value - value == 0.0,
}
"""Types that JSON has, and whether a value of one is spelled as JSON spells it."""


def _is_flat(value: Any) -> bool:
    """Tell whether a dict holds such values only, under plain keys."""
    for key, item in value.items():
        if type(key) is not str or not key.isascii() or key[:1] == "$":
            return False
        check = _FLAT.get(type(item))
        if check is None or not check(item):
            return False
    return True


_PLAIN: Final = {**_FLAT, dict: _is_flat}


def redacted(value: object) -> str:
    """Return the stored form of a value that must not reach the log."""
    return _dumps({"$redacted": _type_name(value)}).decode()


def redacted_as(how: str) -> str:
    """Return what stands for a value that was removed, saying how it went."""
    return _dumps({"$redacted": how}).decode()


def encrypted(key_id: str) -> str:
    """Return what stands for a value that cannot be read without a key."""
    return _dumps({"$encrypted": f"under key {key_id}"}).decode()


def _digest(value: object, content: bytes) -> Encoded:
    text = _dumps({"$digest": [hashlib.sha256(content).hexdigest(), len(content), _type_name(value)]}).decode()
    return Encoded(text, exact=False)


@dataclass(frozen=True, slots=True)
class Marker:
    """What a decoded value shows where the log holds no value.

    Attributes:
        kind: `opaque` (no stored form), `digest` (too large), `redacted`, or `encrypted` (the key is not here; such a
            marker is made while reading, and is in no log).
        type_name: the type that the value had, as `module.Name`; how it went; or under which key it is encrypted.
    """

    kind: str
    type_name: str

    def __repr__(self) -> str:
        return f"<{self.kind} {self.type_name}>"


def decode(text: str) -> object:
    """Return the plain data of one stored value; record-like objects come back as dicts.

    Raises:
        ValueError: the text is not the encoding of a value.
    """
    try:
        return _restore(_loads(text))
    except (msgspec.DecodeError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not a stored value: {error}") from error


def is_complete(text: str) -> bool:
    """Tell whether a stored value holds data all the way down, without markers of what is not there."""
    return not any(mark in text for mark in ('{"$opaque":', '{"$digest":', '{"$redacted":', '{"$encrypted":'))


def is_plain(text: str) -> bool:
    """Tell whether decoding a stored value gives something equal to it: no markers, and no objects shown as dicts."""
    return is_complete(text) and '{"$object":' not in text


def _restore(node: Any) -> Any:
    if type(node) is list:
        return [_restore(item) for item in node]
    if type(node) is not dict:
        return node
    if len(node) == 1:
        ((tag, content),) = node.items()
        if tag.startswith("$"):
            return _UNTAG[tag](content)
    return {key: _restore(item) for key, item in node.items()}


_UNTAG: Final[dict[str, Callable[[Any], Any]]] = {
    "$dict": lambda content: _hashed(dict, [(_restore(key), _restore(item)) for key, item in content]),
    "$tuple": lambda content: tuple(_restore(item) for item in content),
    "$set": lambda content: _hashed(set, [_restore(item) for item in content]),
    "$frozenset": lambda content: _hashed(frozenset, [_restore(item) for item in content]),
    "$int": lambda content: int(content, 16),
    "$float": float,
    "$str": lambda content: base64.b64decode(content, validate=True).decode("utf-8", "surrogatepass"),
    "$bytes": lambda content: base64.b64decode(content, validate=True),
    "$bytearray": lambda content: bytearray(base64.b64decode(content, validate=True)),
    "$decimal": Decimal,
    "$uuid": uuid.UUID,
    "$datetime": dt.datetime.fromisoformat,
    "$date": dt.date.fromisoformat,
    "$time": dt.time.fromisoformat,
    "$timedelta": lambda content: dt.timedelta(*content),
    "$path": lambda content: _path(_restore(content)),
    "$enum": lambda content: _restore(content[2]),
    "$object": lambda content: _restore(content[1]),
    "$opaque": lambda content: Marker("opaque", content),
    "$digest": lambda content: Marker("digest", content[2]),
    "$redacted": lambda content: Marker("redacted", content),
    "$encrypted": lambda content: Marker("encrypted", content),
}


def _hashed(make: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    """Return the set or dict of `items`, or the items as a list when they cannot be hashed.

    A record-like object comes back as a dict, which cannot be hashed though the object could.
    """
    try:
        return make(items)
    except TypeError:
        return items


def _path(text: str) -> PurePath:
    from pathlib import Path

    return Path(text)


def canonical_text(text: str) -> str:
    """Return a stored value's canonical text (sorted object keys); see `Encoded.canonical`."""
    if "{" not in text:
        return text
    plain = _loads(text)
    return _dumps_sorted(_sort_dicts(plain) if '"$dict"' in text else plain).decode()


def _sort_dicts(node: Any) -> Any:
    """Sort the items of dicts whose keys are no plain texts: equal dicts differ in their order only."""
    if type(node) is list:
        return [_sort_dicts(item) for item in node]
    if type(node) is not dict:
        return node
    sorted_inside = {key: _sort_dicts(item) for key, item in node.items()}
    if "$dict" in sorted_inside:
        sorted_inside["$dict"].sort(key=_dumps_sorted)
    return sorted_inside
