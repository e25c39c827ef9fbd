"""Puts back what a step changed: looks first whether anybody else changed it since, then writes, then compares."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_saga import Conflict
from agent_saga_connectors._image import TEMPORARY, Entry, Image, Store, object_stores

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN_MAX: Final = 5
_LOOKS: Final = ("kind", "mode", "owner", "sha", "target", "attributes")


def touched(before: Image, after: Image) -> list[str]:
    """Return the paths that differ, sorted. New git objects do not count: they are kept, as nothing refers to them."""
    stores = object_stores(before, after)
    return sorted(
        path
        for path in before.keys() | after.keys()
        if not _equal(before.get(path), after.get(path)) and not (path not in before and path.startswith(stores))
    )


def _same(one: Entry | None, other: Entry | None) -> bool:
    """Whether somebody who looks at both sees the same; the time does not count."""
    if one is None or other is None:
        return one is other
    return all(one.get(name) == other.get(name) for name in _LOOKS)


def _equal(one: Entry | None, other: Entry | None) -> bool:
    if not _same(one, other) or one is None or other is None:
        return one is other
    return bool(one["kind"] == "folder" or one["mtime"] == other["mtime"])


def check(store: Store, before: Image, after: Image, now: Image, *, begun: bool) -> None:
    """Refuse to write over what somebody else changed since the step.

    Args:
        store: has the contents.
        before: what was there before the step.
        after: what the step left.
        now: what is there.
        begun: an attempt to restore was cut short, so something may be half done.

    Raises:
        Conflict: with the three values; nothing was written.
    """
    conflicts = []
    paths = touched(before, after)
    goes = {path for path in paths if path not in before or before[path]["kind"] != "folder"}
    for path in paths:
        then, ours, current = before.get(path), after.get(path), now.get(path)
        half_done = begun and (current is None or current["kind"] == "folder")
        if not (_same(current, ours) or _same(current, then) or half_done or _same_index(store, path, ours, current)):
            conflicts.append(path)
        elif current is not None and current["kind"] == "folder" and path in goes:
            conflicts.extend(one for one in now if one.startswith(f"{path}/") and one not in goes)
    conflicts.extend(one for path in paths for one in _lost_parents(path, before, after, now))
    if conflicts:
        names = sorted(set(conflicts))
        shown = {path: [_shown(image.get(path)) for image in (before, after, now)] for path in names[:_SHOWN_MAX]}
        more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
        lines = "; ".join(f"{path}: before {a}, ours {b}, now {c}" for path, (a, b, c) in shown.items())
        raise Conflict(
            f"somebody changed what this step left, so nothing was written back: {lines}{more}",
            before={path: values[0] for path, values in shown.items()},
            ours={path: values[1] for path, values in shown.items()},
            now={path: values[2] for path, values in shown.items()},
        )


def _lost_parents(path: str, before: Image, after: Image, now: Image) -> list[str]:
    parent = str(Path(path).parent)
    needed = path in before and parent in before and _same(before[parent], after.get(parent))
    return [parent] if needed and (parent not in now or now[parent]["kind"] != "folder") else []


def _shown(entry: Entry | None) -> str:
    if entry is None:
        return "absent"
    what = entry.get("target") or (entry["sha"][:12] if "sha" in entry else "")
    return f"{entry['kind']} {entry['mode']:o} {what}".rstrip()


def _same_index(store: Store, path: str, ours: Entry | None, current: Entry | None) -> bool:
    """`git status` of an onlooker rewrites the times in the index: what it says of files is what counts."""
    if not path.endswith("/index") or not (ours and current) or ours["kind"] != "file" or current["kind"] != "file":
        return False
    if not store.blob(ours["sha"]).exists():
        return False
    texts = []
    for index in (str(store.blob(ours["sha"])), path):
        environment = {**os.environ, "GIT_INDEX_FILE": index, "GIT_DIR": str(Path(path).parent)}
        command = ["git", "ls-files", "--stage", "-v", "-z"]
        answer = subprocess.run(command, env=environment, capture_output=True, check=False)  # noqa: S603 - fixed.
        texts.append(answer.stdout if answer.returncode == 0 else None)
    return texts[0] is not None and texts[0] == texts[1]


def write(store: Store, before: Image, now: Image, paths: Iterable[str]) -> None:
    """Make some paths what they were. May be cut short and run again."""
    loosened: set[str] = set()
    wanted = list(paths)
    for path in reversed(wanted):  # Deepest first.
        if path in now and (path not in before or before[path]["kind"] != now[path]["kind"]):
            _loosen(path, before, loosened)
            os.rmdir(path) if now[path]["kind"] == "folder" else os.unlink(path)  # noqa: PTH106, PTH108 - as everywhere here, names need not be UTF-8.
    for path in wanted:
        entry = before.get(path)
        if entry is None:
            continue
        _loosen(path, before, loosened)
        if entry["kind"] == "folder":
            if not os.path.isdir(path):  # noqa: PTH112
                os.mkdir(path, 0o700)  # noqa: PTH102
            loosened.add(path)
        elif entry["kind"] != "special":
            _put(store, path, before, now)
    parents = {str(Path(path).parent) for path in wanted}
    for path in sorted((loosened | parents) & before.keys(), reverse=True):
        if os.path.isdir(path):  # noqa: PTH112
            _dress(path, before[path])
            _sync(path)


def _loosen(path: str, before: Image, loosened: set[str]) -> None:
    """A folder that may not be written to is made writable for as long as it takes."""
    parent = str(Path(path).parent)
    if parent in before and parent not in loosened and os.path.isdir(parent):  # noqa: PTH112
        os.chmod(parent, before[parent]["mode"] | 0o700)  # noqa: PTH101
        loosened.add(parent)


def _put(store: Store, path: str, before: Image, now: Image) -> None:
    entry = before[path]
    twins = [one for one, other in before.items() if other.get("same") == entry.get("same")] if "same" in entry else []
    if twins and entry["links"] > len(twins) and now.get(path, {}).get("same") == entry["same"]:
        _fill(store, path, entry)  # It has names outside of the roots: a new file would part them from this one.
        return
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)[:100]}{TEMPORARY}")  # noqa: PTH118, PTH119, PTH120
    with suppress(FileNotFoundError):
        os.unlink(temporary)  # noqa: PTH108
    twin = next((one for one in twins if one != path and _is_ready(one, before, now, path)), None)
    if twin is not None:
        os.link(twin, temporary)
    elif entry["kind"] == "link":
        os.symlink(entry["target"], temporary)  # noqa: PTH211
    elif entry["kind"] == "pipe":
        os.mkfifo(temporary)
    else:
        _fill(store, temporary, entry)
    if twin is None:
        _dress(temporary, entry)
    os.replace(temporary, path)  # noqa: PTH105
    with suppress(FileNotFoundError):
        os.unlink(temporary)  # noqa: PTH108 - a rename of one name of a file on to another of its names does nothing.


def _is_ready(twin: str, before: Image, now: Image, path: str) -> bool:
    """Another name of the same file is right already: it was left alone, or was written before this one."""
    return _equal(before[twin], now.get(twin)) or twin < path


def _fill(store: Store, path: str, entry: Entry) -> None:
    with store.blob(entry["sha"]).open("rb") as source, open(path, "r+b" if os.path.exists(path) else "wb") as target:  # noqa: PTH110, PTH123
        while chunk := source.read(1 << 20):
            target.write(chunk)
        target.truncate()
        target.flush()
        os.fsync(target.fileno())
    _dress(path, entry)


def _dress(path: str, entry: Entry) -> None:
    """Owner, mode, attributes, and the time last."""
    found = os.lstat(path)
    if [found.st_uid, found.st_gid] != entry["owner"]:
        os.chown(path, *entry["owner"], follow_symlinks=False)
    if entry["kind"] != "link":
        os.chmod(path, entry["mode"])  # noqa: PTH101
    wanted: dict[str, Any] = entry.get("attributes", {})
    with suppress(OSError):
        for name in set(os.listxattr(path, follow_symlinks=False)) - wanted.keys():
            os.removexattr(path, name, follow_symlinks=False)
    for name, value in wanted.items():
        os.setxattr(path, name, bytes.fromhex(value), follow_symlinks=False)
    os.utime(path, ns=(found.st_atime_ns, entry["mtime"]), follow_symlinks=False)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
