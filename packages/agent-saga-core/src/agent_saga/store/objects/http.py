"""A sink over HTTP: GET, PUT with `If-Match` or `If-None-Match: *`, and a list as JSON.

`objects+https://HOST/PREFIX/` names a log in it. The dialect is in docs/object-stores.md; a worker in front of a bucket
speaks it in a few lines, and the bucket's own client makes another sink in as few.
"""

from __future__ import annotations

import asyncio
import email.utils
import http.client
import os
import queue
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from agent_saga.errors import LogUnusable
from agent_saga.store.objects.log import LEASE_TTL_S, WAIT_S, ObjectLog
from agent_saga.store.objects.sink import Found, SinkLost, SinkRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN: Final = "AGENT_SAGA_OBJECTS_TOKEN"  # noqa: S105 - the name of a variable.
_IDLE_MAX: Final = 8
_BYTES_MAX: Final = 1 << 30
_AGAIN: Final = frozenset({408, 409, 425, 429})
"""Answers that say nothing of what became of a request, beside all from 500 on."""
_PRECONDITION_FAILED: Final = 412
_NOT_FOUND: Final = 404


class HttpSink:
    """See AsyncSink.

    Args:
        url: `http://` or `https://`, host, and the path below which the objects are.
        token: sent as `Authorization: Bearer`; None sends none.
        answer_s: how long one answer is waited for.
    """

    def __init__(self, url: str, *, token: str | None = None, answer_s: float = 10.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            raise LogUnusable(
                "an object store over HTTP is named by http(s)://HOST[:PORT]/PATH, without a user or query"
            )
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + "/"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._answer_s = answer_s
        self.location = f"objects+{parts.scheme}://{parts.netloc}{self._path}"
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()
        self._pid = os.getpid()

    async def read(self, name: str) -> Found | None:
        """See AsyncSink.read. The age is `Date` less `Last-Modified`, so it is the store's own clock that counts."""
        status, headers, data = await self._ask("GET", name)
        if status == _NOT_FOUND:
            return None
        if "etag" not in headers:
            raise SinkRefused(f"the store gave no ETag for {name}")
        return Found(data, headers["etag"], _age_s(headers))

    async def list(self, prefix: str, *, after: str = "") -> list[str]:
        """See AsyncSink.list."""
        _, _, data = await self._ask("GET", "?" + urlencode({"prefix": prefix, "after": after}))
        try:
            return msgspec.json.decode(data, type=list[str])
        except msgspec.MsgspecError as error:
            raise SinkRefused(f"the store's list is no list of names: {error}") from error

    async def put(self, name: str, data: bytes, *, expected: str | None) -> str | None:
        """See AsyncSink.put."""
        condition = {"If-None-Match": "*"} if expected is None else {"If-Match": expected}
        status, headers, _ = await self._ask("PUT", name, data, condition)
        if status in {_PRECONDITION_FAILED, _NOT_FOUND}:  # To `If-Match` of what is not there some say 404.
            return None
        if "etag" not in headers:
            raise SinkLost(f"the store wrote {name} and told no ETag")
        return headers["etag"]

    async def close(self) -> None:
        """See AsyncSink.close."""
        while not self._idle.empty():
            self._idle.get_nowait().close()

    async def _ask(
        self, method: str, rest: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        return await asyncio.to_thread(self._ask_now, method, rest, data, {**self._headers, **(headers or {})})

    def _ask_now(
        self, method: str, rest: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        path = quote(self._path) + (rest if rest.startswith("?") else quote(rest))
        connection = self._taken()
        try:
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            body = answer.read(_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise SinkLost(f"{method} {rest}: {str(error) or type(error).__name__}") from error
        except BaseException:
            connection.close()
            raise
        if answer.will_close or self._idle.qsize() >= _IDLE_MAX:
            connection.close()
        else:
            self._idle.put(connection)
        status = answer.status
        if status in _AGAIN or status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise SinkLost(f"{method} {rest}: the store answered {status}")
        if not http.HTTPStatus.OK <= status < http.HTTPStatus.MULTIPLE_CHOICES and status not in {
            _NOT_FOUND,
            _PRECONDITION_FAILED,
        }:
            raise SinkRefused(f"{method} {rest}: the store answered {status}")
        return status, {key.lower(): value for key, value in answer.getheaders()}, body

    def _taken(self) -> http.client.HTTPConnection:
        if self._pid != os.getpid():  # A connection is its parent's; closing our copy of it tells nobody anything.
            self._idle, self._pid = queue.LifoQueue(), os.getpid()
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            return kind(self._host, self._port, timeout=self._answer_s)


def open_log(url: str, *, create: bool) -> ObjectLog:
    """Return the log that an `objects+http(s)://` URL names.

    Args:
        url: the place, and `lease_ttl_s` and `wait_s` as parameters. The token is in `AGENT_SAGA_OBJECTS_TOKEN`.
        create: see `store.open.open_log`.

    Raises:
        LogMissing: `create` is false and there is no log.
        LogUnusable: the URL or the store cannot be used.
    """
    place, _, query = url.removeprefix("objects+").partition("?")
    options = dict(parse_qsl(query))
    try:
        lease_ttl_s, wait_s = (float(options.pop(name, value)) for name, value in _DEFAULTS.items())
    except ValueError as error:
        raise LogUnusable(f"lease_ttl_s and wait_s are seconds: {error}") from error
    if options or not (lease_ttl_s > 0 and wait_s > 0):
        raise LogUnusable("the URL of a log in an object store takes lease_ttl_s and wait_s, more than 0, and no more")
    sink = HttpSink(place, token=os.environ.get(TOKEN), answer_s=min(wait_s, 10.0))
    log = ObjectLog(sink, create=create, lease_ttl_s=lease_ttl_s, wait_s=wait_s)
    if not create:
        try:
            log.open_now()
        except BaseException:
            log.close()
            raise
    return log


_DEFAULTS: Final = {"lease_ttl_s": LEASE_TTL_S, "wait_s": WAIT_S}


def _age_s(headers: Mapping[str, str]) -> float | None:
    try:
        now = email.utils.parsedate_to_datetime(headers["date"])
        then = email.utils.parsedate_to_datetime(headers["last-modified"])
    except (KeyError, ValueError):
        return None
    return (now - then).total_seconds()
