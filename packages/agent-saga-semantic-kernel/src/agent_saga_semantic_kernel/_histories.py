"""Chat histories: which calls have their results in them, and which wait for a person."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from semantic_kernel.contents.function_call_content import FunctionCallContent
from semantic_kernel.contents.function_result_content import FunctionResultContent

from agent_saga import current_saga, spi
from agent_saga_semantic_kernel._info import NAME
from agent_saga_semantic_kernel._units import WAITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semantic_kernel.contents.chat_history import ChatHistory

    from agent_saga import Saga

_seen: Final[weakref.WeakKeyDictionary[Saga, weakref.WeakValueDictionary[int, Any]]] = weakref.WeakKeyDictionary()


def begins(history: ChatHistory | None) -> None:
    """Put the saga's id on the span, and claim the steps whose results a history brings along, once for each."""
    saga = current_saga()
    if saga is None or history is None:
        return
    trace.get_current_span().set_attribute("saga.id", saga.id)
    seen = _seen.setdefault(saga, weakref.WeakValueDictionary())
    if seen.get(id(history)) is not history:
        seen[id(history)] = history
        spi.claim(finished(history), adapter=NAME, scope="")


def finished(history: ChatHistory) -> Iterator[str]:
    """Yield the id of each call that has a result; a result that was also handed to the caller is one."""
    made: Counter[str] = Counter()
    for item in _items(history):
        if isinstance(item, FunctionCallContent):
            made[str(item.id)] += 1
        elif WAITS not in item.metadata and made[str(item.id)] > 0:
            made[str(item.id)] -= 1
            yield str(item.id)


def waiting(history: ChatHistory) -> list[tuple[FunctionCallContent, str]]:
    """Return the calls that wait, in order, each with the approval that it waits for."""
    calls: dict[str, FunctionCallContent] = {}
    found: dict[tuple[str, str], FunctionCallContent] = {}
    for item in _items(history):
        if isinstance(item, FunctionCallContent):
            calls[str(item.id)] = item
        elif WAITS in item.metadata and str(item.id) in calls:
            found[str(item.id), str(item.metadata[WAITS] or "")] = calls[str(item.id)]
    return [(call, approval) for (_, approval), call in found.items()]


def put(history: ChatHistory, approval: str, answer: FunctionResultContent) -> None:
    """Put a result in the place of the one that said that its call waits."""
    for message in history.messages:
        for at, item in enumerate(message.items):
            known = isinstance(item, FunctionResultContent) and item.id == answer.id
            if known and str(item.metadata.get(WAITS, None) or "") == approval and WAITS in item.metadata:
                message.items[at] = answer


def _items(history: ChatHistory) -> Iterator[Any]:
    for message in history.messages:
        for item in message.items:
            if isinstance(item, FunctionCallContent | FunctionResultContent):
                yield item
