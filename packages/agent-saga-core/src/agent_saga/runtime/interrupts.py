"""Ctrl-C at a bad moment: held back for the few microseconds in which half a change would be worse than none.

Python runs signal handlers in the main thread, between any two instructions. An interrupt inside a commit would leave
open whether it happened, and one between a record and its place in the queue would tear the saga's account in two. So
these blocks let the interrupt wait and deliver it when they are left. It waits for a commit, never for a tool.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has no stub for it.
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

_SIGINT: Final = int(signal.SIGINT)
_set_handler: Final[Callable[[int, Any], Any]] = _signal.signal
_handler_of: Final[Callable[[int], Any]] = _signal.getsignal
"""Without the conversion to enums and back of `signal.signal`, which costs 4 us a call; without it 0.2 us."""
_main_thread: Final = threading.main_thread()


class InterruptsHeld:
    """A context in which a Ctrl-C waits; its handler runs at the end. Only the main thread ever gets one."""

    __slots__ = ("_frame", "_handler", "_pending")

    def __enter__(self) -> None:
        self._handler: Any = None
        self._pending = False
        self._frame: FrameType | None = None
        if threading.get_ident() != _main_thread.ident:
            return
        handler = _handler_of(_SIGINT)
        if callable(handler):  # Else it is ignored, kills at once, or belongs to a program around Python.
            try:
                _set_handler(_SIGINT, self._hold)
            except ValueError:  # The main thread of a subinterpreter: it gets no signals.
                return
            self._handler = handler

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handler = self._handler
        if handler is not None:
            _set_handler(_SIGINT, handler)
            if self._pending:
                handler(_SIGINT, self._frame)

    def _hold(self, _number: int, frame: FrameType | None) -> None:
        self._pending, self._frame = True, frame
