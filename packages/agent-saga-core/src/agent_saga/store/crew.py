"""Verifying with several processes: forked from this one, each takes the next share of the sagas until none is left.

A share of which nothing comes back, because it is damaged or its process died, is checked again by this process, which
then says what is wrong: so what is found does not depend on who looked.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import tempfile
import threading
from array import array
from typing import IO, TYPE_CHECKING, Final, Self

import msgspec

from agent_saga.store.port import ReadsRanges
from agent_saga.store.shares import Tally, check_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_saga.store.port import LogStore
    from agent_saga.store.shares import Asked, Share, Visitor

_SHARES_MAX: Final = 255
_SLOT: Final = 8
_HEAD: Final = 9
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[list[int], bytes, bytes, dict[str, int], bytes]).decode


def check_shared(
    store: LogStore,
    asked: Asked,
    shares: Sequence[Share],
    visitor: Visitor | None,
    progress: Callable[[int, int], None] | None,
    *,
    processes: int,
) -> tuple[list[str], Iterator[Tally]]:
    """Return what the store itself has checked, and what was found in each share, in order.

    Args:
        store, asked, visitor: see `shares.check_share`.
        shares: 255 at most.
        progress: see `verify.verify`.
        processes: how many, this one included; one where the others could not be forked safely.

    Raises:
        CorruptLog: at the first damage, also while the tallies are taken.
    """
    counters = mmap.mmap(-1, _SLOT * len(shares))
    helpers = min(processes - 1, len(shares) - 1) if _can_fork(store) else 0

    def work(number: int, *, show: bool) -> bytes:
        def done(records: int) -> None:
            counters[_SLOT * number : _SLOT * (number + 1)] = records.to_bytes(_SLOT, "little")
            if show and progress is not None:
                progress(min(asked.last, sum(array("q", counters[:]))), asked.last)

        tally = check_share(store, asked, shares[number], visitor, done)
        return _packed(tally, b"" if visitor is None else visitor.take())

    with _Crew(lambda number: work(number, show=False), len(shares), helpers) as crew:
        lines = list(store.verify())
        found = crew.finished(lambda number: work(number, show=True))

    def tallies() -> Iterator[Tally]:
        for number in range(len(shares)):
            tally, taken = _unpacked(found[number] if number in found else work(number, show=True))
            if visitor is not None:
                visitor.merge(taken)
            yield tally

    return lines, tallies()


def _can_fork(store: LogStore) -> bool:
    """Tell whether other processes can share the work: the platform forks, and no other thread may hold a lock."""
    return hasattr(os, "fork") and isinstance(store, ReadsRanges) and threading.active_count() == 1


class _Crew:
    """Processes that work on numbered shares.

    Args:
        work: returns what is found in a share; runs in the other processes.
        shares: how many there are.
        helpers: how many processes to fork.
    """

    def __init__(self, work: Callable[[int], bytes], shares: int, helpers: int) -> None:
        self._tokens, give = os.pipe()
        os.write(give, bytes(range(shares)))
        os.close(give)
        self._files = [tempfile.TemporaryFile() for _ in range(helpers)]  # noqa: SIM115 - closed by __exit__.
        self._pids = [self._fork(work, file) for file in self._files]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait()
        for file in self._files:
            file.close()
        os.close(self._tokens)

    def finished(self, work: Callable[[int], bytes]) -> dict[int, bytes]:
        """Work on what is left, wait for the others, and return all that was found, by number of the share."""
        found = dict(self._take(work))
        self._wait()
        for file in self._files:
            file.seek(0)
            while len(head := file.read(_HEAD)) == _HEAD:
                size = int.from_bytes(head[1:], "little")
                if len(body := file.read(size)) == size:
                    found[head[0]] = body
        return found

    def _take(self, work: Callable[[int], bytes]) -> Iterator[tuple[int, bytes]]:
        """Work on shares until none is left, or one is damaged: then nobody takes another one."""
        while token := os.read(self._tokens, 1):
            try:
                result = work(token[0])
            except Exception:  # noqa: BLE001 - whatever it was, who puts the shares together does this one again.
                while os.read(self._tokens, _SHARES_MAX):
                    pass
                return
            yield token[0], result

    def _fork(self, work: Callable[[int], bytes], file: IO[bytes]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            for number, result in self._take(work):
                file.write(bytes([number]) + len(result).to_bytes(_HEAD - 1, "little") + result)
                file.flush()
        finally:
            os._exit(0)  # Nothing of what the parent had planned for its end may run here.

    def _wait(self) -> None:
        while self._pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pids[-1], 0)
            self._pids.pop()


def _packed(tally: Tally, taken: bytes) -> bytes:
    numbers = [tally.sagas, tally.pruned, tally.there, tally.unsure, tally.facts]
    return _encode((numbers, tally.leaves.tobytes(), tally.sealed_at.tobytes(), tally.amended, taken))


def _unpacked(packed: bytes) -> tuple[Tally, bytes]:
    numbers, leaves, sealed_at, amended, taken = _decode(packed)
    tally = Tally()
    tally.sagas, tally.pruned, tally.there, tally.unsure, tally.facts = numbers
    tally.leaves.frombytes(leaves)
    tally.sealed_at.frombytes(sealed_at)
    tally.amended = amended
    return tally, taken
