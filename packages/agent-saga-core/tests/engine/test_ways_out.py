"""Every way out of a scope: who leaves, with what note, and what is true then."""

import asyncio
import contextvars
import gc
import threading

import pytest
from engine_world import Lost, names, tool, unmake

from agent_saga import SagaRolledBack, SagaSuspended
from agent_saga.errors import SagaClosed


class Frozen(Exception):
    """An exception that refuses attributes."""

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


OUT = [
    Lost("x"),
    Frozen("x"),
    Mute(),
    ValueError("lone \ud800 surrogate"),
    LookupError("x" * 1_000_000),
    StopIteration(),
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
    asyncio.CancelledError(),
    ExceptionGroup("g", [Lost("x"), ValueError("y")]),
    BaseExceptionGroup("g", [KeyboardInterrupt()]),
]


@pytest.mark.parametrize("error", OUT, ids=lambda error: type(error).__name__)
def test_what_leaves_a_scope_leaves_as_itself(kit, world, error):
    """The original goes on, with a note where it takes one, and the effects are compensated."""
    make = tool(kit)
    with pytest.raises(BaseException) as caught, kit.transaction("s") as saga:
        make("a")
        raise error
    assert caught.value is error
    assert saga.report.clean
    assert world.standing == {}
    if not isinstance(error, Frozen):
        assert any(saga.id in note for note in error.__notes__)


@pytest.mark.parametrize(
    "error",
    [e for e in OUT if not isinstance(e, StopIteration | GeneratorExit)],
    ids=lambda error: type(error).__name__,
)
def test_what_leaves_an_async_scope_leaves_as_itself(mem, world, error):
    """The same under `async with`, but for what asyncio itself turns into something else."""
    make = tool(mem)

    async def main():
        with pytest.raises(BaseException) as caught:
            async with mem.transaction("s") as saga:
                make("a")
                raise error
        return caught.value, saga

    async def inside():
        task = asyncio.ensure_future(main())
        return await task

    value, saga = asyncio.run(inside())
    assert value is error
    assert saga.report.clean
    assert world.standing == {}


def test_a_tool_may_raise_stop_iteration(kit, world):
    """Passing through generators does not turn it into a RuntimeError."""
    make = tool(kit)
    world.script["before", "a"] = [StopIteration()]
    with kit.transaction("s"), pytest.raises(StopIteration):
        make("a")


def test_closing_a_generator_that_holds_a_scope_rolls_back(kit, world):
    """GeneratorExit leaves through the scope."""
    make = tool(kit)
    seen = []

    def program():
        with kit.transaction("s") as saga:
            seen.append(saga)
            make("a")
            yield

    running = program()
    next(running)
    running.close()
    assert seen[0].report.clean
    assert world.standing == {}


def test_a_coroutine_that_is_closed_rolls_back_on_the_engines_thread(kit, world):
    """Nothing may be awaited then: `__aexit__` returns at once, and the report comes when the rollback has ended."""
    make = tool(kit)
    seen = []
    done = threading.Event()

    async def program():
        async with kit.transaction("s") as saga:
            seen.append(saga)
            make("a")
            await Never()

    world.do, original = (lambda thing, key=None: original(thing, key)), world.do
    undo = world.undo

    def watched(thing, key=None):
        result = undo(thing, key)
        done.set()
        return result

    world.undo = watched
    try:
        coroutine = program()
        coroutine.send(None)
        coroutine.close()
        assert done.wait(10)
    finally:
        del world.undo, world.do
    assert world.standing == {}


class Never:
    def __await__(self):
        yield


def test_cancellation_rolls_back_shielded_and_goes_on(kit, world):
    """The rollback is finished although the caller is cancelled again and again meanwhile."""
    make = tool(kit)

    async def program(ready):
        async with kit.transaction("s") as saga:
            sagas.append(saga)
            for thing in "abc":
                make(thing)
            ready.set()
            await asyncio.Event().wait()

    async def main():
        ready = asyncio.Event()
        task = asyncio.create_task(program(ready))
        await ready.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()

    sagas = []
    asyncio.run(main())
    assert sagas[0].report.clean
    assert world.standing == {}


