"""What a release can do to a service, and how each of it is taken back. The world: a git repository, files, processes.

This module knows no framework: `agent-saga recover --import release_tools.py` loads it too. It is the part that the
operator trusts, so a compensation never overwrites what somebody else did since: it raises `Conflict`.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_saga import ALREADY_DONE, AgentKit, Conflict, compensator

REPOSITORY = Path("service")
BRANCH = "refs/heads/main"
kit = AgentKit()  # ./agent-saga.db


class Unhealthy(Exception):
    """The new release does not answer as it should."""


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def here() -> str:
    return f"of-{REPOSITORY.resolve()}"


def set_up() -> None:
    if not REPOSITORY.exists():
        REPOSITORY.mkdir()
        git("init", "-q", "-b", "main")
        git("config", "user.name", "release")
        git("config", "user.email", "release@example.org")
        (REPOSITORY / "settings.ini").write_text("workers = 2\n")
        git("add", ".")
        git("commit", "-q", "-m", "as it was")


def standing() -> dict[str, Any]:
    files = {str(path.relative_to(REPOSITORY)): path.read_text() for path in sorted(REPOSITORY.glob("*.ini"))}
    return {"head": git("rev-parse", "main"), "files": files, "processes": len(running(here()))}


# -- files: a pre-image, and no overwriting of what came after --------------------------------------------------------


def edit_settings(text: str) -> dict[str, str]:
    """Write the service's settings."""
    file = REPOSITORY / "settings.ini"
    before = file.read_text()
    file.write_text(text)
    return {"before": before}


def is_restored(before: str, ours: str) -> bool:  # noqa: ARG001 - a read-back is given what its compensator is.
    return settings() == before


@compensator("release.restore_settings", idempotent=True, verify=is_restored)
def restore_settings(before: str, ours: str) -> object:
    if (now := settings()) == before:
        return ALREADY_DONE
    if now != ours:
        raise Conflict(before=before, ours=ours, now=now)
    (REPOSITORY / "settings.ini").write_text(before)
    return None


def settings() -> str:
    return (REPOSITORY / "settings.ini").read_text()


# -- git: the branch moves back only from the commit that we made -----------------------------------------------------


def commit(message: str) -> dict[str, str]:
    """Commit what has changed."""
    before = git("rev-parse", BRANCH)
    git("commit", "-q", "-a", "-m", message)
    return {"before": before, "ours": git("rev-parse", BRANCH)}


def is_back(before: str, ours: str) -> bool:  # noqa: ARG001 - as above.
    return git("rev-parse", BRANCH) == before


@compensator("release.move_branch_back", idempotent=True, verify=is_back)
def move_branch_back(before: str, ours: str) -> object:
    if (now := git("rev-parse", BRANCH)) == before:
        return ALREADY_DONE
    if now != ours:
        raise Conflict(before=before, ours=ours, now=now)
    git("update-ref", "-m", "release taken back", BRANCH, before, ours)  # Compares and swaps; files stay as they are.
    git("reset", "-q")
    return None


# -- processes: the key is in the command line, so that the process can be found whoever looks ------------------------

WORKER = "import time; time.sleep(600)"


def running(mark: str) -> list[int]:
    # Without -ww a narrow terminal would hide the mark, and a worker that lives would count as stopped.
    listing = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    return [int(pid) for pid, stat, *words in rows if words and mark in words[0] and stat[0] != "Z"]


def start_worker(idempotency_key: str) -> dict[str, int]:
    """Start a worker of the new release."""
    words = [sys.executable, "-c", WORKER, f"worker-of-{idempotency_key}", here()]
    nowhere = subprocess.DEVNULL  # It outlives us, so it must hold none of our pipes.
    process = subprocess.Popen(words, start_new_session=True, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    if DIE_WHEN_STARTED:
        os.kill(os.getpid(), signal.SIGKILL)  # The worker lives, and nobody knows its number.
    return {"pid": process.pid}


DIE_WHEN_STARTED = False


def is_stopped(key: str) -> bool:
    return not running(f"worker-of-{key} ")


@compensator("release.stop_worker", idempotent=True, safe_if_absent=True, verify=is_stopped)
def stop_worker(key: str) -> object:
    found = running(f"worker-of-{key} ")
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None if found else ALREADY_DONE


def stop_all() -> None:
    for pid in running(here()):
        os.kill(pid, signal.SIGKILL)


# -- and a look at it all ---------------------------------------------------------------------------------------------


def check_health() -> str:
    """Tell whether the new release works."""
    if "workers = 0" in settings():
        raise Unhealthy("there are 0 workers")
    return "healthy"


kit.declare(
    "edit_settings",
    effect="reversible",
    compensate=restore_settings.bind(before="result.before", ours="kwargs.text"),
)
kit.declare(
    "commit", effect="compensable", compensate=move_branch_back.bind(before="result.before", ours="result.ours")
)
kit.declare("start_worker", effect="compensable", compensate=stop_worker.bind(key="key"))
kit.declare_read_only("check_health")
