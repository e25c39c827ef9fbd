"""Ctrl-C at a bad moment: held back for the few microseconds in which half a change would be worse than none.

Python runs signal handlers in the main thread, between any two instructions. An interrupt inside a commit would leave
open whether it happened, and one between a record and its place in the queue would tear the saga's account in two. So
these blocks let the interrupt wait and deliver it when the outermost one is left. It waits for a commit, never for a
tool. Other threads than the main one get no interrupts, and pay nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SIGINT: Final = int(signal.SIGINT)
_set_handler: Final[Callable[[int, Any], Any]] = getattr(signal.signal, "__wrapped__", signal.signal)
_handler_of: Final[Callable[[int], Any]] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
"""Without the conversion to enums and back, which costs 4 us a call; without it 0.2 us."""


class _MainThread:
    """How deep the main thread is inside such blocks, and what waits for their end."""

    def __init__(self) -> None:
        self.ident = threading.main_thread().ident
        self._depth = 0
        self._handler: Any = None
        self._pending = False
        self._frame: FrameType | None = None

    def enter(self) -> None:
        if self._depth == 0:
            handler = _handler_of(_SIGINT)
            if callable(handler):  # Else it is ignored, kills at once, or belongs to a program around Python.
                _set_handler(_SIGINT, self._hold)
                self._handler = handler
        self._depth += 1

    def leave(self) -> None:
        self._depth -= 1
        if self._depth or self._handler is None:
            return
        handler, self._handler = self._handler, None
        _set_handler(_SIGINT, handler)
        if self._pending:
            frame, self._pending, self._frame = self._frame, False, None
            handler(_SIGINT, frame)

    def _hold(self, _number: int, frame: FrameType | None) -> None:
        self._pending, self._frame = True, frame

    def is_here_after_fork(self) -> None:
        """In a forked child the thread that forked is the main one."""
        self.ident = threading.get_ident()


_main: Final = _MainThread()
os.register_at_fork(after_in_child=_main.is_here_after_fork)


class InterruptsHeld:
    """A context in which a Ctrl-C waits."""

    __slots__ = ("_here",)

    def __enter__(self) -> None:
        self._here = threading.get_ident() == _main.ident
        if self._here:
            _main.enter()

    def __exit__(self, *_exc: object) -> None:
        if self._here:
            _main.leave()


class QuietLock:
    """A reentrant lock whose holder is not interrupted: what is done under it is done whole."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if threading.get_ident() == _main.ident:
            _main.enter()
        self._lock.acquire()

    def __exit__(self, *_exc: object) -> None:
        self._lock.release()
        if threading.get_ident() == _main.ident:
            _main.leave()