def test_a_saga_left_in_another_context_ends_all_the_same(kit, world):
    """Entered here, left there: committed, and neither context keeps the saga."""
    from agent_saga import current_saga

    make = tool(kit)
    scope = kit.transaction("s")
    other = contextvars.copy_context()
    saga = scope.__enter__()
    make("a")
    other.run(scope.__exit__, None, None, None)
    assert saga.report.outcome == "committed"
    with pytest.raises(SagaClosed, match="committed"):
        make("b")
    saga_here = current_saga()
    assert saga_here is saga  # This context cannot know; the saga itself refuses.
    assert world.standing == {"a": 1}
    from agent_saga.runtime.current import current_saga_var

    current_saga_var.set(None)


def test_a_lost_scope_is_abandoned_and_recovered(mem, world):
    """Its object is collected without having been left: said, released, and rolled back by a later owner."""
    from engine_world import successor

    from agent_saga.runtime.ops import drive
    from agent_saga.runtime.recover import sweep

    make = tool(mem)
    context = contextvars.copy_context()

    def lose():
        scope = mem.transaction("s")
        saga = scope.__enter__()
        make("a")
        return saga.id

    with pytest.warns(ResourceWarning, match="lost"):
        saga_id = context.run(lose)
        gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("Thread-"):
            thread.join(10)
    store = mem.writer().store
    assert store.row(saga_id).row.state == "abandoned"
    (done,) = drive(sweep(successor(mem).writer()))
    assert done.report.clean
    assert world.standing == {}


def test_a_request_to_roll_back_ends_without_an_exception(kit, world):
    """`saga.roll_back` refuses further steps, compensates, and the program goes on."""
    make = tool(kit)
    with kit.transaction("s") as saga:
        make("a")
        saga.roll_back("changed my mind")
        with pytest.raises(SagaClosed):
            make("b")
    assert (saga.report.clean, saga.report.cause) == (True, "changed my mind")
    assert world.standing == {}


def test_a_suspension_in_a_group_suspends(kit, world):
    """A task group wraps what left its tasks; nothing but suspensions is a suspension."""
    make = tool(kit)
    with pytest.raises(BaseExceptionGroup), kit.transaction("s", key="k") as saga:
        make("a")
        raise BaseExceptionGroup("g", [SagaSuspended("wait"), SagaSuspended("wait too")])
    assert saga.report.outcome == "suspended"
    assert names(saga.report.kept) == ["a"]


def test_sync_scopes_run_async_compensators(kit, world):
    """Outside a running loop they run on a loop of ours."""
    from engine_world import aunmake

    make = tool(kit, compensate=aunmake.bind(thing="kwargs.thing"))
    with pytest.raises(Lost), kit.transaction("s") as saga:
        make("a")
        raise Lost
    assert saga.report.clean


def test_async_work_is_refused_in_a_sync_scope_inside_a_loop(mem, world):
    """Neither an async tool nor one whose compensator is async runs there."""
    from engine_world import amake, aunmake

    from agent_saga.errors import UsageError

    late = tool(mem, compensate=aunmake.bind(thing="kwargs.thing"))
    slow = tool(mem, amake, compensate=unmake.bind(thing="kwargs.thing"))

    async def main():
        with mem.transaction("s"):
            with pytest.raises(UsageError, match="async with"):
                late("a")
            with pytest.raises(UsageError, match="async with"):
                await slow("b")

    asyncio.run(main())
    assert world.attempts == []


def test_a_deadline_abandons_the_saga(mem, world):
    """After it no step starts, and the scope says what became of the saga."""
    make = tool(mem)
    passed = threading.Event()
    with pytest.raises(SagaClosed, match="abandoned"), mem.transaction("s", deadline_s=0.02) as saga:
        make("a")
        while saga.live.view.state.value == "open":
            passed.wait(0.005)
        make("b")
    assert world.standing == {"a": 1}


def test_a_normal_exit_with_what_cannot_be_settled_rolls_back_and_says_so(kit, world):
    """In doubt at a normal exit: rolled back, and the error names the step."""
    make = tool(kit)
    world.script["after", "b"] = [TimeoutError()]
    with pytest.raises(SagaRolledBack, match="in doubt") as caught, kit.transaction("s"):
        make("a")
        with pytest.raises(TimeoutError):
            make("b")
    assert names(caught.value.report.in_doubt) == ["b"]
    assert world.standing == {"b": 1}
