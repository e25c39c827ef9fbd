"""What is claimed and what is not, from one source."""

from __future__ import annotations

from typing import Any, Final

_TESTS: Final = "packages/agent-saga-connectors/tests"
_CLAIMS: Final = (
    ("image-first", "the pre-image is on disk before a changing command begins", "test_kill.py::test_killed"),
    (
        "tree",
        "a clean rollback leaves files, links, modes and git as they were",
        "test_incidents.py::test_mixed",
    ),
    ("conflict", "what somebody changed since is not overwritten", "test_incidents.py::test_conflict"),
    (
        "refuse",
        "a command that is not understood, or that leaves the roots, does not run",
        "test_refused.py::test_refused",
    ),
    ("lease", "a push is taken back while the remote has what we pushed", "test_push.py::test_somebody_pushed"),
)
_NOT_CLAIMED: Final = (
    "processes, the network, devices, databases: what a command does to them stays",
    "programs of `programs=` and git's hooks: confined by Landlock where the kernel has it, no more",
    "Landlock does not stop chmod, chown, utime or UDP; where the kernel lacks it, only the classification holds",
    "edits by others while a command runs: they count as the command's",
    "edits by others after a kill within a command: they are put back with it, and kept in the store (`displaced`)",
    "times of folders that others use, access times, inode numbers, ACLs that need rights the process lacks",
    "names of a file outside of the roots: they share its content again only while its own name was left alone",
    "objects that git added: they stay in its store, unreferenced; objects that it lost come back",
    "more than `Limits` (50,000 files, 1 GiB for an image): such a call is refused",
    "images are kept until you delete the store: they hold contents, secrets among them, readable to their owner",
)


def guarantees() -> dict[str, Any]:
    """Return what is claimed, each with its test, and what is not, JSON-serialisable."""
    claims = [{"id": name, "text": text, "tests": [f"{_TESTS}/{test}"]} for name, text, test in _CLAIMS]
    return {"claims": claims, "not_claimed": list(_NOT_CLAIMED)}
