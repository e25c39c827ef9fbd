"""Ctrl-C at a bad moment: held back for the few microseconds in which half a change would be worse than none.

Python runs signal handlers in the main thread, between any two instructions. An interrupt inside a commit would leave
open whether it happened, and one between a record and its place in the queue would tear the saga's account in two. So
while a saga is open, SIGINT first comes here; inside the blocks below it waits for their end, else it goes on to the
handler from before. It waits for a commit, never for a tool. Other threads than the main one get no interrupts.

Replacing the handler at each block would be simpler, and costs two system calls each time: half an engine step.
"""

from __future__ import annotations

import os
import signal
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType


class _MainThread:
    """How deep the main thread is inside such blocks, and what waits for their end."""

    def __init__(self) -> None:
        self.ident = threading.main_thread().ident
        self.depth = 0
        self.pending = False
        self._frame: FrameType | None = None
        self._handler: Any = None
        self._watchers: set[int] = set()
        self._mine = self._on_interrupt

    def watch(self, watcher: int) -> None:
        self._watchers.add(watcher)
        if self._handler is not None or threading.get_ident() != self.ident:
            return
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):  # Else it is ignored, kills at once, or belongs to a program around Python.
            try:
                signal.signal(signal.SIGINT, self._mine)
            except ValueError:  # The main thread of a subinterpreter: it gets no signals.
                return
            self._handler = handler

    def unwatch(self, watcher: int) -> None:
        self._watchers.discard(watcher)
        if self._watchers or self._handler is None or threading.get_ident() != self.ident:
            return
        handler, self._handler = self._handler, None
        if signal.getsignal(signal.SIGINT) is self._mine:  # Else somebody else has set theirs since.
            signal.signal(signal.SIGINT, handler)

    def deliver(self) -> None:
        frame, self.pending, self._frame = self._frame, False, None
        self._on_interrupt(signal.SIGINT, frame)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.depth:
            self.pending, self._frame = True, frame
        else:
            (self._handler or signal.default_int_handler)(number, frame)

    def is_here_after_fork(self) -> None:
        """In a forked child the thread that forked is the main one."""
        self.ident = threading.get_ident()


_main: Final = _MainThread()
os.register_at_fork(after_in_child=_main.is_here_after_fork)


def watch_interrupts(watcher: object) -> None:
    """Let SIGINT come through here until `watcher`, and all others, no longer need it."""
    _main.watch(id(watcher))


def unwatch_interrupts(watcher: object) -> None:
    """End what `watch_interrupts` began."""
    _main.unwatch(id(watcher))


class QuietLock:
    """A reentrant lock whose holder is not interrupted: what is done under it is done whole."""

    __slots__ = ("_acquire", "_release")

    def __init__(self) -> None:
        lock = threading.RLock()
        self._acquire, self._release = lock.acquire, lock.release

    def __enter__(self) -> None:
        if get_ident() == _main.ident:
            _main.depth += 1
        self._acquire()

    def __exit__(self, *_exc: object) -> None:
        self._release()
        if get_ident() == _main.ident:
            _main.depth -= 1
            if _main.pending and not _main.depth:
                _main.deliver()


class InterruptsHeld:
    """A context in which a Ctrl-C waits. It has no state of its own, so one object serves all blocks."""

    __slots__ = ()

    def __enter__(self) -> None:
        if get_ident() == _main.ident:
            _main.depth += 1

    def __exit__(self, *_exc: object) -> None:
        if get_ident() == _main.ident:
            _main.depth -= 1
            if _main.pending and not _main.depth:
                _main.deliver()
