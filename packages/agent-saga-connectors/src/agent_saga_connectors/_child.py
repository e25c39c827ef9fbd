"""Runs a program so that a later process can tell whether it still runs, and keeps it from writing elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_saga_connectors import _jail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SHED: Final = ("BASH_", "GIT_", "LD_", "BASHOPTS", "SHELLOPTS", "CDPATH", "GLOBIGNORE", "ENV", "IFS")
_KEPT: Final = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")


END_WAIT_S: Final = 2.0
"""How long a compensation waits for the process of a dead owner's step."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit code (None: it was stopped after its time), and what it printed."""

    exit_code: int | None
    output: str


class StillRunning(RuntimeError):
    """The process of a dead owner's step has not ended, so nothing was compensated yet; a later sweep tries again."""


def run(
    command: Sequence[str],
    folder: Path,
    writable: Sequence[Path] | None,
    scratch: Path,
    note: Callable[[dict[str, Any]], None],
    *,
    timeout_s: float,
) -> Ended:
    """Run a program to its end; `note` is told about its process, durably, before it does anything.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        writable: it may write here and in `scratch` only, without TCP; None to let it do what it wants.
        scratch: its folder for temporary files.
        note: stores what identifies the process.
        timeout_s: then it is stopped, with its process group.
    """
    folders = ["open"] if writable is None else ["confined", *map(str, (*writable, scratch))]
    confined = [sys.executable, "-I", "-S", _jail.__file__, *folders, "--"]
    environment = {
        name: value for name, value in os.environ.items() if name.startswith(_KEPT) or not name.startswith(_SHED)
    } | {"GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "PAGER": "cat", "TMPDIR": str(scratch)}
    with subprocess.Popen(  # noqa: S603 - running commands is what this is for; they were classified before.
        [*confined, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            status = _status(process.pid)
            note({"pid": process.pid, "boot": _boot(), "started": status.started if status else ""})
            output, _ = process.communicate(_jail.GO, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end(process)
            output, _ = process.communicate()
            return Ended(None, output.decode(errors="replace"))
        except BaseException:
            _end(process)
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # What it left behind would write after the image was taken.
        return Ended(process.returncode, output.decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def check_ended(process: dict[str, Any] | None) -> None:
    """Refuse to go on while the process of a step runs; one that has not begun ends by itself, and is waited for.

    Raises:
        StillRunning: it does.
    """
    if process is None or process["boot"] != _boot():
        return
    until = time.monotonic() + END_WAIT_S
    while _runs(process):
        if time.monotonic() > until:
            raise StillRunning(f"process group {process['pid']} of this step still runs; nothing was written back yet")
        time.sleep(0.02)


def _runs(process: dict[str, Any]) -> bool:
    """Tell whether anything of a process group lives; its number may be somebody else's by now."""
    leader = _status(process["pid"])
    if leader is not None and leader.started != process["started"]:
        return False
    members = (_status(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return any(one is not None and one.group == process["pid"] and one.state not in "ZX" for one in members)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


@dataclass(frozen=True, slots=True)
class _Status:
    state: str
    group: int
    started: str


def _status(pid: int) -> _Status | None:
    """Return what the kernel says of a process; None once it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return _Status(fields[0], int(fields[2]), fields[19])
