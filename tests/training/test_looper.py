"""Threads that call a function periodically."""

from __future__ import annotations

import threading
import time

import pytest

import jflow as tf
from jflow.testing import PATIENCE_S as WAIT_S


def test_it_calls_until_the_stop() -> None:
    coord, called = tf.train.Coordinator(), []

    def work(step: int, *, last: int) -> None:
        called.append(step)
        if len(called) == last:
            coord.request_stop()

    looper = tf.train.LooperThread.loop(coord, None, work, args=(7,), kwargs={"last": 3})
    coord.join()
    assert called == [7, 7, 7]
    assert looper.daemon
    assert not looper.is_alive()


def test_a_call_begins_an_interval_after_the_one_before() -> None:
    coord, times = tf.train.Coordinator(), []

    def work() -> None:
        times.append(time.monotonic())
        if len(times) == 4:
            coord.request_stop()

    tf.train.LooperThread.loop(coord, 0.05, work)
    coord.join()
    assert times[-1] - times[0] >= 3 * 0.05


def test_a_stop_does_not_wait_for_the_interval() -> None:
    coord, called = tf.train.Coordinator(), threading.Event()
    looper = tf.train.LooperThread.loop(coord, 3600, called.set)
    assert called.wait(WAIT_S)
    coord.request_stop()
    coord.join(stop_grace_period_secs=WAIT_S)
    assert not looper.is_alive()


def test_an_exception_stops_all_threads() -> None:
    coord = tf.train.Coordinator()

    def work() -> None:
        raise ValueError("in the loop")

    tf.train.LooperThread.loop(coord, None, work)
    with pytest.raises(ValueError, match="in the loop"):
        coord.join()


def test_methods_can_be_overridden() -> None:
    coord, calls = tf.train.Coordinator(), []

    class Mine(tf.train.LooperThread):
        def start_loop(self) -> None:
            calls.append("start")

        def run_loop(self) -> None:
            calls.append("run")
            coord.request_stop()

        def stop_loop(self) -> None:
            calls.append("stop")

    Mine(coord, None).start()
    coord.join()
    assert calls == ["start", "run", "stop"]


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(TypeError, match="Coordinator"):
        tf.train.LooperThread(None, 1.0)  # type: ignore[arg-type]
    coord = tf.train.Coordinator()
    with pytest.raises(ValueError, match="target"):
        tf.train.LooperThread(coord, 1.0, args=(1,))
    coord.join()  # it was not registered
