"""Where a log in PostgreSQL is: its URL, taken apart, with the secrets kept out of everything that people see."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from agent_saga.errors import LogUnusable

SCHEMA: Final = "agent_saga"
LEASE_TTL_S: Final = 15.0
"""How long an owner counts as alive after it was last heard of, by the database's clock."""
WAIT_S: Final = 30.0
"""How long a call waits for an answer, and for a server that is gone to come back, before it fails."""
_SECRET: Final = frozenset({"password", "sslpassword", "passfile", "oauth_client_secret"})
_SECONDS_MAX: Final = 86_400.0
_NAME_BYTES_MAX: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A log's place, and how patient its processes are.

    Attributes:
        conninfo: what libpq connects with; it may hold a password, so it is never shown.
        location: the URL without secrets: what people see, and what another process can be given.
        schema: the schema that holds the log's tables.
        lease_ttl_s: of owners that this process publishes.
        wait_s: the longest wait for an answer, and for a server that is gone to come back.
    """

    conninfo: dict[str, str] = field(repr=False)
    location: str
    schema: str
    lease_ttl_s: float
    wait_s: float


def parse(url: str) -> Target:
    """Return what a URL names.

    The form is libpq's, `postgresql://user@host:port/database?sslmode=verify-full`, with three parameters of our own:
    `schema`, `lease_ttl_s` and `wait_s`.

    Raises:
        LogUnusable: it cannot be read. The message does not repeat it: it may hold a password.
    """
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _unreadable("its parts cannot be told from one another") from None
    own = {name: value for name, value in given if name in {"schema", "lease_ttl_s", "wait_s"}}
    rest = [(name, value) for name, value in given if name not in own]
    try:
        theirs = conninfo_to_dict(_put_together(parts.netloc, parts.path, rest))
        conninfo = {name: str(value) for name, value in theirs.items() if value is not None}
    except psycopg.Error:
        raise _unreadable("libpq does not understand it") from None
    schema = own.get("schema", SCHEMA)
    if not schema or "\0" in schema or len(schema.encode()) > _NAME_BYTES_MAX or schema.startswith("pg_"):
        raise _unreadable("`schema` names no schema")
    host = parts.netloc.rpartition("@")[2]
    user = quote(conninfo["user"]) + "@" if "user" in conninfo else ""
    shown = [(name, value) for name, value in given if name not in _SECRET | {"user"}]
    return Target(
        conninfo=conninfo,
        location=_put_together(user + host, parts.path, shown),
        schema=schema,
        lease_ttl_s=_seconds(own, "lease_ttl_s", LEASE_TTL_S),
        wait_s=_seconds(own, "wait_s", WAIT_S),
    )


def _put_together(place: str, path: str, query: list[tuple[str, str]]) -> str:
    """Return a URL. `urlunsplit` loses the slashes of one without a host, and libpq takes no `+` for a space."""
    asked = urlencode(query, quote_via=quote, safe="/,:")
    return f"postgresql://{place}{path}" + (f"?{asked}" if asked else "")


def without_secrets(text: str, target: Target) -> str:
    """Return a message of a server or a library without the secrets with which we connected."""
    for name in _SECRET & target.conninfo.keys():
        secret = target.conninfo[name]
        for form in {secret, unquote(secret), quote(secret)} - {""}:
            text = text.replace(form, "***")
    return text


def _seconds(own: dict[str, str], name: str, default: float) -> float:
    try:
        seconds = float(own.get(name, default))
    except ValueError:
        raise _unreadable(f"`{name}` must be a number of seconds") from None
    if not (math.isfinite(seconds) and 0 < seconds <= _SECONDS_MAX):
        raise _unreadable(f"`{name}` must be more than 0 and at most {_SECONDS_MAX:.0f} seconds")
    return seconds


def _unreadable(why: str) -> LogUnusable:
    return LogUnusable(
        f"the log's URL cannot be used: {why}. It has the form postgresql://user@host:5432/database (not shown here, "
        "because it may hold a password)"
    )
