"""What a request of the client is: nothing to guard, a write of rows, or a call of another service."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import Any, Final

import httpx

from agent_saga.errors import UsageError

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_STORAGE_READS: Final = ("object/sign/", "object/list/", "object/list-v2/", "object/upload/sign/")
_SESSION: Final = ("token", "logout")


class NotCapturable(UsageError):
    """A write that could not be taken back. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that has an effect.

    Attributes:
        tool: what it calls, without the name of the project (`write`, `rpc.add`, `storage.upload`).
        kwargs: its arguments, as recorded.
        keeps: the fields of the JSON answer that the log may keep; None is all of it.
    """

    tool: str
    kwargs: dict[str, Any]
    keeps: tuple[str, ...] | None = None


def call_of(request: httpx.Request, base: str) -> Call | None:
    """Return what a request calls, or None where it changes nothing.

    Args:
        request: its body is read.
        base: the path of the project's URL, without a slash at its end.
    """
    service, _, rest = request.url.path.removeprefix(base).lstrip("/").partition("/v1/")
    if service == "functions":
        return Call(tool=f"functions.{rest}", kwargs={"method": request.method, "body": _body(request)})
    if request.method in _READS:
        return None
    if service == "rest" and rest.startswith("rpc/"):
        return Call(tool=f"rpc.{rest.removeprefix('rpc/')}", kwargs={"arguments": _body(request)})
    if service == "rest":
        return _write(request, rest)
    if service == "storage":
        return _storage(request, rest)
    if service == "auth":
        return _auth(request, rest)
    return Call(tool=f"http.{request.method}", kwargs={"path": request.url.path})


def _write(request: httpx.Request, table: str) -> Call:
    schema = request.headers.get("content-profile") or "public"
    kwargs = {
        "method": request.method,
        "table": f"{_quoted(schema)}.{_quoted(table)}",
        "query": [list(pair) for pair in request.url.params.multi_items()],
        "prefer": ",".join(request.headers.get_list("prefer")),
        "accept": request.headers.get("accept", ""),
        "body": _body(request),
    }
    return Call(tool="write", kwargs=kwargs)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _body(request: httpx.Request) -> Any:
    content = request.content
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _storage(request: httpx.Request, rest: str) -> Call | None:
    if rest.startswith(_STORAGE_READS):
        if request.method == "POST":
            return None
    elif request.method == "POST" and rest in {"object/move", "object/copy"}:
        return Call(tool=f"storage.{rest.removeprefix('object/')}", kwargs=_places(_body(request)))
    elif request.method == "POST" and rest.startswith("object/") and request.headers.get("x-upsert") != "true":
        bucket, _, path = rest.removeprefix("object/").partition("/")
        content = request.content
        # The content, not the body: that has a boundary of its own each time.
        return Call(
            tool="storage.upload",
            kwargs={"bucket": bucket, "path": path, "bytes": len(content), "call": str(uuid.uuid4())},
        )
    return Call(tool=f"storage.{request.method}", kwargs={"path": rest, "body": _body(request)})


def _places(body: dict[str, Any]) -> dict[str, Any]:
    bucket = body["bucketId"]
    return {
        "bucket": bucket,
        "source": body["sourceKey"],
        "destination": body["destinationKey"],
        "destination_bucket": body.get("destinationBucket") or bucket,
    }


def _auth(request: httpx.Request, rest: str) -> Call | None:
    if rest in _SESSION:
        return None
    # No body: it may hold a password. So two calls are never taken for one.
    kwargs = {"method": request.method, "path": rest, "call": str(uuid.uuid4())}
    if request.method == "POST" and rest == "admin/users":
        return Call(tool="auth.create_user", kwargs=kwargs, keeps=("id",))
    return Call(tool="auth.change", kwargs=kwargs, keeps=())
