"""Putting something else in the place of a name, in this process, for the length of a block."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

_MISSING = object()


@contextlib.contextmanager
def put(target: Any, **values: Any) -> Iterator[None]:
    """Put values in the place of attributes of a module or class."""
    before = {name: getattr(target, name) for name in values}
    for name, value in values.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)


@contextlib.contextmanager
def put_item(table: MutableMapping[Any, Any], key: Any, value: Any) -> Iterator[None]:
    """Put a value in the place of an item of a table."""
    before = table.get(key, _MISSING)
    table[key] = value
    try:
        yield
    finally:
        if before is _MISSING:
            del table[key]
        else:
            table[key] = before


@contextlib.contextmanager
def without(table: MutableMapping[Any, Any], key: Any) -> Iterator[None]:
    """Take an item out of a table."""
    before = table.pop(key)
    try:
        yield
    finally:
        table[key] = before
