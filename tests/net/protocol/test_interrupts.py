"""Deferred interrupts: Ctrl-C is raised where the main thread waits, or at the end."""

import signal
import threading

import pytest

from jflow.net.protocol.interrupts import deferred_interrupts


def _interrupt():
    signal.raise_signal(signal.SIGINT)


def _block(*steps):
    """Does this in a block, with its interrupts."""
    with deferred_interrupts() as interrupts:
        for step in steps:
            step(interrupts)


@pytest.fixture(autouse=True)
def _leaves_the_handler():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_is_raised_at_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt):
        _block(lambda _: _interrupt(), lambda _: done.append(1))
    assert done == [1]


def test_an_interrupt_is_raised_at_once_where_the_thread_waits():
    done = []
    with pytest.raises(KeyboardInterrupt):
        _block(lambda interrupts: interrupts.waiting(_interrupt), lambda _: done.append(1))
    assert done == []


def test_one_that_came_before_is_raised_before_the_thread_waits():
    done = []
    with pytest.raises(KeyboardInterrupt):
        _block(lambda _: _interrupt(), lambda interrupts: interrupts.waiting(done.append, 1))
    assert done == []


def test_what_is_raised_once_is_not_raised_again():
    with deferred_interrupts() as interrupts:
        _interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupts.waiting(lambda: None)
        assert interrupts.waiting(lambda: 3) == 3


def test_a_block_inside_another_one_defers_to_the_end_of_that():
    done = []
    with pytest.raises(KeyboardInterrupt):
        _block(lambda _: _block(lambda _: _interrupt()), lambda _: done.append("inner"))
    assert done == ["inner"]


def test_a_block_inside_another_one_waits_as_that_does():
    with deferred_interrupts(), deferred_interrupts() as inner, pytest.raises(KeyboardInterrupt):
        inner.waiting(_interrupt)


def test_a_call_made_while_another_one_waits_has_interrupts_of_its_own():
    """As from a function that a step calls in the thread that waits for the step."""
    done = []

    def call():
        _block(lambda _: _interrupt(), lambda _: done.append("inner"))

    with pytest.raises(KeyboardInterrupt):
        _block(lambda interrupts: interrupts.waiting(call), lambda _: done.append("outer"))
    assert done == ["inner"]


def test_a_handler_of_the_user_is_called_and_another_thread_has_none():
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, _: calls.append(number))
    try:
        with deferred_interrupts():
            _interrupt()
            _interrupt()
            assert calls == []
        assert calls == [signal.SIGINT], "as often as a signal that is pending"
    finally:
        signal.signal(signal.SIGINT, before)

    def elsewhere():
        with deferred_interrupts() as interrupts:
            calls.append(interrupts.waiting(signal.getsignal, signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert calls[1:] == [before]


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_interrupts():
            _interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
