"""The world of the engine tests: what tools and compensators did, apart from every log. All handlers are here."""

import threading
from contextlib import contextmanager

from agent_saga import ALREADY_DONE, Landed, NotLanded, Unknowable, compensator
from agent_saga.kit import AgentKit
from agent_saga.runtime.current import current_saga_var
from agent_saga.runtime.ops import drive
from agent_saga.runtime.process import _process
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.writer import Writer
from agent_saga.store.memory import MemoryLog


class World:
    """Things that stand, and every attempt to change them, in order."""

    def __init__(self):
        self.lock = threading.RLock()
        self.clear()

    def clear(self):
        with getattr(self, "lock", threading.RLock()):
            self.attempts = []  # (operation, thing, key)
            self.things = {}  # thing -> how often it stands
            self.keys = {}  # key -> how many effects it had
            self.script = {}  # (operation, thing) -> what to raise or return, one for each attempt
            self.answers = {}  # thing -> the probe's answer
            self.verdicts = {}  # thing -> the verifier's answer

    def do(self, thing, key=None):
        with self.lock:
            self.attempts.append(("do", thing, key))
            self.things[thing] = self.things.get(thing, 0) + 1
            if key is not None:
                self.keys[key] = self.keys.get(key, 0) + 1

    def undo(self, thing, key=None):
        with self.lock:
            self.attempts.append(("undo", thing, key))
            step = self.next_of("undo", thing)
            if isinstance(step, BaseException):
                raise step
            if self.things.get(thing, 0) > 0:
                self.things[thing] -= 1
            return step

    def next_of(self, operation, thing):
        queue = self.script.get((operation, thing))
        return queue.pop(0) if queue else None

    def count(self, operation, thing=None):
        return sum(1 for op, what, _ in self.attempts if op == operation and thing in {None, what})

    @property
    def standing(self):
        return {thing: n for thing, n in self.things.items() if n}

    @property
    def order(self):
        return [f"{op} {thing}" for op, thing, _ in self.attempts]


WORLD = World()


class Lost(Exception):
    """An exception of a tool's own."""


def make(thing):
    """A plain tool; scripted failures come after the effect unless they are marked `before`."""
    failure = WORLD.next_of("before", thing)
    if failure is not None:
        raise failure
    WORLD.do(thing)
    failure = WORLD.next_of("after", thing)
    if failure is not None:
        raise failure
    return {"id": thing}


async def amake(thing):
    return make(thing)


def make_keyed(thing, idempotency_key):
    WORLD.do(thing, idempotency_key)
    failure = WORLD.next_of("after", thing)
    if failure is not None:
        raise failure
    return {"id": thing, "key": idempotency_key}


def make_remote(thing, idempotency_key):
    """A remote that honours keys."""
    with WORLD.lock:
        WORLD.attempts.append(("do", thing, idempotency_key))
        if idempotency_key not in WORLD.keys:
            WORLD.keys[idempotency_key] = 1
            WORLD.things[thing] = WORLD.things.get(thing, 0) + 1
    failure = WORLD.next_of("after", thing)
    if failure is not None:
        raise failure
    return {"id": thing, "key": idempotency_key}


def look(thing):
    return WORLD.standing.get(thing, 0)


@compensator("world.unmake")
def unmake(thing):
    return WORLD.undo(thing)


@compensator("world.aunmake")
async def aunmake(thing):
    return WORLD.undo(thing)


@compensator("world.unmake_keyed")
def unmake_keyed(thing, idempotency_key):
    return WORLD.undo(thing, idempotency_key)


@compensator("world.unmake_idempotent", idempotent=True)
def unmake_idempotent(thing):
    return WORLD.undo(thing)


def see(thing):
    answer = WORLD.verdicts.get(thing, WORLD.standing.get(thing, 0) == 0)
    if isinstance(answer, BaseException):
        raise answer
    return answer


@compensator("world.unmake_verified", verify=see)
def unmake_verified(thing):
    return WORLD.undo(thing)


@compensator("world.unmake_sure", verify=see, idempotent=True)
def unmake_sure(thing):
    return WORLD.undo(thing)


@compensator("world.unmake_if_there", safe_if_absent=True, idempotent=True)
def unmake_if_there(thing):
    with WORLD.lock:
        if not WORLD.standing.get(thing):
            WORLD.attempts.append(("undo", thing, None))
            return ALREADY_DONE
        return WORLD.undo(thing)


def probe_world(key, kwargs):
    """Tells the truth, unless the test gave an answer."""
    thing = kwargs["thing"]
    WORLD.attempts.append(("probe", thing, key))
    if thing in WORLD.answers:
        answer = WORLD.answers[thing]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer
    return Landed({"id": thing}) if WORLD.standing.get(thing) else NotLanded()


def cannot_tell(key, kwargs):
    return Unknowable("the remote keeps no records")


UNMAKE = {"effect": "compensable", "compensate": unmake.bind(thing="kwargs.thing")}
PROBED = {**UNMAKE, "probe": probe_world}


def tool(kit, fn=make, **options):
    """Wrap a tool under its own name, with a compensator unless the test says otherwise."""
    return kit.wrap(fn, **{**UNMAKE, **options})


def names(steps):
    """The things that some step reports are about."""
    return sorted(str(step.kwargs.get("thing")) for step in steps)


def successor(kit):
    """A kit in a process that came after the death of the one that owns the memory log of `kit`."""
    old = kit.writer().store
    store = MemoryLog()
    store._state, store._lock = old._state, old._lock
    return on_store(store)


@contextmanager
def dying(kit, name="s", **options):
    """A scope whose process dies at the end of the block: what was committed is there, and nothing more happens."""
    scope = kit.transaction(name, **options)
    saga = scope.__enter__()
    try:
        yield saga
    finally:
        kit.writer().flush()
        scope._saga = None
        current_saga_var.reset(scope._token)
        kit.environment.open_sagas.clear()


def recover(kit):
    """What a later process makes of all sagas."""
    return drive(sweep(successor(kit).writer()))


def on_store(store):
    """A kit on a log of the test's own."""
    kit = AgentKit("memory:")
    made = Writer(store, kit.writer()._executor)
    _process.writers[f"memory:{id(made)}"] = made
    kit._writer = made
    return kit


def guarded(kit, name="make", adapter="test", **declared):
    """Call a declared tool the way an adapter does."""
    from agent_saga import spi

    kit.declare(name, **{**UNMAKE, **declared})

    def call(thing, fn=make, **options):
        return spi.guard(name, {"thing": thing}, lambda kwargs: fn(**kwargs), adapter=adapter, kit=kit, **options)

    return call


class Odd:
    """Odd handlers of single tests."""

    UNKNOWN = Unknowable("not now")
    probe = staticmethod(probe_world)
    gates = None

    @classmethod
    def slow(cls, started, finish):
        cls.gates = (started, finish)
        return unmake_slowly.bind(thing="kwargs.thing")


@compensator("world.unmake_slowly", idempotent=True)
async def unmake_slowly(thing):
    started, finish = Odd.gates
    started.set()
    await finish.wait()
    WORLD.undo(thing)
