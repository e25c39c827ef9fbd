"""A push that can be taken back: what the remote had is known before, and kept from git's own cleaning."""

from __future__ import annotations

import hashlib
import re
import subprocess
from typing import TYPE_CHECKING, Any

from agent_saga import ALREADY_DONE, Conflict
from agent_saga_connectors._commands import CommandRefused

if TYPE_CHECKING:
    from pathlib import Path

Plan = dict[str, Any]


def plan(folder: Path, remote: str, branch: str, *, force: bool, key: str | None) -> Plan:
    """Return what a push is going to do; the commit that the remote loses is kept under `refs/saga/`.

    Raises:
        CommandRefused: it would lose commits and is not forced, or is not understood; nothing was pushed.
    """
    if not re.fullmatch(r"[\w./-]+", branch) or not re.fullmatch(r"[\w.][\w.-]*", remote):
        raise CommandRefused(
            f"refused, nothing was pushed: {remote!r} {branch!r} are no names of a remote and a branch"
        )
    url = _git(folder, "remote", "get-url", "--push", remote)
    found = {"folder": str(folder), "url": url, "ref": f"refs/heads/{branch}"}
    old, new = at_remote(found), _git(folder, "rev-parse", "--verify", f"{found['ref']}^{{commit}}")
    if old and not _has(folder, old):
        _git(folder, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", url, found["ref"])
    if old and key is not None:
        _git(folder, "update-ref", f"refs/saga/{hashlib.sha256(key.encode()).hexdigest()[:32]}", old)
    if old and not force and _git(folder, "merge-base", old, new, needed=False) != old:
        raise CommandRefused(f"refused, nothing was pushed: {branch!r} at {remote!r} has commits that this would drop")
    return {**found, "old": old, "new": new}


def command(found: Plan) -> list[str]:
    """Return the push: it succeeds only while the remote has what the plan saw there."""
    return _lease(found, found["old"], found["new"])


def take_back(found: Plan) -> object:
    """Put the branch back.

    Raises:
        Conflict: the remote has neither what we pushed nor what was there before; nothing was pushed.
    """
    now = at_remote(found)
    if now == found["old"]:
        return ALREADY_DONE
    if now != found["new"]:
        raise Conflict(
            f"somebody pushed {found['ref']} since: before {found['old']!r}, ours {found['new']!r}, now {now!r}",
            before=found["old"],
            ours=found["new"],
            now=now,
        )
    subprocess.run(_lease(found, found["new"], found["old"]), check=True, capture_output=True, timeout=60)  # noqa: S603
    return None


def at_remote(found: Plan) -> str:
    """Return the commit that the remote's branch has, or nothing."""
    return _git(found["folder"], "ls-remote", found["url"], found["ref"]).partition("\t")[0]


def _lease(found: Plan, expected: str, wanted: str) -> list[str]:
    ref, lease = found["ref"], f"--force-with-lease={found['ref']}:{expected}"
    return ["git", "-C", found["folder"], "push", "--quiet", "--no-verify", lease, found["url"], f"{wanted}:{ref}"]


def _has(folder: Path, commit: str) -> bool:
    command = ["git", "-C", str(folder), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - fixed.


def _git(folder: Path | str, *arguments: str, needed: bool = True) -> str:
    command = ["git", "-C", str(folder), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - fixed.
    if needed and answer.returncode:
        raise CommandRefused(f"refused, nothing was pushed: git {arguments[0]}: {answer.stderr.strip()}")
    return answer.stdout.strip()
