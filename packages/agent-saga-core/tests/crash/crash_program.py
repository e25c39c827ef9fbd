"""The program that is killed: a saga of three steps, its tools and compensators in several kinds, and its recovery."""

import asyncio
import contextlib
import contextvars
import ctypes
import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import crash_mutants
from crash_world import World

from agent_saga import AgentKit, Landed, NotLanded, SagaError, SagaSuspended, Unknowable, compensator, current_step
from agent_saga.errors import ForeignSaga
from agent_saga.runtime.ops import drive
from agent_saga.runtime.process import writer_for
from agent_saga.runtime.recover import sweep
from agent_saga.runtime.verdict import settle_by_hand
from agent_saga.store import sqlite as sqlite  # Loaded late otherwise: in every child again.
from agent_saga.testing import CrashPoints, watch_commits

THINGS = ("flight", "hotel", "car")


class Out:
    """What a process has: its world and its crash points. Set by `run`, after the fork."""

    world: World
    points: CrashPoints
    mood = "up"


class Planned(Exception):
    """The saga is to fail here."""


# -- effects ------------------------------------------------------------------------------------------------------


def _do(thing, *, once):
    key = current_step().key
    Out.world.attempt("do", thing, key)
    Out.points.reach(f"before the effect on {thing}")
    (Out.world.effect_once if once else Out.world.effect)("do", thing, key)
    Out.points.reach(f"after the effect on {thing}")
    return {"thing": thing}


def _undo(thing, key, change):
    Out.world.attempt("undo", thing, key)
    Out.points.reach(f"before the compensation of {thing}")
    change()
    Out.points.reach(f"after the compensation of {thing}")


def probe_by_key(key, kwargs):
    found = Out.world.by_key("do", key)
    return NotLanded() if found is None else Landed({"thing": found[0]})


def probe_with_moods(key, kwargs):
    return probe_by_key(key, kwargs) if Out.mood == "up" else Unknowable("the service is down")


def is_gone(thing):
    return Out.world.standing(thing) == 0


@compensator("crash.keyed")
def undo_keyed(thing: str, idempotency_key: str) -> None:
    _undo(thing, idempotency_key, lambda: Out.world.effect_once("undo", thing, idempotency_key))


@compensator("crash.keyed_verified", verify=is_gone)
def undo_keyed_verified(thing: str, idempotency_key: str) -> None:
    undo_keyed.fn(thing, idempotency_key)


@compensator("crash.idempotent", idempotent=True)
def undo_idempotent(thing: str) -> None:
    _undo(thing, "", lambda: Out.world.undo_if_there(thing, ""))


@compensator("crash.safe", idempotent=True, safe_if_absent=True)
def undo_safe(thing: str) -> None:
    undo_idempotent.fn(thing)


@compensator("crash.plain")
def undo_plain(thing: str) -> None:
    _undo(thing, "", lambda: Out.world.effect("undo", thing, ""))


@compensator("crash.verified", verify=is_gone)
def undo_verified(thing: str) -> None:
    undo_plain.fn(thing)


@compensator("crash.async_keyed")
async def undo_async(thing: str, idempotency_key: str) -> None:
    await asyncio.sleep(0)
    undo_keyed.fn(thing, idempotency_key)


@dataclass(frozen=True)
class Kind:
    """A kind of tool and compensator.

    clean: wherever the process dies, recovery leaves nothing.
    """

    compensate: object
    takes_key: bool = False
    probe: object = None
    clean: bool = False
    settle_s: float = 0.0


KINDS = {
    "keyed": Kind(undo_keyed.bind(thing="result.thing"), takes_key=True, probe=probe_by_key, clean=True),
    "keyed_verified": Kind(
        undo_keyed_verified.bind(thing="result.thing"), takes_key=True, probe=probe_by_key, clean=True
    ),
    "async_keyed": Kind(undo_async.bind(thing="result.thing"), takes_key=True, probe=probe_by_key, clean=True),
    "idempotent": Kind(undo_idempotent.bind(thing="result.thing"), probe=probe_by_key, clean=True),
    "safe": Kind(undo_safe.bind(thing="kwargs.thing"), clean=True),
    "verified": Kind(undo_verified.bind(thing="result.thing"), probe=probe_by_key),
    "key_only": Kind(undo_keyed.bind(thing="result.thing"), takes_key=True),
    "plain": Kind(undo_plain.bind(thing="result.thing")),
    "callable": Kind(lambda call: undo_keyed.with_(thing=call.result["thing"]), takes_key=True),
}


