"""Paths such as `result.id` or `kwargs.items.0.sku`: from what a call took and returned to a compensation's kwargs."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_saga.model.values import Marker

_NAMES_SHOWN_MAX: Final = 12
ROOTS: Final = ("result", "kwargs", "args", "key")


class PathMissing(LookupError):
    """A path leads nowhere; the message names what was wanted and what was there."""


def check(path: str) -> str:
    """Return the path in its canonical spelling (`args.` becomes `kwargs.`).

    Raises:
        ValueError: it does not begin with a known root, or has an empty part.
    """
    root, *rest = path.split(".")
    if root not in ROOTS or "" in rest or (root == "key" and rest):
        raise ValueError(f"{path!r} is no path: it must be 'key', or begin with 'result' or 'kwargs.'")
    if root in {"kwargs", "args"}:
        if not rest:
            raise ValueError(f"{path!r} must name an argument, as in 'kwargs.customer'")
        return ".".join(["kwargs", *rest])
    return path


def resolve(path: str, roots: Mapping[str, Any]) -> Any:
    """Return what `path` leads to: mapping keys, then attributes, then indexes of sequences.

    Raises:
        PathMissing: a part is not there.
    """
    root, *parts = path.split(".")
    node = roots[root]
    walked = root
    for part in parts:
        # Most of what is entered is a dict; asking an abstract class whether it is a mapping costs ten times as much.
        node = node[part] if type(node) is dict and part in node else _enter(node, part, path, walked)
        walked += f".{part}"
    return node


def _enter(node: Any, part: str, path: str, walked: str) -> Any:
    if isinstance(node, Mapping):
        if part in node:
            return node[part]
        raise PathMissing(f"{path!r} was wanted, but {walked!r} has only {_names(node)}")
    if isinstance(node, Sequence) and not isinstance(node, str | bytes) and part.lstrip("-").isdigit():
        try:
            return node[int(part)]
        except IndexError:
            raise PathMissing(f"{path!r} was wanted, but {walked!r} has {len(node)} items") from None
    try:
        found = None if isinstance(node, Marker) else getattr(node, part)
        if isinstance(node, Marker) or _is_method(found):
            raise AttributeError(part)
        return found
    except AttributeError:
        raise PathMissing(f"{path!r} was wanted, but {walked!r} is {_describe(node)}") from None


def _is_method(value: object) -> bool:
    """A method is nothing that a tool took or returned: `result.count` of a list is a path that leads nowhere."""
    return isinstance(value, types.MethodType | types.BuiltinMethodType | types.MethodWrapperType)


def _names(node: Mapping[Any, Any]) -> str:
    names = [repr(name) for name in node]
    if not names:
        return "no keys"
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (", ..." if len(names) > _NAMES_SHOWN_MAX else "")


def _describe(node: Any) -> str:
    if isinstance(node, Marker):
        return f"{node!r}, which was not stored"
    return "None" if node is None else f"a {type(node).__name__} without it"
