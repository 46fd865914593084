"""Coordinators of threads."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

import jflow as tf
import jflow.training.threads as module
from jflow.testing import PATIENCE_S as WAIT_S
from jflow.testing import VirtualClock


@contextmanager
def thread(work: Callable[[], object], name: str | None = None) -> Iterator[threading.Thread]:
    """Starts a thread, and joins it at the end of the block."""
    started = threading.Thread(target=work, name=name)
    started.start()
    try:
        yield started
    finally:
        started.join(WAIT_S)
        assert not started.is_alive()


def test_a_request_stops_all_threads() -> None:
    coord = tf.train.Coordinator()
    assert not coord.should_stop()
    assert not coord.wait_for_stop(0.001)
    with thread(lambda: coord.wait_for_stop(WAIT_S)) as one, thread(coord.wait_for_stop) as other:
        coord.request_stop()
        coord.join([one, other])
        assert not one.is_alive()
        assert not other.is_alive()
    assert coord.should_stop()
    assert coord.wait_for_stop()
    assert coord.joined


def test_without_a_stop_join_waits_for_the_threads() -> None:
    coord, gate = tf.train.Coordinator(), threading.Event()
    with (
        thread(lambda: gate.wait(WAIT_S)) as given,
        thread(lambda: gate.wait(WAIT_S)) as registered,
    ):
        coord.register_thread(registered)
        with thread(lambda: coord.join([given], stop_grace_period_secs=0)) as joining:
            joining.join(0.5)  # longer than it takes join to look around
            assert joining.is_alive()
            gate.set()
    assert coord.joined
    assert not coord.should_stop()


def test_join_needs_no_list_of_registered_threads() -> None:
    coord, gate = tf.train.Coordinator(), threading.Event()
    with thread(lambda: gate.wait(WAIT_S)) as registered:
        coord.register_thread(registered)
        with thread(coord.join) as joining:
            joining.join(0.1)
            assert joining.is_alive()
            gate.set()


def test_a_thread_that_was_not_started_is_not_waited_for() -> None:
    tf.train.Coordinator().join([threading.Thread()])


def test_join_raises_the_first_exception_with_its_traceback() -> None:
    coord = tf.train.Coordinator()

    def where_it_happens() -> None:
        raise ValueError("first")

    def work() -> None:
        with coord.stop_on_exception():
            where_it_happens()

    with thread(work) as failing:
        failing.join(WAIT_S)
        coord.request_stop(KeyError("second"))
        with pytest.raises(ValueError, match="first") as caught:
            coord.join([failing])
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "where_it_happens" in names
    with pytest.raises(ValueError, match="first"):
        coord.raise_requested_exception()


def test_what_fails_after_a_stop_without_exception_is_not_the_reason() -> None:
    coord = tf.train.Coordinator()
    coord.request_stop()
    coord.request_stop(tf.errors.CancelledError("because the queue was closed"))
    coord.join()


def test_what_exc_info_gives_is_an_exception() -> None:
    coord = tf.train.Coordinator()
    try:
        raise KeyError("kept")
    except KeyError:
        coord.request_stop(sys.exc_info())
    with pytest.raises(KeyError, match="kept"):
        coord.join()


def test_only_exceptions_are_reasons() -> None:
    coord = tf.train.Coordinator()
    with pytest.raises(TypeError, match="exc_info"):
        coord.request_stop("please")  # type: ignore[arg-type]
    assert not coord.should_stop()


def test_the_end_of_the_data_is_a_clean_stop() -> None:
    coord = tf.train.Coordinator()
    coord.request_stop(tf.errors.OutOfRangeError("done"))
    assert coord.should_stop()
    coord.raise_requested_exception()
    coord.join()
    coord.request_stop(tf.errors.OutOfRangeError("clean after join, too"))


def test_clean_types_can_be_chosen() -> None:
    coord = tf.train.Coordinator(clean_stop_exception_types=(KeyError,))
    coord.request_stop(KeyError("fine"))
    coord.join()
    coord.clear_stop()
    coord.request_stop(tf.errors.OutOfRangeError("not fine now"))
    with pytest.raises(tf.errors.OutOfRangeError):
        coord.join()


def test_after_join_an_exception_is_raised_at_once() -> None:
    coord = tf.train.Coordinator()
    coord.join()
    coord.request_stop()
    with pytest.raises(ValueError, match="late"):
        coord.request_stop(ValueError("late"))


def test_clearing_forgets_the_stop_its_reason_and_the_join() -> None:
    coord = tf.train.Coordinator()
    coord.request_stop(ValueError("old"))
    with pytest.raises(ValueError, match="old"):
        coord.join()
    coord.clear_stop()
    assert not coord.should_stop()
    assert not coord.joined
    coord.request_stop(KeyError("new"))
    with pytest.raises(KeyError, match="new"):
        coord.join()


def test_stragglers_are_named() -> None:
    coord, gate = tf.train.Coordinator(), threading.Event()
    with (
        thread(lambda: gate.wait(WAIT_S), "slow one") as slow,
        thread(lambda: gate.wait(WAIT_S), "slow other"),
    ):
        coord.register_thread(slow)
        coord.request_stop()
        began = time.monotonic()
        with pytest.raises(RuntimeError, match=r"still running: slow one; .* 0\.2 s"):
            coord.join(stop_grace_period_secs=0.2)
        assert time.monotonic() - began >= 0.2
        # They are no longer its threads.
        coord.join()
        coord.join([slow], stop_grace_period_secs=0, ignore_live_threads=True)
        gate.set()


def test_an_exception_is_more_important_than_stragglers() -> None:
    coord, gate = tf.train.Coordinator(), threading.Event()
    with thread(lambda: gate.wait(WAIT_S)) as slow:
        coord.request_stop(ValueError("the reason"))
        with pytest.raises(ValueError, match="the reason"):
            coord.join([slow], stop_grace_period_secs=0)
        gate.set()


class Slow(threading.Thread):
    """A thread that does not end; time passes on a clock when it is waited for."""

    def __init__(self, name: str, clock: VirtualClock) -> None:
        super().__init__(name=name)
        self._clock = clock

    def is_alive(self) -> bool:
        return True

    def join(self, timeout: float | None = None) -> None:
        assert timeout is not None
        self._clock.advance(timeout)


def test_the_grace_is_for_all_threads_together() -> None:
    coord, clock = tf.train.Coordinator(), VirtualClock()
    begun = clock.now()
    coord.request_stop()
    with clock.installed(module), pytest.raises(RuntimeError, match="a b c"):
        coord.join([Slow(name, clock) for name in "cba"], stop_grace_period_secs=60)
    assert clock.now() - begun == 60


def test_stop_on_exception_takes_what_is_no_error_too() -> None:
    coord = tf.train.Coordinator()
    with coord.stop_on_exception():
        raise KeyboardInterrupt
    assert coord.should_stop()
    with pytest.raises(KeyboardInterrupt):
        coord.join()


class CoordinatorMachine(RuleBasedStateMachine):
    """A coordinator without threads beside a model of three values."""

    def __init__(self) -> None:
        super().__init__()
        self.coord = tf.train.Coordinator()
        self.stopped = self.joined = False
        self.reason: Exception | None = None

    @rule(kind=st.sampled_from([None, ValueError, KeyError, tf.errors.OutOfRangeError]))
    def request(self, kind: type[Exception] | None) -> None:
        error = kind and kind("why")
        unclean = None if isinstance(error, tf.errors.OutOfRangeError) else error
        if self.joined and unclean is not None:
            with pytest.raises(type(unclean)) as caught:
                self.coord.request_stop(error)
            assert caught.value is unclean
            return
        self.coord.request_stop(error)
        if not self.stopped:
            self.stopped, self.reason = True, unclean

    @rule()
    def join(self) -> None:
        self.joined = True
        self._raises_the_reason(self.coord.join)

    @rule()
    def look(self) -> None:
        self._raises_the_reason(self.coord.raise_requested_exception)
        assert self.coord.should_stop() == self.stopped == self.coord.wait_for_stop(0)
        assert self.coord.joined == self.joined

    @rule()
    def clear(self) -> None:
        self.coord.clear_stop()
        self.stopped, self.joined, self.reason = False, False, None

    def _raises_the_reason(self, call: Callable[[], None]) -> None:
        if self.reason is None:
            call()
            return
        with pytest.raises(type(self.reason)) as caught:
            call()
        assert caught.value is self.reason


TestCoordinatorMachine = CoordinatorMachine.TestCase
