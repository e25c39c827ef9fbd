"""The public table of section 4: does an exception mean that nothing happened, or is the effect in doubt?

Exceptions of libraries that agent-saga does not import are known by the names of their classes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


class HandlerStopped(Exception):
    """A handler raised what ends a program or a task; it ends this attempt only, and leaves it in doubt."""


_IN_DOUBT_TYPES: Final = (
    TimeoutError,
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    HandlerStopped,
    EOFError,
    ConnectionError,
    concurrent.futures.BrokenExecutor,
    multiprocessing.TimeoutError,
    subprocess.TimeoutExpired,
)
_NOT_SENT_TYPES: Final = (ConnectionRefusedError,)

NOT_SENT_NAMES: Final = frozenset(
    {
        "socket.gaierror",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.PoolTimeout",
        "httpx.UnsupportedProtocol",
        "httpcore.ConnectError",
        "httpcore.ConnectTimeout",
        "requests.exceptions.ConnectTimeout",
        "requests.exceptions.InvalidURL",
        "urllib3.exceptions.ConnectTimeoutError",
        "urllib3.exceptions.NewConnectionError",
        "aiohttp.client_exceptions.ClientConnectorError",
    }
)
"""The request never left."""
IN_DOUBT_NAMES: Final = frozenset(
    {
        "http.client.IncompleteRead",
        "http.client.BadStatusLine",
        "httpx.TimeoutException",
        "httpx.NetworkError",
        "httpx.RemoteProtocolError",
        "requests.exceptions.Timeout",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.ChunkedEncodingError",
        "urllib3.exceptions.TimeoutError",
        "urllib3.exceptions.ProtocolError",
        "aiohttp.client_exceptions.ClientConnectionError",
        "aiohttp.client_exceptions.ClientPayloadError",
        "anyio.EndOfStream",
        "anyio.BrokenResourceError",
        "anyio.ClosedResourceError",
    }
)
"""The request may have arrived: no answer, or a broken one."""
_IN_FLIGHT_STATUS: Final = 409


def is_in_doubt(error: BaseException) -> bool:
    """Tell whether `error` leaves the effect in doubt by the public table.

    Timeouts, cancellation, `KeyboardInterrupt`, `SystemExit`, connections lost after sending, HTTP 5xx and
    409-in-flight are in doubt; a connection refused before sending and all other exceptions mean that nothing
    happened. A group is in doubt when one of its members is.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(is_in_doubt(member) for member in error.exceptions)
    names = set(_names(error))
    if names & NOT_SENT_NAMES or any(isinstance(reason, _NOT_SENT_TYPES) for reason in _reasons(error)):
        return False
    if isinstance(error, _IN_DOUBT_TYPES) or names & IN_DOUBT_NAMES or not isinstance(error, Exception):
        return True
    status = _http_status(error)
    return status is not None and (status >= 500 or status == _IN_FLIGHT_STATUS)  # noqa: PLR2004 - HTTP 5xx.


def _names(error: BaseException) -> Iterator[str]:
    for cls in type(error).__mro__:
        yield f"{cls.__module__}.{cls.__qualname__}"
        yield f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}"


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and what it wraps without having sent anything else (`URLError.reason`)."""
    yield error
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        yield reason


def _http_status(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "http_status", "code"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and not isinstance(status, bool) and 100 <= status < 600:  # noqa: PLR2004
                return int(status)
    return None
