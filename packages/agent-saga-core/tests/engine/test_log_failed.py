"""A log that fails at its N-th append, before or after the commit: no effect starts, another process finishes."""

import contextlib

import pytest
from engine_world import Lost, on_store, tool, unmake_if_there, unmake_sure

from agent_saga.errors import LogFailed, SagaError
from agent_saga.runtime.ops import drive
from agent_saga.runtime.recover import sweep
from agent_saga.store.memory import MemoryLog


class Failing:
    """A log that passes everything on, until its N-th append fails."""

    def __init__(self, inner, at, *, after):
        self.inner, self.left, self.after = inner, at, after
        self.broken = False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def append(self, items, *, durable):
        self.left -= 1
        if self.left or self.broken:
            if self.broken:
                raise LogFailed("the disk is gone")
            return self.inner.append(items, durable=durable)
        self.broken = True
        if self.after:
            self.inner.append(items, durable=durable)
        raise OSError("no space left on device")


def later(store):
    """A process that comes after the death of the one that wrote to this memory log."""
    fresh = MemoryLog()
    fresh._state, fresh._lock = store._state, store._lock
    return on_store(fresh)


def program(kit, world, *, fails):
    """A saga of three steps, one of them in doubt, with a nested scope."""
    make, sure = tool(kit), tool(kit, name="sure", compensate=unmake_sure.bind(thing="kwargs.thing"))
    there = tool(kit, name="there", compensate=unmake_if_there.bind(thing="kwargs.thing"))
    world.script["after", "c"] = [TimeoutError()]
    with kit.transaction("s") as saga:
        make("a")
        with kit.transaction("inner"):
            sure("b")
        with contextlib.suppress(TimeoutError):
            there("c")
        if fails:
            raise Lost
    return saga


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 16))
def test_a_log_that_fails_anywhere_loses_nothing(world, at, after, fails):
    """The scope says LogFailed, and recovery by another process leaves nothing standing that it does not name."""
    store = MemoryLog()
    kit = on_store(Failing(store, at, after=after))
    saga = None
    try:
        saga = program(kit, world, fails=fails)
    except (SagaError, Lost, TimeoutError) as error:
        failed = error
    else:
        failed = None
    log = kit.writer().store
    if log.broken:
        assert isinstance(failed, LogFailed), failed
        assert failed.retry == "never"
    else:
        assert (saga is None) == fails
    done = drive(sweep(later(store).writer()))
    left = {step.kwargs["thing"] for one in done if one.report for step in one.report.left + one.report.kept}
    if log.broken:
        committed = [row.row.state for row in store.rows(_all()) if row.row.state == "committed"]
        assert set(world.standing) <= (left | {"a", "b"} if committed else left)
    assert all(count <= 1 for count in world.things.values())
    assert world.count("undo", "a") <= 1


def _all():
    from agent_saga.store.port import Query

    return Query()


def test_after_a_failed_commit_no_effect_starts(world):
    """Nor does a compensation run that could not be recorded."""
    kit = on_store(Failing(MemoryLog(), 3, after=False))
    make = tool(kit)
    with pytest.raises(LogFailed), kit.transaction("s"):
        make("a")
        with pytest.raises(LogFailed):
            make("b")
        with pytest.raises(LogFailed):
            make("c")
    assert world.order == ["do a"]


def test_what_left_the_scope_is_not_hidden_by_the_logs_failure(world):
    """An error of the program is the cause of LogFailed; a Ctrl-C leaves as itself."""
    kit = on_store(Failing(MemoryLog(), 3, after=False))
    make = tool(kit)
    with pytest.raises(LogFailed) as caught, kit.transaction("s"):
        make("a")
        raise Lost
    chain, error = [], caught.value
    while error is not None:
        chain.append(type(error))
        error = error.__cause__ or error.__context__
    assert Lost in chain
    kit = on_store(Failing(MemoryLog(), 3, after=False))
    make = tool(kit)
    with pytest.raises(KeyboardInterrupt), kit.transaction("s"):
        make("a")
        raise KeyboardInterrupt