@compensator("crash.failing", idempotent=True)
def undo_failing(thing: str) -> None:
    Out.world.attempt("undo", thing, "")
    raise Planned(thing)


ODD_KINDS = {
    "moody": Kind(undo_idempotent.bind(thing="result.thing"), probe=probe_with_moods),
    "slow": Kind(undo_idempotent.bind(thing="result.thing"), probe=probe_by_key, settle_s=3600.0),
    "failing": Kind(undo_failing.bind(thing="result.thing"), probe=probe_by_key),
}
"""Kinds whose recovery takes more than one sweep; see test_leftovers.py."""


def make_tool(kit, kind_name, *, is_async):
    """Return the tool `book` of a kind."""
    kind = (KINDS | ODD_KINDS)[kind_name]
    options = {"effect": "compensable", "name": f"book.{kind_name}", "compensate": kind.compensate, "probe": kind.probe}
    options["settle_s"] = kind.settle_s
    if is_async:

        async def book(thing: str) -> dict:
            await asyncio.sleep(0)
            return _do(thing, once=False)

        async def book_keyed(thing: str, idempotency_key: str) -> dict:
            await asyncio.sleep(0)
            return _do(thing, once=True)
    else:

        def book(thing: str) -> dict:
            return _do(thing, once=False)

        def book_keyed(thing: str, idempotency_key: str) -> dict:
            return _do(thing, once=True)

    return kit.wrap(book_keyed if kind.takes_key else book, **options)


# -- the saga -----------------------------------------------------------------------------------------------------


def forward(job):
    """Run the saga of three steps; it commits, or fails after the last step and is rolled back."""
    kit = open_kit(job)
    book = make_tool(kit, job["kind"], is_async=job["mode"].startswith("async"))
    scope = kit.transaction("trip", **job.get("options", {}))
    things = [f"{job.get('trip', '')}{thing}" for thing in job.get("things", THINGS)]
    try:
        if job["mode"].startswith("async"):
            asyncio.run(_run_async(scope, book, things, job))
        else:
            _run_sync(kit, scope, book, things, job)
    except (Planned, SagaError, SagaSuspended, KeyboardInterrupt) as error:
        return {"ended": type(error).__name__, "message": str(error)}
    finally:
        kit.close()
    return {"ended": "normally"}


def _end(job):
    if job.get("suspends"):
        raise SagaSuspended("waiting for somebody")
    if job["fails"]:
        raise Planned


def _run_nested(kit, book, things):
    """Run the second step in a scope of its own, which fails and is rolled back alone."""
    flight, hotel, car = things
    book(thing=flight)
    with contextlib.suppress(Planned), kit.transaction("inner"):
        book(thing=hotel)
        raise Planned
    book(thing=car)


def _run_sync(kit, scope, book, things, job):
    with scope as saga:
        if job["mode"] == "nested":
            _run_nested(kit, book, things)
        elif job["mode"] == "threads":
            with ThreadPoolExecutor(len(things)) as pool:
                list(pool.map(saga.bind(lambda thing: book(thing=thing)), things))
        else:
            for thing in things:
                book(thing=thing)
        _end(job)


async def _run_async(scope, book, things, job):
    async with scope:
        if job["mode"] == "async_parallel":
            await asyncio.gather(*(book(thing=thing) for thing in things))
        else:
            for thing in things:
                await book(thing=thing)
        _end(job)


