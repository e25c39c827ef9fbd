"""What every command shares: the log's options, opening it, and errors as messages and exit codes."""

from __future__ import annotations

import contextlib
import functools
import shlex
from typing import TYPE_CHECKING, Any, Final

import click

from agent_saga import errors
from agent_saga.cli.terminal import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga.runtime.writer import Writer
    from agent_saga.store.keyring import KeyRing
    from agent_saga.store.port import LogStore

FINE: Final = 0
FINDING: Final = 1
"""Something is left, found or damaged."""
USAGE: Final = 2
NO_LOG: Final = 3
"""The log is missing, or cannot be opened as a log."""


class Session:
    """One run of a command on one log.

    Attributes:
        out: where it writes.
        url: the log, as the user named it.
    """

    def __init__(self, out: Output, url: str, *, allow_fs: bool, key_ring: str | None = None) -> None:
        self.out, self.url, self._allow_fs, self._key_ring = out, url, allow_fs, key_ring
        self.place = ""

    def ring(self) -> KeyRing | None:
        """Return the key ring that `--key-ring`, its variable or ./pyproject.toml names.

        Raises:
            UsageError: it cannot be read.
        """
        from agent_saga.cli.imports import settings

        path = self._key_ring or settings().get("key_ring")
        if path is None:
            return None
        if not isinstance(path, str):
            raise errors.UsageError("[tool.agent-saga] key_ring must be the path of a key ring")
        from agent_saga.store.keyring import KeyRing

        return KeyRing.from_file(path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[LogStore]:
        """Open the log for reading, and print its path.

        Raises:
            StoreError: it is missing, no log, or damaged.
        """
        store = self._open()
        try:
            yield store
        finally:
            store.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Writer]:
        """Open an existing log for recovery or a settlement, and print its path.

        Raises:
            StoreError: it is missing, no log, or damaged.
        """
        from concurrent.futures import ThreadPoolExecutor

        from agent_saga.runtime.writer import Writer

        with ThreadPoolExecutor(1, thread_name_prefix="agent-saga-commit") as executor:
            writer = Writer(self._open(), executor)
            try:
                yield writer
            finally:
                writer.close()

    def _open(self) -> LogStore:
        from agent_saga.store.open import open_log

        if self.url == "memory:":
            raise errors.LogMissing(
                "there is no log at memory: - it dies with its process, so no command can read it; use a path"
            )
        try:
            store = open_log(self.url, create=False, allow_fs=self._allow_fs, ring=self.ring())
        except errors.LogFailed as error:  # Reading it failed (I/O), so there is nothing that can be opened.
            raise errors.LogUnusable(str(error)) from error
        self.place = store.location
        self.out.location(store.location)
        return store

    def command_line(self, *words: str) -> str:
        """Return the exact command that does something next with this log."""
        return shlex.join(["agent-saga", *words, "--log", self.place])


def log_command(*, data: bool = False) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Return a decorator: adds `--log`, `--json` and `--allow-fs`, and turns errors into messages and exit codes.

    The function gets a `Session`, then its own options by name, and returns the exit code.

    Args:
        data: stdout carries data, so the log's path goes to stderr.
    """

    def decorate(fn: Callable[..., int]) -> Callable[..., None]:
        @click.option(
            "--log",
            "--wal",
            "url",
            envvar="AGENT_SAGA_LOG",
            default="./agent-saga.db",
            show_default=True,
            metavar="PATH",
            help="The log (environment: AGENT_SAGA_LOG).",
        )
        @click.option("--json", "as_json", is_flag=True, help="Print one JSON document with a versioned shape.")
        @click.option("--allow-fs", is_flag=True, help="Accept a log on a network or shared file system.")
        @click.option(
            "--key-ring",
            envvar="AGENT_SAGA_KEY_RING",
            metavar="FILE",
            help="The keys of an encrypted log (environment: AGENT_SAGA_KEY_RING).",
        )
        @functools.wraps(fn)
        def run(url: str, *, as_json: bool, allow_fs: bool, key_ring: str | None, **options: Any) -> None:
            out = Output(as_json=as_json, data=data)
            session = Session(out, url, allow_fs=allow_fs, key_ring=key_ring)
            try:
                code = fn(session, **options)
            except errors.SagaError as error:
                code = report_error(out, error)
            click.get_current_context().exit(code)

        return run

    return decorate


def report_error(out: Output, error: errors.SagaError) -> int:
    """Print an error of ours, and return the exit code for it."""
    code = exit_code(error)
    message = str(error)
    if isinstance(error, errors.LogMissing):
        message += "\n  name the log with --log PATH, or in the environment variable AGENT_SAGA_LOG"
    if isinstance(error, errors.CorruptLog):
        message = f"damage: {message}\n  nothing was read past it; keep the files as they are, and look at a copy"
    out.error(message)
    if out.as_json:
        fields: dict[str, Any] = {"code": error.code, "message": str(error)}
        if isinstance(error, errors.CorruptLog):
            fields |= {"saga": error.saga_id, "n": error.n, "reason": error.reason}
        if isinstance(error, errors.KeyUnavailable):
            fields |= {"saga": error.saga_id, "key_id": error.key_id}
        out.document("error/1", {"error": fields, "exit": code})
    return code


def exit_code(error: errors.SagaError) -> int:
    """Return the exit code of an error that ends a command."""
    if isinstance(error, errors.LogMissing | errors.LogUnusable):
        return NO_LOG
    return USAGE if isinstance(error, errors.UsageError) else FINDING
