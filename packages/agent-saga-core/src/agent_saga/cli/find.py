"""Finding the saga that a person means: by id, by key, or by the first characters of its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.cli.terminal import visible
from agent_saga.errors import UsageError
from agent_saga.model.ids import is_saga_id
from agent_saga.store.port import Query

if TYPE_CHECKING:
    from agent_saga.store.port import LogStore

_SHOWN_MAX: Final = 5
_AFTER_ALL: Final = "~"
"""Sorts after every character of a saga id."""


def find_saga(store: LogStore, text: str) -> str:
    """Return the id of the saga that `text` names.

    Args:
        store: the log.
        text: an id, the id of a step (`<saga id>:<number>`), a saga's key (its newest incarnation), or the beginning
            of one id.

    Raises:
        UsageError: none is named, or more than one.
    """
    if (found := store.row_of_key(text)) is not None:
        return found.saga_id
    wanted = text.lower()
    head, colon, number = wanted.partition(":")
    if colon and number.isdigit():
        wanted = head
    if is_saga_id(wanted):
        if store.row(wanted) is None and not store.records(wanted, limit=1):
            raise UsageError(f"there is no saga {wanted!r} in this log; see: agent-saga sagas")
        return wanted
    return _by_prefix(store, wanted, text)


def _by_prefix(store: LogStore, prefix: str, given: str) -> str:
    matches: list[str] = []
    if prefix.isalnum() and prefix.isascii():
        for amendments in (False, True):  # Settlements and the like are meant only when nothing else is.
            page = store.rows(Query(amendments=amendments, after=prefix + _AFTER_ALL, limit=_SHOWN_MAX + 1))
            matches = matches or [row.saga_id for row in page if row.saga_id.startswith(prefix)]
    if not matches:
        raise UsageError(
            f"no saga of this log has the id or key '{visible(given)}', or an id that begins so; see: agent-saga sagas"
        )
    if len(matches) > 1:
        more = " and more" if len(matches) > _SHOWN_MAX else ""
        raise UsageError(f"{given!r} begins several ids: {', '.join(matches[:_SHOWN_MAX])}{more}")
    return matches[0]


def step_number(text: str) -> int:
    """Return the number of a step, given as `2` or as `<saga id>:2`.

    Raises:
        UsageError: it is neither.
    """
    number = text.rpartition(":")[2]
    if not (number.isascii() and number.isdigit()):
        raise UsageError(f"'{visible(text)}' is no step: give its number, as agent-saga show prints it")
    return int(number)
