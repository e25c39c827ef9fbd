"""The public table of section 4: which exceptions leave an effect in doubt."""

import asyncio
import concurrent.futures
import http.client
import multiprocessing
import socket
import ssl
import subprocess
import types
import urllib.error

import httpx
import pytest
import requests
import urllib3
from engine_world import Lost, names, tool

from agent_saga import RollbackIncomplete
from agent_saga.runtime.classify import is_in_doubt

REQUEST = httpx.Request("POST", "http://x")


def status_error(status):
    return httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(status))


def with_attributes(**attributes):
    error = Lost("x")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def raised_from(cause):
    try:
        raise Lost("wrapped") from cause
    except Lost as error:
        return error


def foreign(module, name, *bases):
    """An exception class as a library that is not installed here would have it."""
    return type(name, bases or (Exception,), {"__module__": module})


def refused_by_requests():
    pool = urllib3.connectionpool.HTTPConnectionPool("x")
    reason = urllib3.exceptions.NewConnectionError(pool, "refused")
    return requests.exceptions.ConnectionError(urllib3.exceptions.MaxRetryError(pool, "/", reason))


class Hostile(Exception):
    """Its attributes raise."""

    @property
    def code(self):
        raise RuntimeError("no code")

    @property
    def response(self):
        raise RuntimeError("no response")

    @property
    def reason(self):
        raise RuntimeError("no reason")


IN_DOUBT = {
    "timeout": TimeoutError(),
    "asyncio cancelled": asyncio.CancelledError(),
    "future cancelled": concurrent.futures.CancelledError(),
    "ctrl-c": KeyboardInterrupt(),
    "exit": SystemExit(0),
    "closed": GeneratorExit(),
    "reset": ConnectionResetError(),
    "aborted": ConnectionAbortedError(),
    "broken pipe": BrokenPipeError(),
    "connection": ConnectionError("lost"),
    "end of file": EOFError(),
    "incomplete read": asyncio.IncompleteReadError(b"", 5),
    "subprocess": subprocess.TimeoutExpired("x", 1),
    "broken pool": concurrent.futures.BrokenExecutor(),
    "multiprocessing": multiprocessing.TimeoutError(),
    "remote disconnected": http.client.RemoteDisconnected(),
    "bad status line": http.client.BadStatusLine("x"),
    "incomplete body": http.client.IncompleteRead(b""),
    "ssl eof": ssl.SSLEOFError(),
    "httpx read": httpx.ReadTimeout("x"),
    "httpx write": httpx.WriteError("x"),
    "httpx protocol": httpx.RemoteProtocolError("x"),
    "httpx 500": status_error(500),
    "httpx 503": status_error(503),
    "httpx 409": status_error(409),
    "httpx 408": status_error(408),
    "requests timeout": requests.exceptions.ReadTimeout(),
    "requests connection": requests.exceptions.ConnectionError(),
    "requests chunked": requests.exceptions.ChunkedEncodingError(),
    "urllib 502": urllib.error.HTTPError("u", 502, "m", None, None),
    "urllib reason": urllib.error.URLError(TimeoutError()),
    "urllib3 read": urllib3.exceptions.ReadTimeoutError(None, "u", "m"),
    "urllib3 protocol": urllib3.exceptions.ProtocolError(),
    "status_code 504": with_attributes(status_code=504),
    "http_status 500": with_attributes(http_status=500),
    "response status": with_attributes(response=types.SimpleNamespace(status_code=599)),
    "botocore": with_attributes(response={"ResponseMetadata": {"HTTPStatusCode": 500}}),
    "aiohttp": foreign("aiohttp.client_exceptions", "ClientConnectionError")(),
    "anyio": foreign("anyio", "BrokenResourceError")(),
    "redis": foreign("redis.exceptions", "ConnectionError")(),
    "raised from a timeout": raised_from(httpx.ReadTimeout("x")),
    "raised from twice": raised_from(raised_from(TimeoutError())),
    "a group": ExceptionGroup("g", [ValueError(), ExceptionGroup("h", [TimeoutError()])]),
    "a base exception": foreign("trio", "Cancelled", BaseException)(),
}
NOT = {
    "refused": ConnectionRefusedError(),
    "unknown host": socket.gaierror(),
    "httpx connect": httpx.ConnectError("x"),
    "httpx connect timeout": httpx.ConnectTimeout("x"),
    "httpx pool": httpx.PoolTimeout("x"),
    "httpx 400": status_error(400),
    "httpx 429": status_error(429),
    "requests connect timeout": requests.exceptions.ConnectTimeout(),
    "requests refused": refused_by_requests(),
    "urllib refused": urllib.error.URLError(ConnectionRefusedError()),
    "urllib 404": urllib.error.HTTPError("u", 404, "m", None, None),
    "urllib3 connect": urllib3.exceptions.ConnectTimeoutError(),
    "aiohttp connector": foreign("aiohttp.client_exceptions", "ClientConnectorError", ConnectionError)(),
    "argument": TypeError("missing"),
    "value": ValueError("x"),
    "zero": ZeroDivisionError(),
    "own": Lost("x"),
    "code is a text": with_attributes(code="23505"),
    "status is a bool": with_attributes(status=True),
    "raised from refused": raised_from(ConnectionRefusedError()),
    "a group of both": ExceptionGroup("g", [ValueError(), ConnectionRefusedError()]),
    "hostile": Hostile(),
}


