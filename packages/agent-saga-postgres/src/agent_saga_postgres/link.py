"""One connection to the server: every answer has a deadline, and a connection that is lost says so and nothing else.

Psycopg connects; statements go through its `pq` layer (libpq itself), because an append must not wait for ever on a
network that swallows packets, and because a round trip then costs 10 us instead of 25.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from agent_saga_postgres.target import Target, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Value = str | bytes | int | float | bool | None
Rows = list[tuple[Any, ...]]
Result = TypeVar("Result")

_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
"""SQLSTATEs after which a connection is of no use: connection exceptions, shutdowns, time-outs of an idle session."""
_OPTIONS: Final = {
    "application_name": "agent-saga",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
_BOOL, _BYTEA, _INT8, _INT2, _INT4, _JSONB = 16, 17, 20, 21, 23, 3802
_MANY: Final = 100


class Gone(Exception):
    """The connection was lost, or no answer came in time: what the statement did, if anything, is not known."""


class Refused(Exception):
    """The server refused a statement, and did nothing.

    Attributes:
        sqlstate: five characters.
    """

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{message} (SQLSTATE {sqlstate})")
        self.sqlstate = sqlstate


class Link:
    """A connection. Not thread-safe: its user lets one thread in at a time."""

    def __init__(self, target: Target, *, answer_s: float | None = None) -> None:
        self._target = target
        self._answer_s = target.wait_s if answer_s is None else answer_s
        self._prepared: dict[str, bytes] = {}
        options = {**_OPTIONS, "tcp_user_timeout": str(int(self._answer_s * 1000)), **target.conninfo}
        try:
            self._connection = psycopg.connect(make_conninfo("", **options), autocommit=True)
        except psycopg.Error as error:
            raise Gone(_told(error, target)) from None  # The error of psycopg may hold what we connected with.
        self._pg = self._connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self.open = True
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        milliseconds = max(int(self._answer_s * 1000), 1)
        self.run(
            "SELECT set_config('search_path', quote_ident($1) || ', pg_catalog, pg_temp', false), "
            "set_config('default_transaction_isolation', 'read committed', false), "
            "set_config('statement_timeout', $2, false), set_config('lock_timeout', $2, false), "
            "set_config('idle_in_transaction_session_timeout', $2, false), set_config('jit', 'off', false), "
            "set_config('client_min_messages', 'warning', false), set_config('bytea_output', 'hex', false)",
            self._target.schema,
            str(milliseconds),
        )

    @property
    def fileno(self) -> int:
        """The socket."""
        return self._pg.socket

    def run(self, sql: str, *values: Value) -> Rows:
        """Run one statement in a transaction of its own (or in the one that is open), and return its rows.

        Raises:
            Gone: the connection was lost, or no answer came in time; it is closed.
            Refused: the server refused it.
        """
        with self._closing():
            name = self._prepared.get(sql) or self._prepare(sql)
            self._pg.send_query_prepared(name, [_parameter(value) for value in values], None, 1)
            return _rows(self._answer())

    def run_script(self, sql: str) -> None:
        """Run statements without parameters. See `run`."""
        with self._closing():
            self._pg.send_query(sql.encode())
            self._answer()

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        """Close the connection when its state is not known afterwards."""
        try:
            yield
        except psycopg.Error as error:
            raise self._lost(_told(error, self._target)) from None
        except (Gone, Refused):
            raise
        except BaseException:  # Interrupted while the answer was on its way: the next one would be taken for it.
            self.close()
            raise

    def _prepare(self, sql: str) -> bytes:
        if len(self._prepared) >= _MANY:  # Statements that are built on the way; none of ours is.
            self._prepared.clear()
        name = f"s{len(self._prepared)}_{time.monotonic_ns()}".encode()
        self._pg.send_prepare(name, sql.encode())
        self._answer()
        self._prepared[sql] = name
        return name

    def _answer(self) -> Any:
        """Wait for all results of what was sent, and return the last one."""
        pg, until, found = self._pg, time.monotonic() + self._answer_s, None
        self._flush(until)
        while True:
            while pg.is_busy():
                self._wait(until)
                pg.consume_input()
            result = pg.get_result()
            if result is None:
                break
            if found is None or found.status != pq.ExecStatus.FATAL_ERROR:
                found = result
        if found is None:
            raise self._lost("the server ended the connection")
        if found.status == pq.ExecStatus.FATAL_ERROR:
            self._refuse(found)
        return found

    def _flush(self, until: float) -> None:
        """Send what is queued; a large statement needs several writes, and the server may speak in between."""
        pg = self._pg
        while pg.flush():
            self._poll.modify(pg.socket, select.POLLIN | select.POLLOUT)
            try:
                self._wait(until)
            finally:
                self._poll.modify(pg.socket, select.POLLIN)
            pg.consume_input()

    def _wait(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0 or not self._poll.poll(left * 1000):
            raise self._lost(f"no answer came for {self._answer_s:g} s")

    def _refuse(self, result: Any) -> None:
        sqlstate = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        primary = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
        message = without_secrets(primary or "no reason was given", self._target)
        if not sqlstate or sqlstate.startswith(_LOST):
            raise self._lost(message)
        raise Refused(sqlstate, message)

    def _lost(self, why: str) -> Gone:
        self.close()
        return Gone(why)

    def notified(self) -> set[str]:
        """Return what the server has notified us of since the last call; reads what has arrived, and does not wait.

        Raises:
            Gone: the connection was lost.
        """
        try:
            self._pg.consume_input()
            heard = set[str]()
            while (notice := self._pg.notifies()) is not None:
                heard.add(notice.extra.decode())
        except psycopg.Error as error:
            raise self._lost(_told(error, self._target)) from None
        if self._pg.status != pq.ConnStatus.OK:
            raise self._lost("the server ended the connection")
        return heard

    def close(self) -> None:
        """Close it, whatever its state."""
        if self.open:
            self.open = False
            self._connection.close()


class Server:
    """The server of one log, as one process knows it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.reached = False

    def connect(self, *, answer_s: float | None = None) -> Link:
        """Return a new connection.

        Raises:
            Gone: there is none to be had now.
        """
        link = Link(self.target, answer_s=answer_s)
        self.reached = True
        return link

    def patiently(self, act: Callable[[], Result]) -> Result:
        """Do something that may be done twice, and do it again while the server is gone, for `wait_s`.

        A server that was never reached is not waited for: its address is wrong, or it is down.

        Raises:
            Gone: it did not come back in time.
            Refused: it refused.
        """
        until: float | None = None
        while True:
            try:
                return act()
            except Gone:
                now = time.monotonic()
                until = now + self.target.wait_s if until is None else until
                if now >= until or not self.reached:
                    raise
                pause(until)


