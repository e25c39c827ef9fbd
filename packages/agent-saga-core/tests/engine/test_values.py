"""Arguments and results of any kind: recording never fails a success, and compensators get equal values everywhere."""

import datetime as dt
import enum
import json
import math
import socket
import threading
import uuid
import zoneinfo
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pytest
from engine_world import Lost, dying, recover, tool

from agent_saga import RollbackIncomplete, compensator
from agent_saga.errors import UsageError
from agent_saga.model.values import decode, encode

SEEN = []


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass(frozen=True)
class Order:
    id: str


class Model:
    """Like pydantic."""

    def __init__(self, name):
        self.name = name

    def model_dump(self):
        return {"name": self.name}


class Moment(dt.datetime):
    """Like pendulum."""


class Pgid(uuid.UUID):
    """Like asyncpg."""


class Proxy:
    """Like an unbound werkzeug LocalProxy."""

    @property
    def __class__(self):
        raise RuntimeError("unbound")


class Spiteful:
    def __getattr__(self, name):
        raise RuntimeError(name)

    def __iter__(self):
        raise RuntimeError("iter")

    def __eq__(self, other):
        raise RuntimeError("eq")

    __hash__ = None


def cyclic():
    items = []
    items.append(items)
    return items


def deep():
    items = []
    for _ in range(100_000):
        items = [items]
    return items


PLAIN = {
    "none": None,
    "text": "é \U0001f600",
    "surrogate": "\ud800",
    "huge": 10**5000,
    "negative": -(1 << 64),
    "float": 0.1,
    "infinite": math.inf,
    "decimal": Decimal("0.10"),
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"x"),
    "uuid": uuid.UUID(int=5),
    "moment": dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC),
    "date": dt.date(2026, 1, 2),
    "time": dt.time(1, 2),
    "span": dt.timedelta(days=-1, microseconds=7),
    "tuple": (1, (2,)),
    "set": {1, 2},
    "frozenset": frozenset({"a"}),
    "nested": {"a": [{"b": {1: (2, {3})}}], "$tag": 1, "\ud800": 2},
    "path": Path("/tmp/x"),
    "zone": dt.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    "named": Point(1, 2),
    "ordered": OrderedDict(a=1),
    "level": Level.HIGH,
    "pendulum": Moment(2026, 1, 1, tzinfo=dt.UTC),
    "asyncpg": Pgid(int=7),
}
ODD = {
    "session": threading.Lock,
    "socket": socket.socket,
    "cyclic": cyclic,
    "deep": deep,
    "big": lambda: "x" * 50_000_000,
    "big inside": lambda: {"a": ["y" * 50_000_000]},
    "wide": lambda: list(range(300_000)),
    "function": lambda: len,
    "proxy": Proxy,
    "spiteful": Spiteful,
    "set of objects": lambda: {Order("o-1")},
    "keys of objects": lambda: {Order("o-1"): 1},
    "enum": lambda: Colour.RED,
    "object": lambda: Order("o-1"),
    "model": lambda: Model("m"),
    "nan": lambda: math.nan,
    "small list": lambda: list(range(3)),
    "huge key": lambda: {10**5000: 1},
}


@compensator("values.forget")
def forget(value):
    SEEN.append(value)


def take(value):
    return {"value": value}


@pytest.fixture(autouse=True)
def nothing_seen():
    SEEN.clear()


@pytest.mark.parametrize("name", PLAIN)
def test_a_compensator_gets_an_equal_value_live(kit, name):
    """From the argument and from the result."""
    make = tool(kit, take, compensate=forget.bind(value="result.value"))
    with pytest.raises(Lost), kit.transaction("s") as saga:
        assert make(PLAIN[name]) == {"value": PLAIN[name]}
        raise Lost
    assert saga.report.clean
    assert [PLAIN[name]] == SEEN
    json.dumps(saga.report.to_dict())
    saga.report.format_text()


@pytest.mark.parametrize("name", PLAIN)
def test_a_compensator_gets_an_equal_value_in_recovery(mem, name):
    """In another process, from the log alone."""
    make = tool(mem, take, compensate=forget.bind(value="kwargs.value"))
    with dying(mem):
        make(PLAIN[name])
    (done,) = recover(mem)
    assert done.report.clean
    assert [PLAIN[name]] == SEEN


