"""Makes `.venv`: every package of the workspace, editable, with the tools, in the versions of constraints.txt.

It needs a Python with `venv` and a package index. uv itself comes from there, pinned like the rest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CONSTRAINTS = str(ROOT / "constraints.txt")
PINNED = ("--constraints", CONSTRAINTS, "--build-constraints", CONSTRAINTS)
FOREIGN = ("AGENT_SAGA_", "PYTHONPATH", "VIRTUAL_ENV")  # what a developer's shell may have set

if sys.version_info < (3, 11):  # noqa: UP036 -- here an older Python is met.
    sys.exit(f"agent-saga needs Python 3.11 or later; this is {sys.version.split()[0]}. Try: python3.12 {sys.argv[0]}")


class CommandFailed(Exception):
    """A command ended badly: `code` is None if it did not end by itself."""

    def __init__(self, code: int | None, output: str) -> None:
        super().__init__(output)
        self.code = code
        self.output = output


def run(*command: str | Path, cwd: Path = ROOT, timeout_s: float = 1500) -> str:
    """Returns what the command printed, stdout and stderr as one text.

    Raises:
        CommandFailed: it exited with another code than 0, or was killed after `timeout_s`.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            # Grandchildren, such as the workers of pytest, hold the pipe open: without them gone, the read would hang.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandFailed(None, f"{output}\nKilled after {timeout_s:.0f} s.") from error
            raise
    if process.returncode:
        raise CommandFailed(process.returncode, output)
    return output


def make_environment(*requirements: str, venv: Path = VENV) -> None:
    """Brings `venv` up to date with `requirements`, which are written as for `uv pip install`.

    An environment of another Python is replaced.

    Raises:
        CommandFailed: the index cannot be reached, or this Python lacks `venv` (Debian: python3-venv).
    """
    settings = venv / "pyvenv.cfg"
    wanted = "version = {}.{}.{}\n".format(*sys.version_info)
    if not settings.exists() or wanted not in settings.read_text(encoding="utf-8"):
        run(sys.executable, "-m", "venv", "--clear", venv)
    uv = venv / "bin" / "uv"
    if not uv.exists():
        run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, "uv")
    run(uv, "pip", "install", "--python", venv, *requirements)


def make_or_exit(group: str) -> None:
    """As `make_environment` for a dependency group of the workspace; a failure ends the program with its output."""
    try:
        make_environment(*PINNED, "--group", group)
    except CommandFailed as error:
        sys.exit(f"{error.output}\nThe environment {VENV} could not be made.")


if __name__ == "__main__":
    make_or_exit("dev")
