"""A shop whose world is a list: tools that change it, and a compensator that changes it back."""

import contextlib
import threading

from crewai.tools import BaseTool, tool

from agent_saga import Landed, NotLanded, compensator

_open = []


class Shop:
    """What has happened: `events` in order, `standing` what has not been taken back."""

    def __init__(self):
        self.events = []
        self.lock = threading.Lock()
        self.raises = {}

    @contextlib.contextmanager
    def open(self):
        _open.append(self)
        try:
            yield self
        finally:
            _open.remove(self)

    def happened(self, *event):
        with self.lock:
            self.events.append(event)

    @property
    def standing(self):
        gone = [event[1] for event in self.events if event[0] == "refund"]
        return [event[1] for event in self.events if event[0] != "refund" and event[1] not in gone]

    def declare(self, kit):
        back = refund.bind(thing="kwargs.thing")
        for name in ("charge", "acharge", "courier", "boom", "charge_a_card"):
            kit.declare(name, effect="compensable", compensate=back)
        kit.declare("probed", effect="compensable", compensate=back, probe=find)
        kit.declare_read_only("look")

    def may_raise(self, name):
        error = self.raises.get(name)
        if error is not None:
            raise error


def here():
    return _open[-1]


def new(kind, thing):
    """Record an effect and return it as a tool's result."""
    here().happened(kind, thing)
    return {"id": thing}


@compensator("crewai_shop.refund", idempotent=True)
def refund(thing: str) -> None:
    if ("refund", thing) not in here().events:
        here().happened("refund", thing)


def find(key, kwargs):
    thing = kwargs["thing"]
    return Landed({"id": thing}) if ("probed", thing) in here().events else NotLanded()


@tool
def charge(thing: str) -> dict:
    """Charge for a thing."""
    return new("charge", thing)


@tool
async def acharge(thing: str) -> dict:
    """Charge for a thing, later."""
    return new("acharge", thing)


@tool
def boom(thing: str) -> dict:
    """Fail as the test says, before anything has happened; else charge."""
    here().may_raise("boom")
    return new("boom", thing)


@tool
def probed(thing: str) -> dict:
    """Charge, and then fail as the test says."""
    result = new("probed", thing)
    here().may_raise("probed")
    return result


@tool
def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing}: fine"


class Courier(BaseTool):
    """A tool that is a class."""

    name: str = "courier"
    description: str = "Send a thing."

    def _run(self, thing: str) -> dict:
        here().may_raise("courier")
        return new("courier", thing)