@pytest.mark.parametrize("name", ODD)
def test_recording_never_fails_a_success(kit, name):
    """Whatever a tool takes or returns, its caller gets the very result, and the live compensator the very value."""
    value = ODD[name]()
    make = tool(kit, take, compensate=forget.bind(value="result.value"))
    with pytest.raises(Lost), kit.transaction("s") as saga:
        assert make(value)["value"] is value
        raise Lost
    assert saga.report.clean
    assert len(SEEN) == 1
    json.dumps(saga.report.to_dict())
    saga.report.format_text()
    if type(value) is socket.socket:
        value.close()


@pytest.mark.parametrize("name", ["session", "cyclic", "big", "socket"])
def test_what_the_log_does_not_hold_is_left_to_a_human_in_recovery(mem, name):
    """Another process does not compensate with a marker in the place of a value: it says what is missing."""
    value = ODD[name]()
    make = tool(mem, take, compensate=forget.bind(value="kwargs.value"))
    with dying(mem):
        make(value)
    (done,) = recover(mem)
    assert not done.report.clean
    assert SEEN == []
    assert "could not be stored" in done.left[0].reason
    if type(value) is socket.socket:
        value.close()


def test_a_redacted_argument_reaches_the_log_in_no_form(tmp_path):
    """Not as an argument, and not through the compensation that is bound from it; the live compensator gets it."""
    from agent_saga import AgentKit
    from agent_saga.spi import read_records

    kit = AgentKit(tmp_path / "log.db")
    make = kit.wrap(
        lambda value: None,
        name="login",
        effect="compensable",
        compensate=forget.bind(value="kwargs.value"),
        redact=["value"],
    )
    with pytest.raises(Lost), kit.transaction("s"):
        make("s3cret")
        raise Lost
    kit.close()
    assert SEEN == ["s3cret"]
    assert all("s3cret" not in repr(record) for record in read_records(str(tmp_path / "log.db")))
    assert all(b"s3cret" not in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


def test_a_path_that_is_missing_is_an_orphan_at_once(kit):
    """The error names what was wanted and what was there; nothing further runs, and the report is not clean."""
    make = tool(kit, take, compensate=forget.bind(value="result.id"))
    with pytest.raises(RollbackIncomplete) as caught, kit.transaction("s"):
        make(1)
    assert "'result.id' was wanted" in str(caught.value.__cause__)
    assert "'value'" in str(caught.value.__cause__)
    assert len(caught.value.report.orphaned) == 1


@pytest.mark.parametrize("path", ["result.count", "result.items", "result.9", "kwargs.value.upper"])
def test_a_method_is_nothing_that_a_path_leads_to(mem, path):
    """`result.count` of a list is missing, not a bound method."""
    make = tool(mem, lambda value: [1, 2], name="list", compensate=forget.bind(value=path))
    with pytest.raises(RollbackIncomplete) as caught, mem.transaction("s"):
        make("text")
    assert len(caught.value.report.orphaned) == 1
    assert SEEN == []


def test_equal_values_have_equal_canonical_texts():
    """The order of keys, of any kind of keys, does not change the identity of a call."""
    assert encode({"b": 1, "a": 2}).canonical == encode({"a": 2, "b": 1}).canonical
    assert encode({1: "x", (2,): "y"}).canonical == encode({(2,): "y", 1: "x"}).canonical
    assert encode({3, 1, 2}).canonical == encode({2, 3, 1}).canonical


def test_a_marker_stays_a_marker():
    """What was opaque once is not taken for a value when it is recorded again."""
    marker = decode(encode(threading.Lock()).text)
    again = encode(marker)
    assert again.opaque
    assert decode(again.text) == marker


@pytest.mark.parametrize("name", ["", "\ud800", None, 7, "x" * 100_000])
def test_a_saga_name_that_cannot_be_recorded_is_refused(mem, name):
    """Clear, and before anything happens."""
    with pytest.raises(UsageError):
        mem.transaction(name)


@pytest.mark.parametrize("name", ["a/b\\c", "line\nbreak\x00", "n" * 10_000, "-- '; drop"])
def test_any_other_text_names_a_saga(kit, name):
    """Slashes, newlines, and 10,000 characters."""
    make = tool(kit, take, compensate=forget.bind(value="kwargs.value"))
    with kit.transaction(name, key=name, tags=[name]) as saga:
        make(1)
    assert saga.report.outcome == "committed"
    assert saga.name == name