class Reader:
    """Reads of one thread at a time, over a connection that comes back when it was lost."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._link: Link | None = None

    def run(self, sql: str, *values: Value) -> Rows:
        """Return the rows of a statement that changes nothing, so that it may run twice.

        Raises:
            Gone: the server did not come back in time.
            Refused: it refused.
        """
        with self._lock:
            return self._server.patiently(lambda: self._linked().run(sql, *values))

    def _linked(self) -> Link:
        if self._link is None or not self._link.open:
            self._link = self._server.connect()
        return self._link

    def close(self) -> None:
        """Close the connection; the next read opens another one."""
        with self._lock:
            if self._link is not None:
                self._link.close()
                self._link = None

    def inherited(self) -> object:
        """Return what a forked child must keep referenced, and never close."""
        return self._link


PAUSE_S: Final = 0.05


def pause(until: float) -> None:
    """Wait a little before the next try to connect."""
    time.sleep(max(0.0, min(PAUSE_S, until - time.monotonic())))


def _parameter(value: Value) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value  # JSON, encoded already.
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return str(value).encode()


def _rows(result: Any) -> Rows:
    height = result.ntuples
    if height == 0:
        return []
    loaders = [_LOADERS.get(result.ftype(column), _text) for column in range(result.nfields)]
    return [tuple(_load(load, result.get_value(row, no)) for no, load in enumerate(loaders)) for row in range(height)]


def _load(load: Any, data: bytes | None) -> Any:
    return None if data is None else load(data)


def _text(data: bytes) -> str:
    return bytes(data).decode()


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


_LOADERS: Final = {
    _BOOL: lambda data: data == b"\1",
    _BYTEA: bytes,
    _INT8: _integer,
    _INT4: _integer,
    _INT2: _integer,
    _JSONB: lambda data: data[1:],  # After a byte that says which version of the form it is.
}


def _told(error: BaseException, target: Target) -> str:
    """Return what an error says, on one line and without secrets."""
    return without_secrets(" ".join(str(error).split()) or type(error).__name__, target)
