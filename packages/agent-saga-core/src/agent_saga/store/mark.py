"""The high-water mark beside a log: how far it had come, so that a reader notices a database that is behind.

A lost or damaged `-wal` file makes SQLite show an older state without an error; a committed saga would look open
again. The mark is written after each commit and not synced. After a loss of power the kernel may have kept the mark
and lost commits that were never called durable, so it has two positions and the id of the boot in which it was
written: in the same boot the log must hold everything that was written, in a later one all that was durable.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_saga.errors import CorruptLog

UNCHECKED: Final = "not checked: "
"""How a line of `LogStore.verify` begins that says what could not be checked."""
_MAGIC: Final = "agent-saga-mark 1"
_BYTES: Final = len(_MAGIC) + 1 + 32 + 1 + 36 + 1 + 20 + 1 + 20 + 1 + 8 + 1
_NO_BOOT: Final = "-" * 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a mark says.

    Attributes:
        log: id of the log (`meta`, name `log`).
        boot: id of the boot in which it was written, or dashes where the system has none.
        written: position up to which records were committed.
        durable: position up to which they were durable.
    """

    log: str
    boot: str
    written: int
    durable: int


def boot_id() -> str:
    """Return the id of this boot of the machine, 36 characters; dashes where there is none."""
    with contextlib.suppress(OSError):
        found = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        if len(found) == len(_NO_BOOT):
            return found
    return _NO_BOOT


def read_mark(path: Path) -> Mark | None:
    """Return the mark, or None when it is missing or unreadable."""
    try:
        line = path.read_bytes()[:_BYTES].decode("ascii")
    except (OSError, UnicodeDecodeError):
        return None
    text, _, check = line.rstrip("\n").rpartition(" ")
    fields = text.split(" ")
    if len(line) != _BYTES or not text.startswith(_MAGIC + " ") or check != f"{zlib.crc32(text.encode()):08x}":
        return None
    return Mark(log=fields[2], boot=fields[3], written=int(fields[4]), durable=int(fields[5]))


def check_mark(mark: Mark | None, *, log: str, last: int) -> str:
    """Compare a mark with the log; return what was checked, in one line.

    Args:
        mark: read *before* `last`, because a live writer moves both on.
        log: the log's id.
        last: its last position.

    Raises:
        CorruptLog: the log is behind its mark.
    """
    if mark is None:
        return f"{UNCHECKED}the end of the log: its mark is missing or unreadable"
    if mark.log != log:
        return f"{UNCHECKED}the end of the log: the mark beside it belongs to another log"
    same_boot = mark.boot == boot_id() != _NO_BOOT
    expected = mark.written if same_boot else mark.durable
    if last < expected:
        raise CorruptLog(
            f"it ends at position {last}, and had come to {expected}: its -wal file was lost or damaged, or an older "
            "copy was put in its place; bring the -wal back, or remove the -mark file to accept the loss"
        )
    return f"the end of the log: it has come as far as its mark ({expected})"


class MarkWriter:
    """Keeps the mark of a log that this process writes."""

    __slots__ = ("_boot", "_durable", "_fd", "_head")

    def __init__(self, path: Path, log: str, known: Mark | None) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._head = f"{_MAGIC} {log} {boot_id()}"
        self._durable = known.durable if known is not None and known.log == log else 0

    def write(self, pos: int, *, durable: bool) -> None:
        """Note that everything up to `pos` is committed; with `durable`, that it would survive loss of power."""
        if durable:
            self._durable = pos
        text = f"{self._head} {pos:020d} {self._durable:020d}"
        data = text.encode()
        try:
            os.pwrite(self._fd, b"%b %08x\n" % (data, zlib.crc32(data)), 0)
        except OSError:
            return  # A mark that cannot be written stays behind the log: it notices less, and accuses nobody wrongly.

    def close(self) -> None:
        """Close the file; the mark stays."""
        os.close(self._fd)
