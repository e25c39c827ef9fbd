"""Images of folders: what lies there, by path, and the contents in a store that is addressed by them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TEMPORARY: Final = ".agent-saga-restore"
"""How names end under which a restore prepares files."""
_CHUNK_BYTES: Final = 1 << 20

Entry = dict[str, Any]
Image = dict[str, Entry]
"""By absolute path: `kind`, `mode`, `mtime` (ns), `owner`, and what the kind has: `sha`, `size`, `target`, `same`."""


class NoImage(OSError):
    """No pre-image could be taken, so the effect did not begin. Nothing happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one image may hold, so that nobody copies a disk by accident."""

    files_max: int = 50_000
    bytes_max: int = 1 << 30


class Store:
    """A folder that holds contents and, by step, images; on disk when a method returns.

    Args:
        folder: of the store's own; made when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def blob(self, sha: str) -> Path:
        """Return where a content lies."""
        return self.folder / "blobs" / sha[:2] / sha[2:]

    def keep(self, path: str) -> str:
        """Copy a file's content into the store and return its address."""
        temporary = self.folder / f"incoming-{os.getpid()}"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        digest = hashlib.sha256()
        with open(path, "rb") as source, open(temporary, "wb") as target:  # noqa: PTH123 - names need not be UTF-8.
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                target.write(chunk)
            sha = digest.hexdigest()
            known = self.blob(sha)
            if known.exists():
                temporary.unlink()
                return sha
            target.flush()
            os.fsync(target.fileno())
        if not known.parent.exists():
            known.parent.mkdir(parents=True)
            sync(known.parent.parent)
        temporary.replace(known)
        sync(known.parent)
        return sha

    def of_step(self, key: str) -> Path:
        """Return the folder of a step's images."""
        return self.folder / "steps" / hashlib.sha256(key.encode()).hexdigest()[:32]

    def write(self, key: str, name: str, value: Any) -> None:
        """Store a value beside a step's images, durably."""
        folder = self.of_step(key)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{name}.new"
        with temporary.open("w", encoding="ascii") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / name)
        for one in (folder, folder.parent, self.folder, self.folder.parent):
            sync(one)

    def read(self, key: str, name: str) -> Any:
        """Return a stored value, or None."""
        path = self.of_step(key) / name
        return json.loads(path.read_text("ascii")) if path.exists() else None


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take(paths: Iterable[Path], keep: Callable[[str], str], limits: Limits) -> Image:
    """Return the image of everything at and beneath some paths. Links are not followed.

    Args:
        paths: absolute; what is not there is not in the image.
        keep: is given each regular file and returns the address of its content.
        limits: how much it may be.

    Raises:
        NoImage: too much, unreadable, or changed while it was read.
    """
    image: Image = {}
    left = limits.bytes_max
    try:
        for path in _walk(paths):
            entry = _entry(path, keep)
            left -= entry.get("size", 0)
            if len(image) >= limits.files_max or left < 0:
                raise NoImage(
                    f"nothing ran: a pre-image would hold more than {limits.files_max} files or {limits.bytes_max} "
                    "bytes; name smaller roots, or raise `limits`"
                )
            image[path] = entry
    except FileNotFoundError as error:
        raise NoImage(f"nothing ran: {error.filename!r} vanished while its pre-image was taken; try again") from error
    except PermissionError as error:
        raise NoImage(f"nothing ran: {error.filename!r} cannot be read, so there is no pre-image") from error
    return image


def _walk(paths: Iterable[Path]) -> Iterator[str]:
    waiting = [str(path) for path in paths if os.path.lexists(path)]
    while waiting:
        path = waiting.pop()
        if path.endswith(TEMPORARY):
            continue
        yield path
        if stat.S_ISDIR(os.lstat(path).st_mode):
            waiting.extend(entry.path for entry in os.scandir(path))


def _entry(path: str, keep: Callable[[str], str]) -> Entry:
    found = os.lstat(path)
    mode = found.st_mode
    entry: Entry = {"mode": stat.S_IMODE(mode), "mtime": found.st_mtime_ns, "owner": [found.st_uid, found.st_gid]}
    if stat.S_ISREG(mode):
        entry |= {"kind": "file", "size": found.st_size, "sha": keep(path)}
        if found.st_nlink > 1:
            entry |= {"same": f"{found.st_dev}:{found.st_ino}", "links": found.st_nlink}
    elif stat.S_ISDIR(mode):
        entry["kind"] = "folder"
    elif stat.S_ISLNK(mode):
        entry |= {"kind": "link", "target": os.readlink(path)}  # noqa: PTH115 - names need not be UTF-8.
    else:
        entry["kind"] = "pipe" if stat.S_ISFIFO(mode) else "special"
    if attributes := _attributes(path):
        entry["attributes"] = attributes
    return entry


def _attributes(path: str) -> dict[str, str]:
    found = {}
    with suppress(OSError):  # The file system has none.
        for name in os.listxattr(path, follow_symlinks=False):
            found[name] = os.getxattr(path, name, follow_symlinks=False).hex()
    return found


def address(path: str) -> str:
    """Return the address of a file's content without keeping it."""
    with open(path, "rb") as file:  # noqa: PTH123 - names need not be UTF-8.
        return hashlib.file_digest(file, "sha256").hexdigest()


def object_stores(*images: Image) -> tuple[str, ...]:
    """Return the folders in which git keeps objects: `.git` and bare ones. Objects are only ever added."""
    return tuple({
        f"{path}/"
        for image in images
        for path, entry in image.items()
        if path.endswith("/objects") and entry["kind"] == "folder"
        and (path[: -len("objects")] + "HEAD") in image and (path[: -len("objects")] + "refs") in image
    })  # fmt: skip
