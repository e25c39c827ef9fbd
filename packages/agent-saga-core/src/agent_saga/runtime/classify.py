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
        "aiohttp.client_exceptions.ConnectionTimeoutError",
        "botocore.exceptions.ConnectTimeoutError",
        "botocore.exceptions.EndpointConnectionError",
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
        "redis.exceptions.ConnectionError",
        "redis.exceptions.TimeoutError",
        "botocore.exceptions.ReadTimeoutError",
        "botocore.exceptions.ConnectionClosedError",
        "ssl.SSLEOFError",
    }
)
"""The request may have arrived: no answer, or a broken one."""
_IN_DOUBT_STATUS: Final = frozenset({408, 409})
"""Request timeout, and 409-in-flight (which cannot be told from other conflicts)."""
_GRPC_NOT_RUN: Final = frozenset(
    {"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"}
    | {"FAILED_PRECONDITION", "OUT_OF_RANGE", "RESOURCE_EXHAUSTED"}
)
_CHAIN_MAX: Final = 5


def is_in_doubt(error: BaseException) -> bool:
    """Tell whether `error` leaves the effect in doubt by the public table.

    Timeouts, cancellation, `KeyboardInterrupt`, `SystemExit`, connections lost after sending, HTTP 5xx, 408 and
    409-in-flight are in doubt; a connection refused before sending and all other exceptions mean that nothing
    happened. A group is in doubt when one of its members is, and so is what was raised from such an exception, or while
    one was handled.
    """
    for known in _causes(error):
        if isinstance(known, BaseExceptionGroup):
            return any(is_in_doubt(member) for member in known.exceptions)
        reasons = list(_reasons(known))
        names = {name for reason in reasons for name in _names(reason)}
        if names & NOT_SENT_NAMES:
            return False  # What its library wraps (a timeout of the connect, say) is explained by it.
        if any(isinstance(reason, _NOT_SENT_TYPES) for reason in reasons):
            continue
        if any(isinstance(reason, _IN_DOUBT_TYPES) for reason in reasons) or names & IN_DOUBT_NAMES:
            return True
        if not isinstance(known, Exception) or _in_doubt_status(known):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and those that it was raised from, or while they were handled."""
    known: BaseException | None = error
    for _ in range(_CHAIN_MAX):
        if known is None:
            return
        yield known
        known = known.__cause__ or (None if known.__suppress_context__ else known.__context__)


def _names(error: BaseException) -> Iterator[str]:
    for cls in type(error).__mro__:
        yield f"{cls.__module__}.{cls.__qualname__}"
        yield f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}"


def _reasons(error: BaseException, depth: int = 0) -> Iterator[BaseException]:
    """Yield the error, and what it wraps without having sent anything else (`URLError.reason`, `requests`' args)."""
    yield error
    if depth < _CHAIN_MAX:
        for inner in (_get(error, "reason"), *error.args[:1]):
            if isinstance(inner, BaseException) and inner is not error:
                yield from _reasons(inner, depth + 1)


def _in_doubt_status(error: BaseException) -> bool:
    """Look for a status where HTTP libraries keep it, and gRPC its code."""
    response = _get(error, "response")
    for holder in (error, response):
        for name in ("status_code", "status", "http_status", "code"):
            status = _get(holder, name)
            if isinstance(status, int) and not isinstance(status, bool) and 100 <= status < 600:  # noqa: PLR2004
                return status >= 500 or status in _IN_DOUBT_STATUS  # noqa: PLR2004 - HTTP 5xx.
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return isinstance(status, int) and (status >= 500 or status in _IN_DOUBT_STATUS)  # noqa: PLR2004
    if type(error).__module__.startswith("grpc"):
        return _grpc_code(error) not in _GRPC_NOT_RUN
    return False


def _grpc_code(error: BaseException) -> str:
    code = _get(error, "code")
    try:
        return str(_get(code() if callable(code) else code, "name"))
    except Exception:  # noqa: BLE001 - a foreign exception's own method.
        return ""


def _get(holder: object, name: str) -> object:
    """Return an attribute of a foreign object, or None; properties of exceptions may raise anything."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - as said.
        return None
