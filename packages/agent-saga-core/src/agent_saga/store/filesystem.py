"""Which file systems cannot hold a log: those that other machines share, where locks and shared memory do not hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_SHARED: Final = frozenset(
    (
        *(
            "9p",
            "acfs",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "coda",
            "drvfs",
            "fuse",
            "fuseblk",
            "gfs2",
            "glusterfs",
            "gpfs",
        ),
        *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf"),
        *("virtiofs", "vmhgfs"),
    )
)
_MOUNTS: Final = "/proc/self/mountinfo"


def shared_file_system(directory: Path, *, mounts: str | None = None) -> str | None:
    """Return the type of the file system that holds `directory` when it is a network or shared one, else None.

    Args:
        directory: an existing directory.
        mounts: the text of `/proc/self/mountinfo`; read where it exists. Elsewhere nothing is known, so None.
    """
    if mounts is None:
        try:
            mounts = Path(_MOUNTS).read_text(errors="replace")
        except OSError:
            return None
    kind = _type_of(os.path.realpath(directory), mounts)
    return kind if kind in _SHARED or kind.startswith("fuse.") else None


def file_system_of(directory: Path) -> str:
    """Return the type of the file system that holds a directory; empty where nothing is known."""
    try:
        return _type_of(os.path.realpath(directory), Path(_MOUNTS).read_text(errors="replace"))
    except OSError:
        return ""


def _type_of(place: str, mounts: str) -> str:
    """Return the type of the mount with the longest point that contains `place`; later mounts cover earlier ones."""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:  # noqa: PLR2004 - the mount point is field 5 (proc(5)).
            continue
        point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        if (place == point or place.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind
