"""What a rule reads from a call: values by path, amounts, units. What cannot be read is refused, never passed over."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES_MAX: Final = 10_000
"""A path that leads to more values, or past more nodes, cannot be read."""
DEPTH_MAX: Final = 64
DIGITS_MAX: Final = 60
"""An amount beyond 10**60 or below 10**-60, or of more than twice as many digits, cannot be read."""
_EXACT: Final = Context(prec=8 * DIGITS_MAX, traps=[InvalidOperation, Inexact, Overflow])
_NUMBER: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_IS_NUMBER: Final = re.compile(_NUMBER)
_IS_QUANTITY: Final = re.compile(rf"({_NUMBER}) ?([^\W\d_]+|%)")
_SHOWN_MAX: Final = 60
_WILDCARDS: Final = frozenset({"*", "**"})


class Unreadable(Exception):
    """A value is missing, or is not what a rule can decide about; the message says which and why."""


class Missing(Unreadable):
    """A value is not there."""


def shown(value: object) -> str:
    """Return a value for a message: escaped and short."""
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - a foreign __repr__ failed, inside a message.
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


# -- paths ---------------------------------------------------------------------------------------------------------


def check_path(path: str) -> tuple[str, ...]:
    """Return the parts of a path to one or more arguments: `amount`, `order.total.amount`, `items.*.price`.

    `kwargs.` or `args.` in front may be left out. `*` is each item of a list or mapping, `**` is what is found at any
    depth, as in `**.amount`.

    Raises:
        DeclarationError: it is none.
    """
    parts = path.split(".") if isinstance(path, str) else [""]
    if parts[0] in {"kwargs", "args"}:
        parts = parts[1:]
    if not parts or "" in parts or parts[-1] == "**":
        raise DeclarationError(f"{path!r} is no path to an argument; write 'amount', 'order.total' or 'items.*.price'")
    return tuple(parts)


def at_path(kwargs: Mapping[str, Any], parts: tuple[str, ...]) -> list[Any]:
    """Return all values that a path leads to.

    Raises:
        Unreadable: there is none, a part of the path is missing, or there are too many.
    """
    node: Any = kwargs
    for part in parts:  # The plain case, without wildcards and in plain mappings.
        if type(node) is not dict or part not in node or part in _WILDCARDS:
            break
        node = node[part]
    else:
        return [node]
    found = _Search(parts).run(kwargs)
    if not found:
        raise Missing(f"there is no argument {'.'.join(parts)!r}")
    return found


def _stored(node: Any) -> Any:
    """Return what a container really holds: the methods of a subclass may show something else."""
    if isinstance(node, dict) and type(node) is not dict:
        return dict(dict.items(node))
    if isinstance(node, list) and type(node) is not list:
        return list(list.__iter__(node))
    return node


class _Search:
    """One walk along a path."""

    __slots__ = ("nodes", "parts")

    def __init__(self, parts: tuple[str, ...]) -> None:
        self.parts = parts
        self.nodes = 0

    def run(self, root: Any) -> list[Any]:
        return list(self._walk(root, 0, 0))

    def _walk(self, node: Any, position: int, depth: int) -> Iterator[Any]:
        self.nodes += 1
        node = _stored(node)
        if self.nodes > VALUES_MAX or depth > DEPTH_MAX:
            raise Unreadable(f"{'.'.join(self.parts)!r} leads past more than {VALUES_MAX} values or {DEPTH_MAX} levels")
        if position == len(self.parts):
            yield node
            return
        part = self.parts[position]
        if part == "*":
            for child in self._children(node, position):
                yield from self._walk(child, position + 1, depth + 1)
        elif part == "**":
            yield from self._anywhere(node, position, depth)
        else:
            yield from self._walk(self._enter(node, part, position), position + 1, depth + 1)

    def _anywhere(self, node: Any, position: int, depth: int) -> Iterator[Any]:
        """Yield what the rest of the path leads to, from here and from every node below."""
        follows = self.parts[position + 1]
        if follows in {"*", "**"} or _has(node, follows):
            yield from self._walk(node, position + 1, depth + 1)
        for child in _children_of(node) or ():
            yield from self._walk(child, position, depth + 1)

    def _children(self, node: Any, position: int) -> list[Any]:
        children = _children_of(node)
        if children is None:
            raise Unreadable(f"{self._walked(position)!r} is {shown(node)}, where a list or a mapping was expected")
        return children

    def _enter(self, node: Any, part: str, position: int) -> Any:
        if isinstance(node, Mapping):
            if part in node:
                return node[part]
        elif _is_list(node):
            if part.isascii() and part.isdigit() and int(part) < len(node):
                return node[int(part)]
        elif not part.startswith("_") and hasattr(node, part) and not isinstance(node, str | bytes | int | float):
            return getattr(node, part)
        if isinstance(node, Mapping) or node is None:
            raise Missing(f"argument {self._walked(position + 1)!r} is not there")
        raise Unreadable(
            f"argument {self._walked(position + 1)!r} is not there: {self._walked(position)!r} is {shown(node)}"
        )

    def _walked(self, position: int) -> str:
        return ".".join(self.parts[:position])


def _is_list(node: Any) -> bool:
    return isinstance(node, Sequence) and not isinstance(node, str | bytes | bytearray)


def _has(node: Any, part: str) -> bool:
    if isinstance(node, Mapping):
        return part in node
    return bool(_fields_of(node)) and part in _fields_of(node)


def _children_of(node: Any) -> list[Any] | None:
    if isinstance(node, Mapping):
        return list(node.values())
    if _is_list(node) or isinstance(node, set | frozenset):
        return list(node)
    fields = _fields_of(node)
    return list(fields.values()) if fields else None


def _fields_of(node: Any) -> dict[str, Any]:
    """Return the public fields of a record-like object."""
    names = getattr(type(node), "__dataclass_fields__", None) or getattr(type(node), "__struct_fields__", None)
    if names is None:
        names = getattr(type(node), "model_fields", None) or {}
    return {name: getattr(node, name) for name in names if not name.startswith("_")}


# -- amounts -------------------------------------------------------------------------------------------------------


def amount_of(value: object) -> Decimal:
    """Return an amount exactly.

    `int`, finite `Decimal`, numeric strings such as `"42.10"` and `"1e9"`; a finite `float` through its `repr`.

    Raises:
        Unreadable: it is anything else, also a bool, NaN, infinity, `"1,000"`, `"1_000"`, `" 5"` or other digits than
            0-9, which different tools read differently.
    """
    kind = type(value)
    if kind is int:
        return _integer(value)  # type: ignore[arg-type]
    if kind is float:
        return _bounded(Decimal(repr(value)), value)
    if kind is Decimal:
        return _decimal(value)  # type: ignore[arg-type]
    if kind is str:
        return _written(value)  # type: ignore[arg-type]
    raise Unreadable(f"{shown(value)} ({kind.__name__}) is no amount")


def _decimal(value: Decimal) -> Decimal:
    if len(value.as_tuple().digits) > 2 * DIGITS_MAX:
        raise Unreadable(f"{shown(value)} has more than {2 * DIGITS_MAX} digits")
    return _bounded(value, value)


def _written(text: str) -> Decimal:
    if len(text) <= 2 * DIGITS_MAX and _IS_NUMBER.fullmatch(text):
        return _bounded(Decimal(text), text)
    raise Unreadable(f"{shown(text)} is no number that every reader takes for the same")


def _integer(value: int) -> Decimal:
    if value.bit_length() > 3 * DIGITS_MAX:
        raise Unreadable(f"an integer of {value.bit_length()} bits is no amount")
    return Decimal(value)


def _bounded(amount: Decimal, value: object) -> Decimal:
    if not amount.is_finite():
        raise Unreadable(f"{shown(value)} is not finite")
    if amount and abs(amount.adjusted()) > DIGITS_MAX:
        raise Unreadable(f"{shown(value)} is beyond 10**{DIGITS_MAX} or below 10**-{DIGITS_MAX}")
    return amount or Decimal(0)


def total_of(amounts: list[Decimal]) -> Decimal:
    """Return an exact sum.

    Raises:
        Unreadable: it needs more digits than are kept.
    """
    if len(amounts) == 1:
        return amounts[0]
    total = Decimal(0)
    try:
        for amount in amounts:
            total = _EXACT.add(total, amount)
    except (Inexact, InvalidOperation, Overflow):
        raise Unreadable("the sum of the amounts needs too many digits") from None
    return total


# -- units ---------------------------------------------------------------------------------------------------------

_PREFIXES: Final = {"n": "1e-9", "u": "1e-6", "m": "1e-3", "": "1", "k": "1e3", "M": "1e6"}


def _scale(base: str, prefixes: str) -> dict[str, tuple[str, Decimal]]:
    names = ["" if prefix == "-" else prefix for prefix in prefixes]
    return {prefix + base: (base, Decimal(_PREFIXES[prefix])) for prefix in names}


_UNITS: Final[dict[str, tuple[str, Decimal]]] = {
    **_scale("g", "num-k"),
    "mcg": ("g", Decimal("1e-6")),
    **_scale("l", "um-"),
    "dl": ("l", Decimal("0.1")),
    "ml": ("l", Decimal("1e-3")),
    **_scale("m", "um-k"),
    "cm": ("m", Decimal("0.01")),
    **_scale("V", "um-k"),
    **_scale("A", "um-k"),
    **_scale("W", "m-kM"),
    **_scale("Wh", "-kM"),
    **_scale("Hz", "-kM"),
    **_scale("s", "num-"),
    "min": ("s", Decimal(60)),
    "h": ("s", Decimal(3600)),
    "deg": ("deg", Decimal(1)),
    "turn": ("deg", Decimal(360)),
    **_scale("rad", "m-"),
}
"""Unit -> (dimension, factor). Source: the SI brochure, 9th edition; only exact decimal factors."""
_MICRO: Final = {"\N{MICRO SIGN}": "u", "\N{GREEK SMALL LETTER MU}": "u"}


def _unit(text: str) -> str:
    return _MICRO.get(text[:1], text[:1]) + text[1:]


def factor(unit: str, like: str) -> Decimal | None:
    """Return the factor from `unit` to the base of its dimension, or None when it does not measure what `like` does."""
    unit, like = _unit(unit), _unit(like)
    if unit == like:
        return _UNITS.get(unit, (unit, Decimal(1)))[1]
    known, wanted = _UNITS.get(unit), _UNITS.get(like)
    return known[1] if known and wanted and known[0] == wanted[0] else None


def scaled(amount: Decimal, by: Decimal) -> Decimal:
    """Return an exact product.

    Raises:
        Unreadable: it needs more digits than are kept.
    """
    try:
        return _EXACT.multiply(amount, by)
    except (Inexact, InvalidOperation, Overflow):
        raise Unreadable("the amount needs too many digits") from None


def split_quantity(text: str) -> tuple[str, str] | None:
    """Return number and unit of a text such as `0.5 mg`, or None when it is not one."""
    found = _IS_QUANTITY.fullmatch(text) if len(text) <= 2 * DIGITS_MAX else None
    return (found[1], found[2]) if found else None
