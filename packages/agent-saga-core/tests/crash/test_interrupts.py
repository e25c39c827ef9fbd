"""Ctrl-C, as a real signal, held back where half a change would be worse than none. Rule ids: I-n."""

import signal
import threading

import pytest

from agent_saga.runtime.interrupts import InterruptsHeld, QuietLock, unwatch_interrupts, watch_interrupts
from agent_saga.runtime.ops import in_thread


@pytest.fixture(autouse=True)
def python_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watch_interrupts("an open saga")
    yield
    unwatch_interrupts("an open saga")
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_block():
    """I-1: what the block does is done whole, then the interrupt comes."""
    done = []
    with pytest.raises(KeyboardInterrupt):
        with InterruptsHeld():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")
        done.append("not this")
    assert done == ["all of it"]


def test_blocks_inside_one_another():
    """I-2: the outermost block delivers."""
    done = []
    with pytest.raises(KeyboardInterrupt), InterruptsHeld():
        with InterruptsHeld():
            signal.raise_signal(signal.SIGINT)
        done.append("after the inner one")
    assert done == ["after the inner one"]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_the_handler_from_before_comes_back(handler):
    """I-3: a program that ignores or handles interrupts itself goes on to do so, during its sagas and afterwards."""
    unwatch_interrupts("an open saga")
    signal.signal(signal.SIGINT, handler)
    watch_interrupts("one")
    watch_interrupts("another")
    with InterruptsHeld():
        signal.raise_signal(signal.SIGINT)
    unwatch_interrupts("one")
    signal.raise_signal(signal.SIGINT)
    unwatch_interrupts("another")
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_handler_set_meanwhile_stays():
    """I-8: what the program sets during a saga is not undone at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unwatch_interrupts("an open saga")
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_error_inside_comes_with_the_interrupt():
    """I-4: the interrupt does not hide what went wrong before it."""
    with pytest.raises(KeyboardInterrupt) as caught, InterruptsHeld():
        signal.raise_signal(signal.SIGINT)
        raise ValueError
    assert isinstance(caught.value.__context__, ValueError)


def test_what_is_done_under_a_quiet_lock_is_done_whole():
    """I-5: the lock of a saga holds interrupts back, also when it is taken again inside."""
    lock, done = QuietLock(), []
    with pytest.raises(KeyboardInterrupt), lock:
        with lock:
            signal.raise_signal(signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
    with lock:
        done.append("free again")


def test_other_threads_only_lock():
    """I-6: a thread that holds the lock does not keep an interrupt from the main one."""
    lock, held, go = QuietLock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            go.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    go.set()
    thread.join()


def test_a_call_that_is_given_up_still_lands():
    """I-7: giving up the wait for a call in a thread does not take its answer's place away."""
    go = threading.Event()
    future = in_thread(lambda: go.wait(10))
    assert not future.cancel()
    go.set()
    assert future.result(10)
