"""Parallel steps from tasks and threads, other processes, and where the context is lost."""

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from engine_world import WORLD, Lost, look, make, names, tool

from agent_saga import current_saga, current_step
from agent_saga.errors import ForeignSaga, NoSaga, SagaClosed
from agent_saga.runtime import tool as tools


async def apart(thing):
    """A tool that lets others run before and after its effect."""
    await asyncio.sleep(0)
    result = make(thing)
    await asyncio.sleep(0)
    return result


@pytest.mark.parametrize("group", [False, True])
def test_parallel_siblings_with_one_that_fails(kit, world, group):
    """gather or a task group: whatever the siblings had reached is compensated, or named."""
    step = tool(kit, apart)

    async def main():
        async with kit.transaction("s") as saga:
            sagas.append(saga)
            world.script["before", "b"] = [Lost()]
            if group:
                async with asyncio.TaskGroup() as tasks:
                    for thing in "abc":
                        tasks.create_task(step(thing))
            else:
                await asyncio.gather(*(step(thing) for thing in "abc"))

    sagas = []
    with pytest.raises((Lost, ExceptionGroup)):
        asyncio.run(main())
    report = sagas[0].report
    assert set(world.standing) <= set(names(report.left))
    assert report.clean or world.standing


@pytest.mark.parametrize("ticks", range(12))
def test_cancellation_at_every_await(kit, world, ticks):
    """Never a false clean: in doubt, compensated, or nothing happened."""
    step = tool(kit, apart)

    async def program():
        async with kit.transaction("s") as saga:
            sagas.append(saga)
            for thing in "ab":
                await step(thing)

    async def main():
        task = asyncio.create_task(program())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    sagas = []
    asyncio.run(main())
    if not sagas or sagas[0].report is None:
        assert world.standing == {}
        return
    report = sagas[0].report
    assert set(world.standing) <= set(names(report.left + report.kept))
    if report.clean:
        assert world.standing == {}


def test_threads_carry_the_saga_by_bind_and_attach(kit, world):
    """bind may run in several threads at once; attach is for one."""
    step = tool(kit)
    with pytest.raises(Lost), kit.transaction("s") as saga:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(saga.bind(step), [f"t{number}" for number in range(40)]))

        def attached():
            with saga.attach() as same:
                assert (same is saga, current_saga() is saga) == (True, True)
                step("attached")
            assert current_saga() is None

        thread = threading.Thread(target=attached)
        thread.start()
        thread.join(10)
        raise Lost
    assert len(saga.report.compensated) == 41
    assert (saga.report.clean, world.standing) == (True, {})


def test_what_a_bound_function_starts_after_the_saga_is_refused(kit, world):
    """The saga has ended."""
    step = tool(kit)
    with kit.transaction("s") as saga:
        late = saga.bind(step)
    with pytest.raises(SagaClosed):
        late("a")
    assert world.attempts == []


def test_a_tool_that_lost_its_context_warns_once_or_is_refused(kit, world):
    """Effectful: a warning. Irreversible: it does not run. Read-only: nothing."""
    tools._warned.discard("lost")
    lost, mail = tool(kit, name="lost"), kit.wrap(make, name="mail", effect="irreversible")
    see = kit.wrap(look, effect="read_only")
    caught = []

    def outside():
        with pytest.warns(tools.ContextLost):
            lost("a")
        lost("b")
        see("a")
        try:
            mail("c")
        except NoSaga as error:
            caught.append(error)

    with kit.transaction("s"):
        thread = threading.Thread(target=outside)
        thread.start()
        thread.join(10)
    assert len(caught) == 1
    assert world.standing == {"a": 1, "b": 1}


def test_outside_a_saga_a_wrapped_tool_is_the_bare_tool(kit, world):
    """Same result, same exceptions, same nature, no log."""
    import inspect

    step, slow = tool(kit), tool(kit, apart)
    assert (step("a"), asyncio.run(slow("b"))) == ({"id": "a"}, {"id": "b"})
    assert inspect.iscoroutinefunction(slow)
    assert inspect.signature(step) == inspect.signature(make)
    world.script["before", "c"] = [Lost()]
    with pytest.raises(Lost):
        step("c")
    with pytest.raises(TypeError):
        step()
    assert kit.writer().store.tail() == []


def test_a_tool_sees_its_step(kit, world):
    """`current_step()` in any body, in threads of a timeout too; None outside."""
    seen = []

    def body(thing):
        seen.append(current_step())
        return make(thing)

    for options in ({}, {"timeout_s": 30.0}):
        step = tool(kit, body, name=f"body{len(options)}", **options)
        with kit.transaction("s") as saga:
            step("a")
        assert seen[-1].key == f"{saga.id}:1"
    assert current_step() is None


@pytest.mark.serial
def test_after_a_fork_the_saga_is_foreign(kit, world):
    """An effectful call raises, a read-only one runs, a scope is refused, and leaving the scope does nothing."""
    step, see = tool(kit), kit.wrap(look, effect="read_only")
    reader, writer = os.pipe()
    with kit.transaction("s") as saga:
        step("a")
        pid = os.fork()
        if pid == 0:
            told = []
            try:
                for act in (lambda: step("b"), lambda: kit.transaction("inner").__enter__()):
                    try:
                        act()
                    except ForeignSaga:
                        told.append("foreign")
                told.append(str(see("a")))
                os.write(writer, ",".join(told).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        os.close(writer)
        told = os.read(reader, 1000).decode()
        os.close(reader)
        step("c")
    assert told == "foreign,foreign,1"
    assert names(saga.report.kept) == ["a", "c"]


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A test run in the background ignores it.
sys.path.insert(0, {folder!r})
from engine_world import WORLD, tool, unmake
from agent_saga import AgentKit
kit = AgentKit({log!r})
make = tool(kit)
undo = WORLD.undo
def slow(thing, key=None):
    print("undoing", flush=True)
    if {hangs}:
        sys.stdin.readline()
    return undo(thing, key)
WORLD.undo = slow
try:
    with kit.transaction("s") as saga:
        make("a")
        print("ready", flush=True)
        sys.stdin.readline()
except KeyboardInterrupt as error:
    print("left", saga.report.clean if saga.report else None, WORLD.standing, flush=True)
    print(getattr(error, "__notes__", []), flush=True)
"""


@pytest.mark.serial
@pytest.mark.parametrize("twice", [False, True])
def test_ctrl_c_once_rolls_back_and_twice_leaves_it_to_recovery(tmp_path, twice):
    """A real SIGINT: KeyboardInterrupt leaves as itself; the second one stops the rollback, and the log knows."""
    from agent_saga import AgentKit
    from agent_saga.runtime.ops import drive
    from agent_saga.runtime.recover import sweep

    program = PROGRAM.format(folder=str(Path(__file__).parent), log=str(tmp_path / "log.db"), hangs=twice)
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "undoing\n"
    if twice:
        child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    if not twice:
        assert out.startswith("left True {}")
        assert "rolled back, clean" in out
        return
    assert out.startswith("left None {'a': 1}")
    kit = AgentKit(tmp_path / "log.db")
    WORLD.clear()
    (done,) = drive(sweep(kit.writer()))
    kit.close()
    # The attempt that was interrupted has no known outcome, and its compensator may not run again unseen.
    assert names(done.report.in_doubt) == ["a"]
