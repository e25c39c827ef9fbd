"""Ctrl-C, as a real signal, held back where half a change would be worse than none. Rule ids: I-n."""

import signal

import pytest

from agent_saga.runtime.interrupts import InterruptsHeld


@pytest.fixture(autouse=True)
def python_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_block():
    """I-1: what the block does is done whole, then the interrupt comes; the handler is the one from before."""
    done = []
    with pytest.raises(KeyboardInterrupt):
        with InterruptsHeld():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")
        done.append("not this")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_blocks_inside_one_another():
    """I-2: the outermost block delivers."""
    done = []
    with pytest.raises(KeyboardInterrupt), InterruptsHeld():
        with InterruptsHeld():
            signal.raise_signal(signal.SIGINT)
        done.append("after the inner one")
    assert done == ["after the inner one"]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_other_handlers_stay(handler):
    """I-3: a program that ignores or handles interrupts itself goes on to do so."""
    signal.signal(signal.SIGINT, handler)
    with InterruptsHeld():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_error_inside_comes_with_the_interrupt():
    """I-4: the interrupt does not hide what went wrong before it."""
    with pytest.raises(KeyboardInterrupt) as caught, InterruptsHeld():
        signal.raise_signal(signal.SIGINT)
        raise ValueError
    assert isinstance(caught.value.__context__, ValueError)