@pytest.mark.parametrize("name", IN_DOUBT)
def test_in_doubt(name):
    """The effect may have happened."""
    assert is_in_doubt(IN_DOUBT[name])


@pytest.mark.parametrize("name", NOT)
def test_nothing_happened(name):
    """By the table, nothing happened."""
    assert not is_in_doubt(NOT[name])


@pytest.mark.parametrize("name", IN_DOUBT)
def test_a_tool_that_raises_it_is_never_clean(mem, world, name):
    """Without a probe the step stays in doubt, and the report says so."""
    make = tool(mem)
    world.script["after", "a"] = [IN_DOUBT[name]]
    with pytest.raises((RollbackIncomplete, type(IN_DOUBT[name]))), mem.transaction("s") as saga:
        make("a")
    assert names(saga.report.in_doubt) == ["a"]
    assert not saga.report.clean


@pytest.mark.parametrize("name", NOT)
def test_a_tool_that_raises_the_rest_is_assumed_absent(mem, world, name):
    """Listed, and never verified."""
    make = tool(mem)
    world.script["before", "a"] = [NOT[name]]
    with pytest.raises(type(NOT[name])), mem.transaction("s") as saga:
        make("a")
    assert names(saga.report.assumed_absent) == ["a"]
    assert saga.report.clean
    assert not saga.report.verified


def test_the_declaration_comes_before_the_table(mem, world):
    """`no_effect_on` and `in_doubt_on` say what the table cannot know, also inside groups."""
    make = tool(mem, no_effect_on=[TimeoutError], in_doubt_on=[KeyError])
    world.script["before", "a"] = [TimeoutError()]
    world.script["before", "b"] = [ExceptionGroup("g", [TimeoutError()])]
    with mem.transaction("s") as saga:
        for thing in "ab":
            with pytest.raises((TimeoutError, ExceptionGroup)):
                make(thing)
    assert saga.report.assumed_absent == ()
    world.script["after", "c"] = [KeyError()]
    world.script["after", "d"] = [ExceptionGroup("g", [KeyError(), ValueError()])]
    with pytest.raises(RollbackIncomplete) as caught, mem.transaction("s"):
        for thing in "cd":
            with pytest.raises((KeyError, ExceptionGroup)):
                make(thing)
    assert names(caught.value.report.in_doubt) == ["c", "d"]
