"""Program: waits for a line, confines itself to some folders (Landlock), and becomes a command.

Run as a file: `python -I -S _jail.py confined FOLDER... -- COMMAND...`, or `open` without folders. It waits so that its
number is on disk before it does anything: when its parent dies earlier, the line does not come, and nothing is run.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

CREATE, ADD, RESTRICT = 444, 445, 446  # The same on every architecture.
WRITES: Final = 1 << 1 | sum(1 << bit for bit in range(4, 13))
BY_ABI: Final = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # Moving between folders, truncating, ioctl of devices.
NET_ABI, TCP = 4, 3  # Binding and connecting.
SCOPES_ABI, SCOPES = 6, 3  # Abstract sockets, and signals to processes outside.
GO: Final = b"go\n"
REFUSED: Final = 126


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def abi() -> int:
    """Return the version of Landlock that this kernel has; 0 for none."""
    return max(0, int(ctypes.CDLL(None).syscall(CREATE, None, 0, 1)))


def confine(folders: list[str]) -> None:
    """Keep this process and its children from writing elsewhere, from TCP, and from signalling others; for good."""
    version, libc = abi(), ctypes.CDLL(None, use_errno=True)
    writes = WRITES | sum(bit for since, bit in BY_ABI.items() if version >= since)
    rules = _Ruleset(writes, TCP if version >= NET_ABI else 0, SCOPES if version >= SCOPES_ABI else 0)
    known_bytes = 24 if version >= SCOPES_ABI else 16 if version >= NET_ABI else 8
    ruleset = libc.syscall(CREATE, ctypes.byref(rules), known_bytes, 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "no Landlock ruleset")
    for path in [*folders, "/dev/null"]:
        allowed = writes if path != "/dev/null" else writes & (1 << 1 | 1 << 14)
        beneath = _Beneath(allowed, os.open(path, os.O_PATH | os.O_CLOEXEC))
        if libc.syscall(ADD, ruleset, 1, ctypes.byref(beneath), 0):
            raise OSError(ctypes.get_errno(), f"no Landlock rule for {path}")
    if libc.prctl(38, 1, 0, 0, 0) or libc.syscall(RESTRICT, ruleset, 0):
        raise OSError(ctypes.get_errno(), "Landlock does not restrict")


def main() -> None:
    """See the module."""
    at = sys.argv.index("--")
    if os.read(0, len(GO)) != GO:
        sys.exit(REFUSED)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if sys.argv[1] == "confined" and abi():
        confine(sys.argv[2:at])
    os.execvp(sys.argv[at + 1], sys.argv[at + 1 :])  # noqa: S606 - a command is what this is for.


if __name__ == "__main__":
    main()
