"""A shop whose world is a list: tools that change it, compensators that change it back, a probe that reads it."""

import contextlib
import threading

from llama_index.core.tools import FunctionTool

from agent_saga import Landed, NotLanded, Refuse, compensator

_open = []


class Shop:
    """What has happened: `events` in order, `standing` what has not been taken back."""

    def __init__(self):
        self.events = []
        self.raises = {}
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def open(self):
        _open.append(self)
        try:
            yield self
        finally:
            _open.remove(self)

    def count(self, kind):
        return sum(event[0] == kind for event in self.events)

    @property
    def standing(self):
        gone = [event[1] for event in self.events if event[0] == "refund"]
        return [event[1] for event in self.events if event[0] != "refund" and event[1] not in gone]

    def declare(self, kit):
        for name in ("charge", "acharge", "boom", "aboom"):
            kit.declare(name, **BACK)
        kit.declare("probed", probe=find_probed, **BACK)
        kit.declare_read_only("look")


def here():
    return _open[-1]


def new(kind, thing):
    """Let an effect happen, and return it as a tool's result."""
    shop = here()
    with shop.lock:
        shop.events.append((kind, thing))
    return {"id": thing}


@compensator("llama_shop.refund", idempotent=True)
def refund(thing: str) -> None:
    if ("refund", thing) not in here().events:
        new("refund", thing)


BACK = {"effect": "compensable", "compensate": refund.bind(thing="result.id")}


def find_probed(key, kwargs):
    thing = kwargs["thing"]
    return Landed({"id": thing}) if ("probed", thing) in here().events else NotLanded()


def _may_raise(name):
    if name in here().raises:
        raise here().raises[name]


def _charge(thing: str) -> dict:
    """Charge for a thing."""
    return new("charge", thing)


async def _acharge(thing: str) -> dict:
    """Charge for a thing, in the loop."""
    return new("acharge", thing)


def _boom(thing: str) -> dict:
    """Fail as the test says, before anything has happened; else charge."""
    _may_raise("boom")
    return new("boom", thing)


async def _aboom(thing: str) -> dict:
    """Fail as the test says, before anything has happened; else charge."""
    _may_raise("aboom")
    return new("aboom", thing)


def _probed(thing: str) -> dict:
    """Charge, and then fail as the test says."""
    result = new("probed", thing)
    _may_raise("probed")
    return result


def _look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing}: fine"


def tool(fn, **options):
    """A function as a tool; the underscore of its name is not part of the tool's."""
    return FunctionTool.from_defaults(fn, **{"name": fn.__name__.removeprefix("_"), **options})


charge, acharge, boom, aboom, probed, look = map(tool, (_charge, _acharge, _boom, _aboom, _probed, _look))


class NoBigOnes:
    """A policy that refuses."""

    def decide(self, call, saga):
        return Refuse("too big")