def crowd(job):
    """Run several sagas: in one loop, one after the other, or in threads; every second one fails."""
    kit = open_kit(job)
    mode = job.get("mode", "async")
    book = make_tool(kit, job["kind"], is_async=mode == "async")

    def things(number):
        return [f"{job['trip']}{number}-{thing}" for thing in THINGS]

    async def one(number):
        with contextlib.suppress(Planned):
            scope = kit.transaction(f"trip {number}")
            await _run_async(scope, book, things(number), {"mode": "async", "fails": number % 2 == 1})

    async def everybody():
        await asyncio.gather(*(one(number) for number in range(job["sagas"])))

    def one_sync(number):
        with contextlib.suppress(Planned):
            scope = kit.transaction(f"trip {number}")
            _run_sync(kit, scope, book, things(number), {"mode": "sync", "fails": number % 2 == 1})

    if mode == "async":
        asyncio.run(everybody())
    else:
        with ThreadPoolExecutor(job["sagas"] if mode == "threads" else 1) as pool:
            list(pool.map(one_sync, range(job["sagas"])))
    kit.close()
    return {"ended": "normally"}


def settle(job):
    """Record a human's word, as `agent-saga settle` does."""
    writer = writer_for(job["log"])
    watch_commits(writer, Out.points)
    view = settle_by_hand(
        writer, job["saga"], job["step"], job["verdict"], evidence="seen", by="ann", result=job.get("result")
    )
    writer.close()
    return {"state": view.steps[job["step"]].state.value}


def parent(job):
    """Make a child inside an open saga, in one of several ways, then go on with the saga."""
    kit = open_kit(job)
    book = make_tool(kit, job["kind"], is_async=False)
    with kit.transaction("trip"):
        book(thing="flight")
        child = _CHILDREN[job["child"]](book)
        Path(job["child_pid"]).write_text(str(child))
        Out.points.reach("has a child")
        book(thing="hotel")
    kit.close()
    return {"ended": "normally"}


def _fork(book):
    """Fork; the child finds that the saga is not its own, and waits to be killed."""
    child = os.fork()
    if child == 0:
        try:
            book(thing="car")
        except ForeignSaga:
            signal.pause()
        os._exit(1)
    return child


def _fork_in_c(_book):
    """Fork behind Python's back: no hook runs, and the child keeps every descriptor."""
    libc = ctypes.PyDLL(None)
    child = libc.fork()
    if child == 0:
        libc.pause()
    return child


def _program(_book):
    return os.posix_spawn(sys.executable, [sys.executable, "-c", "import signal; signal.pause()"], os.environ)


_CHILDREN = {"fork": _fork, "fork in C": _fork_in_c, "program": _program}


def recover(job):
    """Sweep the log once, as `agent-saga recover` does; `unloaded` leaves out the probes that come with the tools."""
    kit = AgentKit(log="memory:")
    for kind in [*KINDS, *ODD_KINDS] if not job.get("unloaded") else ():
        make_tool(kit, kind, is_async=False)
    writer = writer_for(job["log"])
    watch_commits(writer, Out.points)
    done = drive(sweep(writer, saga_id=job.get("saga")))
    writer.close()
    return {"sagas": [_recovered(one) for one in done]}


def _recovered(one):
    return {
        "saga": one.saga_id,
        "action": one.action,
        "report": None if one.report is None else one.report.to_dict(),
        "left": [[left.step, left.state, left.human] for left in one.left],
    }


def open_kit(job):
    kit = AgentKit(log=job["log"])
    watch_commits(kit.writer(), Out.points)
    return kit


JOBS = {"forward": forward, "recover": recover, "crowd": crowd, "settle": settle, "parent": parent}


def run(job):
    """Do a job in this fresh process; the result also names the points that it reached."""
    if "mutant" in job:
        getattr(crash_mutants, job["mutant"])()
    Out.world, Out.mood = World(job["world"]), job.get("mood", "up")
    if "stop_at" in job:
        Out.points = CrashPoints(*job["stop_at"], crash=lambda: os.kill(os.getpid(), signal.SIGSTOP))
    else:
        Out.points = CrashPoints(*([job["crash_at"]] if "crash_at" in job else []))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A test run in the background ignores it.
    if "ctrl_c_after_s" in job:
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        sys.unraisablehook = lambda *_: None  # An interrupt anywhere leaves files and loops of others unclosed,
        logging.disable()  # and asyncio says so.
    # SIGALRM kills where nothing handles it.
    signal.setitimer(signal.ITIMER_REAL, job.get("dies_after_s", job.get("ctrl_c_after_s", 0)))
    result = contextvars.Context().run(JOBS[job["do"]], job)
    return {**result, "points": Out.points.reached, "folder": str(Path(job["log"]).parent)}
